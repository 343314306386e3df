//! The transactional ids: a name for every number, no two alike.

use super::random::{mix, mix_32};
use super::spec::{FLINK_SUBTASKS, IdShape, Scenario};

/// Makes ids out of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    style: Style,
    key: u64,
}

#[derive(Clone, Copy, Debug)]
enum Style {
    Prefix,
    Random,
    Service,
    Streams,
    Flink,
}

const PREFIX: &[u8] = b"order-processing-service-";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// What services are about: 32 of them.
const SUBJECTS: [&str; 32] = [
    "orders",
    "payments",
    "inventory",
    "shipping",
    "billing",
    "ledger",
    "pricing",
    "catalog",
    "accounts",
    "refunds",
    "invoices",
    "loyalty",
    "fraud",
    "risk",
    "audit",
    "search",
    "cart",
    "checkout",
    "returns",
    "stock",
    "vouchers",
    "tax",
    "fx",
    "settlement",
    "clearing",
    "kyc",
    "notifications",
    "sessions",
    "profiles",
    "quotes",
    "claims",
    "metering",
];
/// What services do: 16 of them.
const ROLES: [&str; 16] = [
    "service",
    "writer",
    "ingest",
    "etl",
    "sync",
    "bridge",
    "worker",
    "processor",
    "exporter",
    "importer",
    "relay",
    "projector",
    "enricher",
    "router",
    "outbox",
    "gateway",
];
/// Names of applications of Kafka Streams: 8 of them.
const APPLICATIONS: [&str; 8] = [
    "order-enrichment",
    "payment-matching",
    "stock-levels",
    "fraud-scoring",
    "session-windows",
    "daily-revenue",
    "customer-360",
    "price-alerts",
];
/// Stream threads of one process.
const STREAM_THREADS: u32 = 4;

impl Ids {
    pub(super) fn new(shape: IdShape, scenario: Scenario, seed: u64) -> Self {
        let style = match (shape, scenario) {
            (IdShape::Prefix, _) => Style::Prefix,
            (IdShape::Random, _) => Style::Random,
            (IdShape::Real, Scenario::Streams) => Style::Streams,
            (IdShape::Real, Scenario::Flink) => Style::Flink,
            (IdShape::Real, _) => Style::Service,
        };
        Self { style, key: mix(seed ^ 0x1d5) }
    }

    /// Appends the id of a number: ASCII, at most 70 bytes. Different numbers have different ids, because every step
    /// from the number to the text can be undone.
    pub(super) fn write(&self, number: u32, out: &mut Vec<u8>) {
        let mixed = mix(u64::from(number) ^ self.key);
        match self.style {
            Style::Prefix => {
                out.extend_from_slice(PREFIX);
                push_hex(mixed, 16, out);
            }
            Style::Random => push_uuid(mixed, out),
            Style::Service => {
                // Upper half of the key: 32 bits that are enough to be another seed's.
                let bits = mix_32(number ^ (self.key >> 32) as u32);
                out.extend_from_slice(SUBJECTS[(bits & 31) as usize].as_bytes());
                out.push(b'-');
                out.extend_from_slice(ROLES[(bits >> 5 & 15) as usize].as_bytes());
                out.push(b'-');
                push_decimal(bits >> 9 & 127, out);
                out.push(b'-');
                push_hex(u64::from(bits >> 16), 4, out);
            }
            Style::Streams => {
                // The application's name, its process, and the thread (StreamsProducer).
                let process = mix(u64::from(number / STREAM_THREADS) ^ self.key);
                out.extend_from_slice(APPLICATIONS[(process >> 61) as usize].as_bytes());
                out.push(b'-');
                push_uuid(process, out);
                out.push(b'-');
                push_decimal(number % STREAM_THREADS + 1, out);
            }
            Style::Flink => {
                // Prefix, subtask, checkpoint (TransactionalIdFactory).
                out.extend_from_slice(b"kafka-sink-");
                push_hex(self.key >> 48, 4, out);
                out.push(b'-');
                push_decimal(number % FLINK_SUBTASKS, out);
                out.push(b'-');
                push_decimal(number / FLINK_SUBTASKS + 1, out);
            }
        }
    }
}

/// The lowest `digits` hexadecimal digits.
fn push_hex(number: u64, digits: u32, out: &mut Vec<u8>) {
    out.extend((0..digits).rev().map(|digit| HEX[(number >> (4 * digit) & 15) as usize]));
}

/// 128 bits in the grouping of a UUID. Its version and variant are left to chance too, so that the number can be
/// recovered from its first half.
fn push_uuid(first: u64, out: &mut Vec<u8>) {
    let second = mix(first ^ 0x0dd_ba11);
    push_hex(first >> 32, 8, out);
    for (bits, digits) in [(first >> 16, 4), (first, 4), (second >> 48, 4), (second, 12)] {
        out.push(b'-');
        push_hex(bits, digits, out);
    }
}

fn push_decimal(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        // Below ten.
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn ids(shape: IdShape, scenario: Scenario, seed: u64, numbers: impl Iterator<Item = u32>) -> Vec<String> {
        let ids = Ids::new(shape, scenario, seed);
        numbers
            .map(|number| {
                let mut id = Vec::new();
                ids.write(number, &mut id);
                String::from_utf8(id).expect("ASCII")
            })
            .collect()
    }

    #[test]
    fn no_two_ids_are_alike() {
        for shape in [IdShape::Prefix, IdShape::Random, IdShape::Real] {
            for scenario in [Scenario::UpdateHeavy, Scenario::Streams, Scenario::Flink] {
                let numbers = (0..50_000).chain(u32::MAX - 50_000..=u32::MAX);
                let made = ids(shape, scenario, 9, numbers);
                assert!(made.iter().all(|id| id.is_ascii() && id.len() <= 70), "{}", made[0]);
                let count = made.len();
                assert_eq!(made.into_iter().collect::<HashSet<_>>().len(), count, "{shape:?} {scenario:?}");
            }
        }
    }

    #[test]
    fn ids_look_as_they_should() {
        let one = |shape, scenario| ids(shape, scenario, 9, [129].into_iter()).remove(0);
        let prefix = one(IdShape::Prefix, Scenario::UpdateHeavy);
        assert!(prefix.starts_with("order-processing-service-") && prefix.len() == 41, "{prefix}");
        let random = one(IdShape::Random, Scenario::Flink);
        assert_eq!(random.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{random}");
        let streams = one(IdShape::Real, Scenario::Streams);
        assert!(streams.ends_with("-2") && streams.len() > 40, "{streams}");
        let flink = one(IdShape::Real, Scenario::Flink);
        assert!(flink.starts_with("kafka-sink-") && flink.ends_with("-1-3"), "{flink}");
        let service = one(IdShape::Real, Scenario::Distinct);
        assert!(service.split('-').count() == 4, "{service}");
        assert_ne!(service, ids(IdShape::Real, Scenario::Distinct, 10, [129].into_iter())[0]);
    }

    #[test]
    fn decimal_numbers() {
        for number in [0, 7, 10, 4_294_967_295] {
            let mut out = Vec::new();
            push_decimal(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
