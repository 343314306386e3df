//! Control records: transaction markers, and what else brokers put into control batches
//! (ControlRecordType, EndTransactionMarker).
//!
//! Key: version i16, type i16. Value of a marker: version i16, coordinator epoch i32. Longer keys and values
//! of later versions are read as version 0.

use super::Record;

/// Type codes of control records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecordType {
    /// 0: transaction marker, aborted.
    Abort,
    /// 1: transaction marker, committed.
    Commit,
    /// 2 to 6: KRaft's own (leader change, snapshot header and footer, version, voters).
    Kraft(i16),
    /// Any other code: ignored by consumers.
    Unknown(i16),
}

impl ControlRecordType {
    /// The type with this code.
    pub fn from_code(code: i16) -> Self {
        match code {
            0 => Self::Abort,
            1 => Self::Commit,
            2..=6 => Self::Kraft(code),
            _ => Self::Unknown(code),
        }
    }

    /// The code as stored.
    pub fn code(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::Kraft(code) | Self::Unknown(code) => code,
        }
    }

    /// Kafka's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abort => "ABORT",
            Self::Commit => "COMMIT",
            Self::Kraft(2) => "LEADER_CHANGE",
            Self::Kraft(3) => "SNAPSHOT_HEADER",
            Self::Kraft(4) => "SNAPSHOT_FOOTER",
            Self::Kraft(5) => "KRAFT_VERSION",
            Self::Kraft(_) => "KRAFT_VOTERS",
            Self::Unknown(_) => "UNKNOWN",
        }
    }
}

/// Why a control record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlFault {
    /// The key is null or shorter than four bytes.
    #[error("control record key of {0} bytes, at least 4 needed")]
    ShortKey(usize),
    /// The version in the key is negative.
    #[error("control record key version {0}")]
    KeyVersion(i16),
    /// The value of a marker is null or shorter than six bytes.
    #[error("marker value of {0} bytes, at least 6 needed")]
    ShortValue(usize),
    /// The version in the value of a marker is negative.
    #[error("marker value version {0}")]
    ValueVersion(i16),
}

/// The value of a COMMIT or ABORT control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// COMMIT if true, ABORT if false.
    pub committed: bool,
    /// Leader epoch of the transaction-log partition whose leader sent the marker.
    pub coordinator_epoch: i32,
}

/// A control record, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRecord<'a> {
    /// What it says.
    pub kind: ControlRecordType,
    /// Its value as stored, for the kinds that are not decoded here.
    pub value: Option<&'a [u8]>,
    /// Set for COMMIT and ABORT.
    pub marker: Option<EndTransactionMarker>,
}

impl<'a> ControlRecord<'a> {
    /// Reads a record of a control batch.
    ///
    /// # Errors
    /// [`ControlFault`] where Kafka throws for a marker: short key or value, negative version.
    pub fn parse(record: &Record<'a>) -> Result<Self, ControlFault> {
        let key = record.key.unwrap_or_default();
        let &[v0, v1, t0, t1] = key.first_chunk().ok_or(ControlFault::ShortKey(key.len()))?;
        let version = i16::from_be_bytes([v0, v1]);
        if version < 0 {
            return Err(ControlFault::KeyVersion(version));
        }
        let kind = ControlRecordType::from_code(i16::from_be_bytes([t0, t1]));
        let marker = match kind {
            ControlRecordType::Abort | ControlRecordType::Commit => {
                let value = record.value.unwrap_or_default();
                let &[v0, v1, e0, e1, e2, e3] =
                    value.first_chunk().ok_or(ControlFault::ShortValue(value.len()))?;
                let version = i16::from_be_bytes([v0, v1]);
                if version < 0 {
                    return Err(ControlFault::ValueVersion(version));
                }
                Some(EndTransactionMarker {
                    committed: kind == ControlRecordType::Commit,
                    coordinator_epoch: i32::from_be_bytes([e0, e1, e2, e3]),
                })
            }
            _ => None,
        };
        Ok(Self { kind, value: record.value, marker })
    }
}
