//! The records of one id's transactions, as a coordinator writes them (TransactionMetadata, KIP-98, KIP-890).
//!
//! | step | older clients | clients of KIP-890 |
//! |---|---|---|
//! | InitProducerId | Empty, epoch + 1 | the same |
//! | partitions added, two or three times | Ongoing, more partitions each time | the same |
//! | EndTxn | PrepareCommit or PrepareAbort | the same, epoch + 1 |
//! | all markers written | CompleteCommit or CompleteAbort, no partitions | the same |
//!
//! An id whose epochs are used up (32766) goes on with a new producer id and epoch 0: older clients at their next
//! InitProducerId, newer ones when the transaction completes, with the new producer id announced before.

use redrive::transaction_log::{TransactionState, ValueVersion};

use super::batch::Image;
use super::topics::TopicSets;

/// From this epoch on a producer id is used up.
const EPOCH_EXHAUSTED: i16 = i16::MAX - 1;
const NO_PRODUCER_ID: i64 = -1;
/// Before the first InitProducerId.
const NO_EPOCH: i16 = -1;

/// What lasts of an id from one transaction to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Names the id.
    pub(super) number: u32,
    /// Transactions behind it.
    pub(super) done: u32,
    producer_id: i64,
    last_update_ms: i64,
    epoch: i16,
    client_version: i16,
}

impl Life {
    pub(super) fn new(number: u32, producer_id: i64) -> Self {
        Self { number, done: 0, producer_id, last_update_ms: 0, epoch: NO_EPOCH, client_version: 0 }
    }

    /// Whether the id has a producer epoch yet.
    pub(super) fn is_initialized(&self) -> bool {
        self.epoch != NO_EPOCH
    }
}

/// How an id ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Tombstone,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    Empty,
}

impl End {
    /// Whether the last transaction stays open, as it does at the end of a log only.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Ongoing | Self::PrepareCommit | Self::PrepareAbort)
    }
}

/// The next record of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// InitProducerId before a transaction.
    Init,
    /// An addition of partitions, from 1.
    Add(usize),
    Prepare,
    Complete,
    /// InitProducerId behind the last transaction of an id.
    InitAgain,
}

/// What became of a transaction with its newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More will follow.
    GoesOn,
    /// Nothing will follow in this transaction, but the id has more of them.
    Done,
    /// That was the id's last record, and leaves it in this state.
    Ended(TransactionState),
    /// That was the id's last record but the tombstone.
    Expires,
}

/// One transaction under way.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// The record key of the id.
    pub(super) key: Vec<u8>,
    /// Index of the id's life.
    pub(super) life: usize,
    step: Step,
    /// Additions of partitions, at least 1.
    adds: usize,
    topic_set: usize,
    commits: bool,
    /// Speaks the protocol of KIP-890.
    is_newer_client: bool,
    /// How the id ends, if this is its last transaction.
    end: Option<End>,
    start_ms: i64,
    next_producer_id: i64,
}

/// What is chosen for a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    /// The client starts again before it.
    pub(super) restarts: bool,
    pub(super) adds: usize,
    pub(super) topic_set: usize,
    pub(super) commits: bool,
    pub(super) is_newer_client: bool,
    pub(super) end: Option<End>,
}

/// What a record takes from its surroundings.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    pub(super) version: ValueVersion,
    pub(super) timeout_ms: i32,
    /// Time of the state change, ms.
    pub(super) now_ms: i64,
    pub(super) topics: &'a TopicSets,
}

impl Transaction {
    /// A transaction in the place of another, whose memory it takes over; `key` is set by the caller.
    pub(super) fn begin(key: Vec<u8>, index: usize, life: &Life, choices: Choices) -> Self {
        let commits = match choices.end {
            Some(End::PrepareCommit) => true,
            Some(End::PrepareAbort) => false,
            _ => choices.commits,
        };
        Self {
            key,
            life: index,
            step: if choices.restarts || !life.is_initialized() { Step::Init } else { Step::Add(1) },
            adds: choices.adds,
            topic_set: choices.topic_set,
            commits,
            is_newer_client: choices.is_newer_client,
            end: choices.end,
            start_ms: -1,
            next_producer_id: NO_PRODUCER_ID,
        }
    }

