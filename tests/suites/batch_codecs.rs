//! Every codec there and back, and what decompression may cost.

use redrive::batch::{
    BatchBuilder, BatchFrame, Compression, CompressionFault, Decompressor, Limits, NewRecord, RecordsFault,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, Codec, RecordSpec, Rng};
use redrive_tests::naive;

/// Records of every kind of content: none, repetitive, random, large.
fn contents() -> Vec<Vec<Vec<u8>>> {
    let mut rng = Rng::new(11);
    let mut random = |len: usize| (0..len).map(|_| rng.draw() as u8).collect::<Vec<_>>();
    vec![
        vec![Vec::new()],
        vec![b"a".to_vec(), b"bb".to_vec(), Vec::new()],
        vec![random(1), random(100), random(70_000)],
        vec![vec![7; 1_000_000]],
        (0..2000).map(|n: u32| format!("value {}", n % 13).into_bytes()).collect(),
        // Exactly the block sizes of the framings, one more and one less, with the record's own bytes in between.
        [32 << 10, 64 << 10, 256 << 10]
            .iter()
            .flat_map(|size| [random(size - 1), random(*size), vec![1; size + 1]])
            .collect(),
    ]
}

fn build(compression: Compression, values: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(1 << 40));
    builder.compression(compression).leader_epoch(3).producer(ProducerId(9), 1, 0);
    for (n, value) in values.iter().enumerate() {
        let timestamp = 1_700_000_000_000 + n as i64 * 3;
        let headers: &[(&[u8], Option<&[u8]>)] =
            if n % 5 == 0 { &[(b"h", None), (b"", Some(b"x"))] } else { &[] };
        let key = n.to_string();
        let record = NewRecord { timestamp, key: Some(key.as_bytes()), value: Some(value), headers };
        builder.push(&record).expect("fits");
    }
    builder.build().expect("built")
}

#[test]
fn every_codec_comes_back() {
    for compression in Compression::ALL.into_iter().filter(|codec| codec.is_supported()) {
        for values in contents() {
            let bytes = build(compression, &values);
            let (frame, rest) = BatchFrame::parse(&bytes).expect("a frame");
            assert!(rest.is_empty());
            assert_eq!(frame.compression(), Ok(compression));
            let mut decompressor = Decompressor::new();
            let batch = frame.verify().expect("a right CRC");
            let records = batch.records(&mut decompressor, &Limits::default()).expect("records");
            let read: Vec<_> =
                records.map(|record| record.expect("a record").value.expect("a value")).collect();
            assert!(read.iter().eq(values.iter()), "{compression}");

            // The slow twin reads the same.
            let twin = naive::next_batch(&bytes, bytes.len() as u64).expect("valid").expect("a batch");
            let payload = twin.decompress(64 << 20).expect("decompressed");
            let twin_read: Vec<_> =
                twin.records(&payload).expect("records").into_iter().map(|record| record.value).collect();
            assert!(
                twin_read.iter().copied().eq(values.iter().map(|value| Some(&value[..]))),
                "{compression}"
            );
        }
    }
}

/// What another encoder wrote, in each of Kafka's framings.
#[test]
fn every_codec_of_the_independent_writer_is_read() {
    for codec in Codec::ALL {
        let compression = Compression::from_id(codec.id() as u8).expect("a codec");
        if !compression.is_supported() {
            continue;
        }
        for values in contents() {
            let record =
                |(n, value): (usize, &Vec<u8>)| RecordSpec::new(n as i32, Vec::new(), Some(value.clone()));
            let records = values.iter().enumerate().map(record).collect();
            let bytes = BatchSpec { codec, records, ..BatchSpec::default() }.encode();
            let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
            let mut decompressor = Decompressor::new();
            let batch = frame.verify().expect("a right CRC");
            let read = batch.records(&mut decompressor, &Limits::default()).expect("records");
            let read: Vec<_> = read.map(|record| record.expect("a record").value.expect("a value")).collect();
            assert!(read.iter().eq(values.iter()), "{codec:?}");
        }
    }
}

/// The limit is the number of bytes that may come out, inclusive.
#[test]
fn limit_is_exact() {
    let values = vec![vec![0; 5000], vec![1; 3000]];
    let plain = build(Compression::None, &values);
    let decompressed_bytes = plain.len() - 61;
    for compression in Compression::ALL.into_iter().filter(|codec| codec.is_supported()).skip(1) {
        let bytes = build(compression, &values);
        let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
        let batch = frame.verify().expect("a right CRC");
        let read = |limit: usize| {
            let mut decompressor = Decompressor::new();
            let limits = Limits::default().with_decompressed_bytes_max(limit);
            batch.records(&mut decompressor, &limits).map(|records| records.count())
        };
        assert_eq!(read(decompressed_bytes), Ok(2), "{compression}");
        let limit = decompressed_bytes - 1;
        let fault = RecordsFault::Compression(CompressionFault::TooLarge { limit });
        assert_eq!(read(limit), Err(fault), "{compression}");
        assert!(matches!(read(0), Err(RecordsFault::Compression(CompressionFault::TooLarge { limit: 0 }))));
    }
}

/// Any byte of a compressed block changed: read as something or refused, never a panic, and never more than the limit.
#[test]
fn damaged_streams_end() {
    let limits = Limits::default().with_decompressed_bytes_max(1 << 20);
    let (mut refused, mut read) = (0, 0);
    for codec in Codec::ALL {
        let mut decompressor = Decompressor::new();
        let compression = Compression::from_id(codec.id() as u8).expect("a codec");
        if compression == Compression::None || !compression.is_supported() {
            continue;
        }
        let plain: Vec<u8> = (0..3000u32).flat_map(|n| (n % 97).to_be_bytes()).collect();
        let packed = codec.compress(&plain);
        for at in 0..packed.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = packed.clone();
                damaged[at] ^= flip;
                match decompressor.decompress(compression, &damaged, &limits) {
                    Ok(bytes) => {
                        assert!(bytes.len() <= 1 << 20);
                        read += 1;
                    }
                    Err(CompressionFault::Damaged { codec, .. }) => {
                        assert_eq!(codec, compression);
                        refused += 1;
                    }
                    Err(CompressionFault::TooLarge { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        for cut in 0..packed.len() {
            // A cut stream is damage, but a snappy stream may end between blocks, and no byte at all is no stream.
            let result = decompressor.decompress(compression, &packed[..cut], &limits);
            let is_short = result.as_ref().is_ok_and(|bytes| bytes.len() < plain.len());
            assert!(
                result.is_err() || (compression == Compression::Snappy && is_short),
                "{codec:?} cut at {cut}"
            );
        }
    }
    let has_codec = Compression::ALL.into_iter().skip(1).any(Compression::is_supported);
    assert!(!has_codec || refused > 1000, "{refused} refused, {read} read");
}
