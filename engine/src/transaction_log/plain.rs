//! A second, shorter way to the state of a value, for the values that coordinators write.

use super::state::TransactionState;

/// Most topics, and most tagged fields, that the short way goes through.
const ELEMENTS_MAX: usize = 32;

/// The state of a value in which every byte is as a coordinator writes it: right structure, no null where none may
/// be, no unknown tags, nothing that a [`Value`](super::Value) would warn of. `None` says only that the long way must
/// be taken.
///
/// Cost: a few nanoseconds, since lengths of one byte are the only ones it follows.
#[inline(always)]
pub(crate) fn plain_state(value: &[u8]) -> Option<TransactionState> {
    let (head, rest) = value.split_first_chunk::<17>()?;
    let state = TransactionState::from_code(head[16].cast_signed())?;
    let (tags, is_compact) = match [head[0], head[1]] {
        [0, 0] => (topics_v0(rest, state)?, false),
        [0, 1] => (topics_v1(rest, state)?, true),
        _ => return None,
    };
    // Behind the topics come two time stamps.
    let tags = tags.get(16..)?;
    let is_end = if is_compact { is_known_tags(tags) } else { tags.is_empty() };
    is_end.then_some(state)
}

#[inline(always)]
fn topics_v0(bytes: &[u8], state: TransactionState) -> Option<&[u8]> {
    let (count, mut rest) = bytes.split_first_chunk::<4>()?;
    let count = i32::from_be_bytes(*count);
    if state == TransactionState::Empty {
        return (count == -1 || count == 0).then_some(rest);
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= ELEMENTS_MAX)?;
    for _ in 0..count {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let name = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (ids, behind) = behind.get(name..)?.split_first_chunk::<4>()?;
        let ids = usize::try_from(i32::from_be_bytes(*ids)).ok()?;
        rest = behind.get(ids.checked_mul(4)?..)?;
    }
    Some(rest)
}

#[inline(always)]
fn topics_v1(bytes: &[u8], state: TransactionState) -> Option<&[u8]> {
    // A compact length is one more than the number; 0 is null.
    let (&count, mut rest) = bytes.split_first()?;
    if state == TransactionState::Empty {
        return (count <= 1).then_some(rest);
    }
    let count = usize::from(count).checked_sub(1).filter(|count| *count <= ELEMENTS_MAX)?;
    for _ in 0..count {
        let (&length, behind) = rest.split_first()?;
        let name = usize::from(length).checked_sub(1).filter(|_| length < 0x80)?;
        let (&ids, behind) = behind.get(name..)?.split_first()?;
        let ids = usize::from(ids).checked_sub(1).filter(|_| ids < 0x80)?;
        // A topic's own tagged fields: none.
        let (&tags, behind) = behind.get(4 * ids..)?.split_first()?;
        if tags != 0 {
            return None;
        }
        rest = behind;
    }
    Some(rest)
}

/// Whether these are the tagged fields of a value and nothing else, all of them known and in order.
#[inline(always)]
fn is_known_tags(bytes: &[u8]) -> bool {
    let Some((&count, mut rest)) = bytes.split_first() else { return false };
    let mut next_tag = 0;
    for _ in 0..count.min(5) {
        let [tag, size, behind @ ..] = rest else { return false };
        let fits = match *tag {
            0 | 1 => *size == 8,
            // The version of the client's transactions: 0, 1 or 2.
            2 => *size == 2 && matches!(behind, [0, 0..=2, ..]),
            3 => *size == 2,
            _ => false,
        };
        if !fits || *tag < next_tag {
            return false;
        }
        next_tag = tag + 1;
        let Some(behind) = behind.get(usize::from(*size)..) else { return false };
        rest = behind;
    }
    count <= 4 && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction_log::{TopicPartitions, TransactionMetadata, Value, ValueVersion};
    use crate::types::ProducerId;

    fn samples() -> Vec<Vec<u8>> {
        let topics = |names: &[&str]| {
            names
                .iter()
                .map(|name| TopicPartitions {
                    topic: name.as_bytes().to_vec(),
                    partition_ids: vec![0, 7],
                    unknown_tagged_fields: Vec::new(),
                })
                .collect::<Vec<_>>()
        };
        let mut samples = Vec::new();
        for state in TransactionState::ALL {
            for (number, names) in
                [&[][..], &["orders"], &["a", "long-name-of-a-topic", ""]].iter().enumerate()
            {
                for version in [ValueVersion::V0, ValueVersion::V1] {
                    let is_v1 = version == ValueVersion::V1 && number > 0;
                    let metadata = TransactionMetadata {
                        producer_id: ProducerId(7),
                        producer_epoch: 3,
                        transaction_timeout_ms: 60_000,
                        state,
                        partitions: (state != TransactionState::Empty).then(|| topics(names)),
                        last_update_timestamp_ms: 1_700_000_000_000,
                        start_timestamp_ms: -1,
                        previous_producer_id: ProducerId(if is_v1 { 6 } else { -1 }),
                        next_producer_id: ProducerId(if is_v1 && number > 1 { 8 } else { -1 }),
                        next_producer_epoch: if is_v1 && number > 1 { 0 } else { -1 },
                        client_transaction_version: if is_v1 { 2 } else { 0 },
                        unknown_tagged_fields: Vec::new(),
                    };
                    let mut value = Vec::new();
                    metadata.encode(version, &mut value).unwrap();
                    samples.push(value);
                }
            }
        }
        samples
    }

    /// What the long way says of a value that it finds nothing odd about.
    fn long_way(value: &[u8]) -> Option<TransactionState> {
        let Ok(Value::Known(fields)) = Value::parse(value) else { return None };
        let view = fields.transaction().ok()?;
        (fields.warnings.is_empty()).then_some(view.state())
    }

    #[test]
    fn what_coordinators_write_is_plain() {
        for value in samples() {
            assert_eq!(plain_state(&value), long_way(&value));
            assert!(plain_state(&value).is_some(), "{value:02x?}");
        }
    }

    /// Whatever is plain is right: every byte of every sample changed, every cut, and every two samples put together.
    #[test]
    fn nothing_else_is_taken_for_plain() {
        let step = if cfg!(miri) { 101 } else { 1 };
        let mut plain = 0;
        let mut judge = |value: &[u8]| {
            if let Some(state) = plain_state(value) {
                assert_eq!(long_way(value), Some(state), "{value:02x?}");
                plain += 1;
            }
        };
        for sample in samples().iter().step_by(step.min(11)) {
            for at in 0..sample.len() {
                judge(&sample[..at]);
                for byte in (0..=255).step_by(step) {
                    let mut changed = sample.clone();
                    changed[at] = byte;
                    judge(&changed);
                    changed.push(byte);
                    judge(&changed);
                }
            }
        }
        assert!(plain > 0);
    }
}
