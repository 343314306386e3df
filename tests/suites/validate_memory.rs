//! The usual appends allocate nothing. The peak is that of the whole process, so this binary has one test.

use peak_alloc::PeakAlloc;
use redrive::batch::CoordinatorBatches;
use redrive::log::LogConfig;
use redrive::log::validate::{AppendOrigin, FollowerAppend, LeaderAppend, LogValidator};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec, RecordSpec};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Panics if `work` allocates, even if it frees it again.
fn without_allocation(what: &str, work: impl FnOnce()) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    work();
    assert_eq!(ALLOCATOR.peak_usage(), before, "{what}");
}

#[test]
fn usual_appends_allocate_nothing() {
    let config = LogConfig::default();
    let records: Vec<_> =
        (0..100).map(|n| RecordSpec::new(n, format!("key-{n}").into_bytes(), Some(vec![7; 100]))).collect();
    let spec = |codec| BatchSpec { codec, records: records.clone(), ..BatchSpec::default() };
    let append = LeaderAppend {
        config: &config,
        origin: AppendOrigin::Client,
        first_offset: Offset(5),
        leader_epoch: 1,
        now_ms: BatchSpec::default().base_timestamp,
    };
    let mut validator = LogValidator::default();
    // LZ4 and snappy of this engine need no memory but the buffer's; gzip and zstd make a decoder each time.
    for codec in [Codec::None, Codec::Snappy, Codec::Lz4] {
        let bytes = spec(codec).encode();
        let mut buffers = [bytes.clone(), bytes];
        let [first, second] = &mut buffers;
        validator.validate(first, &append).expect("accepted");
        without_allocation("a leader's append", || {
            let batch = validator.validate(second, &append).expect("accepted").expect("a batch");
            assert!(batch.rewritten.is_none());
        });
    }

    let bytes = spec(Codec::None).encode();
    let follower = FollowerAppend { config: &config, log_end_offset: Offset(0), leader_epoch: 0 };
    let mut batches = Vec::with_capacity(1);
    without_allocation("a follower's append", || {
        follower.scan(&bytes, &mut batches).expect("accepted");
    });

    let mut coordinator = CoordinatorBatches::new(Offset(0), 0);
    let mut fill = |first| {
        coordinator.restart(Offset(first), 0);
        for n in 0..1000 {
            coordinator.push(n, b"a key", Some(b"a value")).expect("fits");
        }
    };
    fill(0);
    without_allocation("a coordinator's appends", || fill(1000));
}
