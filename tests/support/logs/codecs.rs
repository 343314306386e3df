//! Compresses the records of a batch as Kafka frames them.

use std::io::Write;

use twox_hash::XxHash32;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    #[default]
    None,
    /// One gzip member.
    Gzip,
    /// Snappy blocks of at most 32 KiB in the stream format that Kafka writes.
    Snappy,
    /// One snappy block without any frame, which Kafka reads but never writes.
    SnappyBlock,
    /// One LZ4 frame with independent blocks of 64 KiB, as Kafka writes it.
    Lz4,
    /// One zstd frame, level 3.
    Zstd,
}

impl Codec {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Gzip, Self::Snappy, Self::SnappyBlock, Self::Lz4, Self::Zstd];

    /// Number in bits 0 to 2 of a batch's attributes.
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy | Self::SnappyBlock => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// Compresses. Memory does not fail here, and nothing else can.
    pub fn compress(self, plain: &[u8]) -> Vec<u8> {
        match self {
            Self::None => plain.to_vec(),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(plain).and_then(|()| encoder.finish()).expect("gzip in memory")
            }
            Self::Snappy => {
                let mut stream = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
                for block in plain.chunks(32 << 10) {
                    let block = snappy_block(block);
                    stream.extend((block.len() as u32).to_be_bytes());
                    stream.extend(block);
                }
                stream
            }
            Self::SnappyBlock => snappy_block(plain),
            Self::Lz4 => lz4_frame(plain),
            Self::Zstd => zstd::stream::encode_all(plain, 3).expect("zstd in memory"),
        }
    }
}

fn snappy_block(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).expect("snappy in memory")
}

#[expect(clippy::little_endian_bytes, reason = "the inside of an LZ4 frame is little-endian")]
fn lz4_frame(plain: &[u8]) -> Vec<u8> {
    let descriptor = [0x60, 0x40];
    let mut frame = b"\x04\x22\x4d\x18".to_vec();
    frame.extend(descriptor);
    frame.push((XxHash32::oneshot(0, &descriptor) >> 8) as u8);
    for block in plain.chunks(64 << 10) {
        let packed = lz4_flex::block::compress(block);
        // A block that would grow is stored as it is, which the top bit of its length says.
        let (flag, bytes) =
            if packed.len() < block.len() { (0, packed.as_slice()) } else { (1 << 31, block) };
        frame.extend((bytes.len() as u32 | flag).to_le_bytes());
        frame.extend(bytes);
    }
    frame.extend([0; 4]);
    frame
}
