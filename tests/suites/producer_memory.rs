//! Bytes that a producer costs, at the best and the worst load of the hash map. The allocator counts for the whole process,
//! so this binary has one test.

use peak_alloc::PeakAlloc;
use redrive::batch::BatchFrame;
use redrive::producer_state::{ProducerAppendOrigin, ProducerStateManager};
use redrive::types::Offset;
use redrive_tests::logs::BatchSpec;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that stay allocated, and the most that `work` had allocated at once.
fn bytes_of<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let made = work();
    (made, ALLOCATOR.current_usage() - before, ALLOCATOR.peak_usage() - before)
}

fn batches(producer_id: i64, count: i32) -> Vec<Vec<u8>> {
    let batch = |sequence| BatchSpec {
        base_offset: i64::from(sequence),
        last_offset_delta: Some(0),
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchSpec::default()
    };
    (0..count).map(|sequence| batch(sequence).encode()).collect()
}

fn state_of(producers: i64, batches_each: i32) -> ProducerStateManager {
    let mut state = ProducerStateManager::new(1000);
    for producer_id in 0..producers {
        for batch in batches(producer_id, batches_each) {
            state.replay(&BatchFrame::new(&batch).expect("a batch")).expect("in order");
        }
    }
    state
}

#[test]
fn a_producer_costs_what_is_promised() {
    // A table of 2^n places takes 7/8 of them; one more and it doubles.
    let (fullest, emptiest) = (14_336, 14_337);
    for (producers, batches, most) in
        [(fullest, 1, 90), (fullest, 2, 190), (fullest, 9, 190), (emptiest, 1, 120), (emptiest, 9, 200)]
    {
        let (state, bytes, _) = bytes_of(|| state_of(producers, batches));
        let each = bytes / usize::try_from(producers).expect("positive");
        println!("{producers} producers with {batches} batches: {each} bytes each");
        assert_eq!(state.len(), usize::try_from(producers).expect("positive"));
        assert!(each <= most, "{each} bytes");
        assert!(each >= 56, "{each} bytes cannot be: nothing was measured");
    }
    let (_, bytes, _) = bytes_of(|| state_of(1, 1));
    println!("one producer with one batch: {bytes} bytes");
    assert!(bytes <= 400, "{bytes} bytes for one producer");

    // Once a producer is known, a call with a batch of it allocates nothing.
    let batches = batches(0, 200);
    let mut state = state_of(1, 9);
    let ((), _, peak) = bytes_of(|| {
        for (offset, batch) in batches.iter().enumerate().skip(9) {
            let frame = BatchFrame::new(batch).expect("a batch");
            let mut analysis = state.begin_append(ProducerAppendOrigin::Client);
            assert_eq!(state.analyze(&mut analysis, &frame, None, 0), Ok(None), "{offset}");
            assert!(state.apply(analysis, Offset(0)).is_empty());
        }
    });
    assert_eq!(peak, 0, "bytes for an append");

    // What expired gives its memory back.
    let (kept, bytes, _) = bytes_of(|| {
        let mut state = state_of(10_000, 2);
        assert_eq!(state.remove_expired(i64::MAX), 10_000);
        state
    });
    assert!(kept.is_empty() && bytes < 1000, "{bytes} bytes for nothing");
}