    /// The next record, and what comes behind it. `allocate` gives a producer id that was never used.
    pub(super) fn advance<'a>(
        &mut self,
        life: &mut Life,
        moment: &Moment<'a>,
        allocate: impl FnOnce() -> i64,
    ) -> (Image<'a>, Progress) {
        // A coordinator's image names the producer id before the change; only a rotation makes the two differ.
        let previous_producer_id = life.producer_id;
        let last_update_ms = moment.now_ms.max(life.last_update_ms);
        life.last_update_ms = last_update_ms;
        let mut adds = self.adds;
        let client_version = if self.is_newer_client { 2 } else { 0 };
        let (state, progress) = match self.step {
            Step::Init | Step::InitAgain => {
                let is_last = self.step == Step::InitAgain;
                if life.epoch >= EPOCH_EXHAUSTED {
                    (life.producer_id, life.epoch) = (allocate(), 0);
                } else {
                    life.epoch += 1;
                }
                self.start_ms = -1;
                self.step = Step::Add(1);
                let empty = TransactionState::Empty;
                (empty, if is_last { Progress::Ended(empty) } else { Progress::GoesOn })
            }
            Step::Add(nth) => {
                if nth == 1 {
                    self.start_ms = last_update_ms;
                }
                life.client_version = client_version;
                adds = nth;
                self.step = if nth < self.adds { Step::Add(nth + 1) } else { Step::Prepare };
                let ends = self.end == Some(End::Ongoing) && nth == self.adds;
                let ongoing = TransactionState::Ongoing;
                (ongoing, if ends { Progress::Ended(ongoing) } else { Progress::GoesOn })
            }
            Step::Prepare => {
                life.client_version = client_version;
                if self.is_newer_client {
                    if life.epoch >= EPOCH_EXHAUSTED {
                        self.next_producer_id = allocate();
                    }
                    // At most 32766 before: a used-up epoch is left behind when the transaction completes.
                    life.epoch = life.epoch.saturating_add(1);
                }
                self.step = Step::Complete;
                let prepare = if self.commits {
                    TransactionState::PrepareCommit
                } else {
                    TransactionState::PrepareAbort
                };
                let ends = matches!(self.end, Some(End::PrepareCommit | End::PrepareAbort));
                (prepare, if ends { Progress::Ended(prepare) } else { Progress::GoesOn })
            }
            Step::Complete => {
                if self.next_producer_id != NO_PRODUCER_ID {
                    (life.producer_id, life.epoch) = (self.next_producer_id, 0);
                    self.next_producer_id = NO_PRODUCER_ID;
                }
                life.done += 1;
                let complete = if self.commits {
                    TransactionState::CompleteCommit
                } else {
                    TransactionState::CompleteAbort
                };
                let progress = match self.end {
                    None => Progress::Done,
                    Some(End::Tombstone) => Progress::Expires,
                    Some(End::Empty) => {
                        self.step = Step::InitAgain;
                        Progress::GoesOn
                    }
                    Some(_) => Progress::Ended(complete),
                };
                (complete, progress)
            }
        };
        let has_tags = moment.version == ValueVersion::V1;
        let image = Image {
            version: moment.version,
            producer_id: life.producer_id,
            producer_epoch: life.epoch,
            timeout_ms: moment.timeout_ms,
            state,
            partitions: moment.topics.field(state, self.topic_set, adds, moment.version),
            last_update_ms,
            start_ms: self.start_ms,
            previous_producer_id: if has_tags { previous_producer_id } else { NO_PRODUCER_ID },
            next_producer_id: if has_tags { self.next_producer_id } else { NO_PRODUCER_ID },
            client_version: if has_tags { life.client_version } else { 0 },
        };
        (image, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Scenario;
    use super::*;

    /// State, producer id, epoch, previous, next and client version of each record of one transaction.
    fn records(life: &mut Life, choices: Choices) -> Vec<(i8, i64, i16, i64, i64, i16)> {
        let topics = TopicSets::new(Scenario::UpdateHeavy, 1);
        let mut transaction = Transaction::begin(Vec::new(), 0, life, choices);
        let mut records = Vec::new();
        loop {
            let moment =
                Moment { version: ValueVersion::V1, timeout_ms: 60_000, now_ms: 1000, topics: &topics };
            let (image, progress) = transaction.advance(life, &moment, || 9000);
            assert!(image.start_ms == -1 || image.start_ms == 1000);
            records.push((
                image.state.code(),
                image.producer_id,
                image.producer_epoch,
                image.previous_producer_id,
                image.next_producer_id,
                image.client_version,
            ));
            if progress != Progress::GoesOn {
                return records;
            }
        }
    }

    const NEWER: Choices =
        Choices { restarts: false, adds: 2, topic_set: 0, commits: true, is_newer_client: true, end: None };

    #[test]
    fn newer_clients_get_a_new_epoch_with_every_transaction() {
        let mut life = Life::new(3, 7);
        assert_eq!(
            records(&mut life, NEWER),
            [
                (0, 7, 0, 7, -1, 0),
                (1, 7, 0, 7, -1, 2),
                (1, 7, 0, 7, -1, 2),
                (2, 7, 1, 7, -1, 2),
                (4, 7, 1, 7, -1, 2)
            ]
        );
        assert_eq!(
            records(&mut life, Choices { adds: 1, commits: false, ..NEWER }),
            [(1, 7, 1, 7, -1, 2), (3, 7, 2, 7, -1, 2), (5, 7, 2, 7, -1, 2)]
        );
        assert_eq!(life.done, 2);
    }

    #[test]
    fn older_clients_get_one_with_every_start() {
        let mut life = Life::new(3, 7);
        let older = Choices { is_newer_client: false, adds: 1, ..NEWER };
        assert_eq!(
            records(&mut life, older),
            [(0, 7, 0, 7, -1, 0), (1, 7, 0, 7, -1, 0), (2, 7, 0, 7, -1, 0), (4, 7, 0, 7, -1, 0)]
        );
        assert_eq!(records(&mut life, Choices { restarts: true, ..older })[0], (0, 7, 1, 7, -1, 0));
    }

    #[test]
    fn used_up_epochs_bring_a_new_producer_id() {
        let mut life = Life { epoch: 32_766, client_version: 2, ..Life::new(3, 7) };
        assert_eq!(
            records(&mut life, Choices { adds: 1, ..NEWER }),
            [(1, 7, 32_766, 7, -1, 2), (2, 7, 32_767, 7, 9000, 2), (4, 9000, 0, 7, -1, 2)]
        );
        let mut life = Life { epoch: 32_766, client_version: 2, ..Life::new(3, 7) };
        let again = records(&mut life, Choices { restarts: true, adds: 1, ..NEWER });
        assert_eq!(again[..2], [(0, 9000, 0, 7, -1, 2), (1, 9000, 0, 9000, -1, 2)]);
    }

    #[test]
    fn each_end_leaves_its_state() {
        for (end, states) in [
            (End::Complete, &[0, 1, 2, 4][..]),
            (End::Tombstone, &[0, 1, 2, 4]),
            (End::Ongoing, &[0, 1]),
            (End::PrepareCommit, &[0, 1, 2]),
            (End::PrepareAbort, &[0, 1, 3]),
            (End::Empty, &[0, 1, 2, 4, 0]),
        ] {
            let mut life = Life::new(3, 7);
            let written = records(&mut life, Choices { adds: 1, end: Some(end), ..NEWER });
            assert_eq!(written.iter().map(|record| record.0).collect::<Vec<_>>(), states, "{end:?}");
        }
    }
}
