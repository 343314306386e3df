//! The command line of `redrive dump`: Kafka's flags under Kafka's names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options of `redrive dump`.
#[derive(Clone, Debug, clap::Args)]
pub struct DumpArgs {
    /// Files to dump, separated by commas
    #[arg(long, value_name = "FILE,…")]
    pub files: OsString,

    /// Print keys and values of records; implies --deep-iteration
    #[arg(long)]
    pub print_data_log: bool,

    /// Print every record, not only batches
    #[arg(long)]
    pub deep_iteration: bool,

    /// Read keys and values as those of __transaction_state; implies --print-data-log
    #[arg(long)]
    pub transaction_log_decoder: bool,

    /// Read keys and values as those of __consumer_offsets; implies --print-data-log
    #[arg(long)]
    pub offsets_decoder: bool,

    /// Check index files against their log without printing their entries
    #[arg(long)]
    pub verify_index_only: bool,

    /// Check only whether index files are sane in themselves, as a broker does
    #[arg(long)]
    pub index_sanity_check: bool,

    /// Read no more than the first N bytes of a log
    #[arg(long, value_name = "N", default_value_t = i32::MAX, value_parser = clap::value_parser!(i32).range(0..))]
    pub max_bytes: i32,

    /// Leave out everything but key and value of records; control records become empty lines
    #[arg(long)]
    pub skip_record_metadata: bool,

    /// Largest batch that is looked at through an offset index, in bytes
    #[arg(long, value_name = "N", default_value_t = 5 * 1024 * 1024,
          value_parser = clap::value_parser!(i32).range(0..))]
    pub max_message_size: i32,

    /// Not available: decoder classes are Java code
    #[arg(long, value_name = "CLASS", num_args = 0..=1, hide = true)]
    pub value_decoder_class: Option<Option<String>>,

    /// Not available: decoder classes are Java code
    #[arg(long, value_name = "CLASS", num_args = 0..=1, hide = true)]
    pub key_decoder_class: Option<Option<String>>,

    /// Form of the output
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub format: DumpFormat,
}

/// Form of the output of `redrive dump`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DumpFormat {
    /// The text of kafka-dump-log of Kafka 4.4, byte by byte
    Kafka,
    /// One line for people per batch, record or entry
    #[default]
    Text,
    /// One JSON document
    Json,
    /// One JSON object per line
    Ndjson,
}

/// How keys and values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecoderKind {
    /// As bytes.
    Plain,
    /// As those of `__transaction_state`.
    TransactionLog,
    /// As those of `__consumer_offsets`.
    Offsets,
}

impl DumpArgs {
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.files.as_bytes().split(|&byte| byte == b',')
    }

    /// The files in their order. Kafka takes an empty name for a file, too, but like Java's String.split it leaves
    /// those at the end out, unless there is nothing else but one.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let last = self.names().enumerate().filter(|(_, name)| !name.is_empty()).last();
        let count = last.map_or(usize::from(self.files.is_empty()), |(last, _)| last + 1);
        self.names().take(count).map(|name| Path::new(OsStr::from_bytes(name)))
    }

    /// The decoder; where both are asked for, Kafka's tool takes that of offsets.
    pub(super) fn decoder(&self) -> DecoderKind {
        match (self.offsets_decoder, self.transaction_log_decoder) {
            (true, _) => DecoderKind::Offsets,
            (_, true) => DecoderKind::TransactionLog,
            _ => DecoderKind::Plain,
        }
    }

    /// Whether keys and values are printed.
    pub(super) fn prints_data(&self) -> bool {
        self.print_data_log || self.decoder() != DecoderKind::Plain
    }

    /// Whether records are gone through.
    pub(super) fn is_deep(&self) -> bool {
        self.deep_iteration || self.prints_data()
    }

    /// How many bytes of a log are read; `None` is all.
    pub(super) fn log_bytes_max(&self) -> Option<u64> {
        u64::try_from(self.max_bytes).ok().filter(|&bytes| bytes != i32::MAX as u64)
    }

    /// The sentence for an option that is known and not to be had, and, in our own formats, for a file without a name.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        if self.value_decoder_class.is_some() {
            Some("--value-decoder-class names a Java class, which redrive cannot run")
        } else if self.key_decoder_class.is_some() {
            Some("--key-decoder-class names a Java class, which redrive cannot run")
        } else if self.format != DumpFormat::Kafka && self.names().any(<[u8]>::is_empty) {
            Some("--files has an empty name in its list")
        } else {
            None
        }
    }
}
