//! Which partition of the transaction log an id lives in (Kafka's TransactionStateManager.partitionFor).

use super::text::decode_utf8;
use std::num::NonZero;

/// Java's hash of a string, over the UTF-16 code units of the decoded id. Characters outside the basic plane count
/// as their two surrogates.
pub fn java_string_hash(id: &[u8]) -> i32 {
    fn hash(units: impl Iterator<Item = u16>) -> i32 {
        units.fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
    }
    if id.is_ascii() {
        hash(id.iter().map(|&byte| u16::from(byte)))
    } else {
        hash(decode_utf8(id).encode_utf16())
    }
}

/// The partition, 0 … `partition_count` − 1, that holds the records of `id`. `partition_count` is the number of
/// partitions of the transaction log (`transaction.state.log.num.partitions`, 50 unless set), which never changes.
///
/// This is not the producer's partitioner, which uses another hash.
pub fn partition_for(id: &[u8], partition_count: NonZero<u32>) -> i32 {
    // Kafka's `Utils.abs` gives 0 for the one number without a positive counterpart.
    let hash = java_string_hash(id).checked_abs().unwrap_or(0).unsigned_abs();
    (hash % partition_count).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_a_known_hash() {
        for (id, hash) in [
            ("", 0),
            ("a", 97),
            ("Aa", 2112),
            ("BB", 2112),
            ("order-service-7", -229_043_360),
            ("café", 3_045_921),
            ("tx-😀", 112_519_500),
            ("polygenelubricants", i32::MIN),
        ] {
            assert_eq!(java_string_hash(id.as_bytes()), hash, "{id}");
        }
    }

    #[test]
    fn partitions_stay_in_range() {
        for count in [1, 3, 50, u32::MAX] {
            let count = NonZero::new(count).unwrap();
            for id in ["", "a", "order-service-7", "polygenelubricants", "GydZG_"] {
                let partition = partition_for(id.as_bytes(), count);
                assert!(partition >= 0 && partition.unsigned_abs() < count.get());
            }
        }
        assert_eq!(partition_for(b"order-service-7", NonZero::new(50).unwrap()), 10);
        assert_eq!(partition_for(b"polygenelubricants", NonZero::new(50).unwrap()), 0);
    }
}
