use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Whether io_uring and direct reads can be had; says so where not.
fn available() -> bool {
    let direct = Scratch::new(b"x");
    let missing = match (probe(1), DirectFile::open(&direct.0)) {
        (Ok(()), Ok(_)) => return true,
        (Err(error), _) => error.to_string(),
        (_, Err(fault)) => fault.to_string(),
    };
    let required = std::env::var("REDRIVE_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "io_uring"), "io_uring is required: {missing}");
    eprintln!("skipped, no direct reads by io_uring here: {missing}");
    false
}

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: &[u8]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("redrive-uring-{}-{number}", std::process::id()));
        fs::write(&path, bytes).expect("a writable directory");
        Self(path)
    }

    fn open(&self) -> DirectFile {
        DirectFile::open(&self.0).expect("a file system with direct reads")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Numbers without a pattern, the same in every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// Reads all that was pushed, keeps what `keep` says of each block's bytes, and compares with what the ranges hold.
fn compare(
    reader: &mut DirectReader,
    expected: &[&[u8]],
    starts: &[u64],
    mut keep: impl FnMut(usize) -> usize,
) {
    for (file, expected) in expected.iter().enumerate() {
        let (mut kept, mut seen) = (0, 0);
        loop {
            let block = reader.next(kept).expect("a readable file").expect("a block");
            let from = seen - kept;
            assert_eq!((block.file, block.position), (file, starts[file] + from as u64));
            assert!(block.bytes == &expected[from..from + block.bytes.len()], "file {file} from byte {from}");
            seen = from + block.bytes.len();
            if block.last {
                break;
            }
            assert!(block.bytes.len() > kept, "no progress");
            kept = keep(block.bytes.len());
        }
        assert_eq!(seen, expected.len(), "file {file}");
    }
    assert!(reader.next(0).expect("no fault").is_none());
    assert!(reader.next(0).expect("no fault").is_none());
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn all_sizes_equal_plain_reads() {
    if !available() {
        return;
    }
    let mut noise = Noise(7);
    const MIB: usize = 1 << 20;
    let sizes = [0, 1, 511, 512, 4095, 4096, 4097, 0, 65_536, MIB - 1, MIB, MIB + 1, 3 * MIB + 17];
    let contents: Vec<_> = sizes.map(|size| noise.bytes(size)).into();
    let files: Vec<_> = contents.iter().map(|bytes| Scratch::new(bytes)).collect();
    for (depth, block_bytes) in [(1, 4096), (3, 8192), (4, MIB), (8, 128 << 10)] {
        let mut reader = DirectReader::new(depth, block_bytes).expect("a ring");
        for (number, (file, bytes)) in files.iter().zip(&contents).enumerate() {
            assert_eq!(reader.push(file.open(), 0..bytes.len() as u64).expect("a valid range"), number);
        }
        let expected: Vec<_> = contents.iter().map(Vec::as_slice).collect();
        compare(&mut reader, &expected, &[0; 13], |length| noise.below(length.min(300) + 1));
    }
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn any_range_and_any_part_kept_equal_plain_reads() {
    if !available() {
        return;
    }
    let mut noise = Noise(11);
    let content = noise.bytes(700_000);
    let file = Scratch::new(&content);
    for round in 0..60 {
        let block_bytes = [4096, 16_384, 131_072][round % 3];
        let mut reader = DirectReader::new(1 + noise.below(6), block_bytes).expect("a ring");
        let ranges: Vec<_> = (0..1 + noise.below(4))
            .map(|_| {
                let start = noise.below(content.len() + 1);
                start..start + noise.below(content.len() - start + 1)
            })
            .collect();
        for range in &ranges {
            reader.push(file.open(), range.start as u64..range.end as u64).expect("a valid range");
        }
        let expected: Vec<_> = ranges.iter().map(|range| &content[range.clone()]).collect();
        let starts: Vec<_> = ranges.iter().map(|range| range.start as u64).collect();
        // All, next to nothing, and anything: more than the room among them.
        compare(&mut reader, &expected, &starts, |length| match noise.below(3) {
            0 => length,
            1 => noise.below(length.min(100) + 1),
            _ => noise.below(length + 1),
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn files_can_follow_while_others_are_read() {
    if !available() {
        return;
    }
    let mut noise = Noise(13);
    let content = noise.bytes(100_000);
    let file = Scratch::new(&content);
    let mut reader = DirectReader::new(2, 8192).expect("a ring");
    for round in 0..5 {
        assert_eq!(reader.push(file.open(), 0..100_000).expect("a valid range"), round);
        let mut seen = 0;
        loop {
            let block = reader.next(0).expect("a readable file").expect("a block");
            assert!(block.file == round && block.bytes == &content[seen..seen + block.bytes.len()]);
            seen += block.bytes.len();
            if block.last {
                break;
            }
        }
        assert!(round % 2 == 0 || reader.next(0).expect("no fault").is_none());
    }
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn a_shrunk_file_is_a_fault_that_stays() {
    if !available() {
        return;
    }
    let content = Noise(17).bytes(300_000);
    for cut in [0, 1, 8191, 8192, 100_000, 200_704, 299_999] {
        let file = Scratch::new(&content);
        let mut reader = DirectReader::new(3, 8192).expect("a ring");
        reader.push(file.open(), 0..300_000).expect("a valid range");
        OpenOptions::new().write(true).open(&file.0).expect("the file").set_len(cut).expect("shorter");
        let mut seen = 0;
        let fault = loop {
            match reader.next(0) {
                Ok(block) => seen += block.expect("no end before the fault").bytes.len() as u64,
                Err(fault) => break fault,
            }
        };
        assert_eq!(seen, cut / 8192 * 8192);
        assert_eq!((fault.file, fault.position), (0, cut));
        assert_eq!(fault.source.kind(), io::ErrorKind::UnexpectedEof);
        let again = reader.next(0).expect_err("the same fault");
        assert_eq!((again.position, again.source.kind()), (cut, io::ErrorKind::UnexpectedEof));
    }
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn what_a_file_grows_by_is_not_read() {
    if !available() {
        return;
    }
    let content = Noise(19).bytes(50_001);
    let file = Scratch::new(&content);
    let mut reader = DirectReader::new(2, 16_384).expect("a ring");
    reader.push(file.open(), 0..50_001).expect("a valid range");
    let mut appender = OpenOptions::new().append(true).open(&file.0).expect("the file");
    appender.write_all(&[9; 70_000]).expect("room");
    compare(&mut reader, &[&content], &[0], |_| 0);
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn a_reader_can_be_dropped_at_any_moment() {
    if !available() {
        return;
    }
    let file = Scratch::new(&Noise(23).bytes(2 << 20));
    for blocks in 0..12 {
        let mut reader = DirectReader::new(8, 128 << 10).expect("a ring");
        reader.push(file.open(), 0..2 << 20).expect("a valid range");
        for block in 0..blocks {
            reader.next(usize::from(block > 0)).expect("a readable file");
        }
        // Without a look at the answers that have come, so that it is known how many are awaited.
        reader.fill();
        reader.hand_over();
        assert!(blocks > 0 || reader.in_flight == 9);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no io_uring there")]
fn impossible_wishes_are_refused_and_change_nothing() {
    if !available() {
        return;
    }
    for (depth, block_bytes) in [(0, 4096), (257, 4096), (4, 0), (4, 4095), (4, 6144), (4, 128 << 20)] {
        let error = DirectReader::new(depth, block_bytes).expect_err("a refusal");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let content = Noise(29).bytes(10_000);
    let file = Scratch::new(&content);
    let mut reader = DirectReader::new(2, 8192).expect("a ring");
    let (from, to) = (2, 1);
    assert!(reader.push(file.open(), from..to).is_err());
    assert_eq!(reader.push(file.open(), 0..10_000).expect("a valid range"), 0);
    assert!(reader.next(1).is_err(), "there is nothing to keep yet");
    assert_eq!(reader.next(0).expect("no fault").expect("a block").bytes, &content[..8192]);
    assert!(reader.next(8193).is_err(), "the block has 8192 bytes");
    assert_eq!(reader.next(8192).expect("no fault").expect("a block").bytes, &content);
    assert!(reader.next(1).is_err(), "nothing follows on the last block");
    assert!(reader.next(0).expect("no fault").is_none());
}

#[test]
#[cfg_attr(miri, ignore = "no such files there")]
fn a_file_system_that_refuses_is_told_from_a_file_that_cannot_be_opened() {
    // Files of procfs are made while they are read. This one an emulator of another CPU leaves as it is.
    assert!(matches!(DirectFile::open(Path::new("/proc/version")), Err(OpenFault::Refused)));
    let missing = DirectFile::open(Path::new("/proc/self/no such file"));
    assert!(matches!(missing, Err(OpenFault::Io(error)) if error.kind() == io::ErrorKind::NotFound));
}

#[test]
fn answers() {
    let reading = Slot {
        file: 0,
        position: 0,
        skip: 0,
        needed: 9000,
        present: 4096,
        last: true,
        retries: 0,
        state: State::Reading,
    };
    let cases = [
        (8192, 12_288, State::Ready),
        (4904, 9000, State::Ready),
        (4096, 8192, State::Reading),
        (512, 4608, State::Reading),
        (0, 4096, State::Failed(None)),
        (4097, 8193, State::Failed(None)),
        (-libc::EIO, 4096, State::Failed(Some(libc::EIO))),
        (-libc::EINTR, 4096, State::Reading),
        (-libc::EAGAIN, 4096, State::Reading),
    ];
    for (result, present, state) in cases {
        let mut slot = reading;
        slot.answered(result, 512);
        assert_eq!((slot.present, slot.state), (present, state), "{result}");
    }
    let mut slot = reading;
    for _ in 0..RETRIES_MAX {
        slot.answered(-libc::EAGAIN, 512);
        assert_eq!(slot.state, State::Reading);
    }
    slot.answered(-libc::EAGAIN, 512);
    assert_eq!(slot.state, State::Failed(Some(libc::EAGAIN)));
}
