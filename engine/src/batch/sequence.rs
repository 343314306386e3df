//! Sequence numbers of idempotent producers: 0 … 2^31 − 1, after which comes 0 again.

/// The sequence number `increment` after `sequence` (Kafka's DefaultRecordBatch.incrementSequence). Always
/// 0 … 2^31 − 1.
pub const fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    // Without its sign bit a number is its own remainder by 2^31.
    sequence.wrapping_add(increment) & i32::MAX
}

/// The sequence number `decrement` before `sequence` (Kafka's DefaultRecordBatch.decrementSequence). Always
/// 0 … 2^31 − 1.
pub const fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    sequence.wrapping_sub(decrement) & i32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_follows_the_largest() {
        assert_eq!(increment_sequence(0, 0), 0);
        assert_eq!(increment_sequence(5, 7), 12);
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 3), 1);
        assert_eq!(increment_sequence(i32::MAX, i32::MAX), i32::MAX - 1);
        assert_eq!(decrement_sequence(12, 7), 5);
        assert_eq!(decrement_sequence(0, 1), i32::MAX);
        assert_eq!(decrement_sequence(0, 2), i32::MAX - 1);
        assert_eq!(decrement_sequence(i32::MAX - 1, i32::MAX), i32::MAX);
    }

    #[test]
    fn the_two_undo_each_other() {
        let values = [0, 1, 2, 1000, i32::MAX - 1, i32::MAX];
        for sequence in values {
            for by in values {
                assert_eq!(decrement_sequence(increment_sequence(sequence, by), by), sequence);
            }
        }
    }
}
