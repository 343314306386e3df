//! Log directories written by real brokers, and what Kafka's own tools make of them.
//!
//! `tests/fixtures/CORPUS.md` says where they come from and what a case holds. The archive is unpacked once per
//! version of it into `redrive-corpus/<checksum>` of the target folder. Tests only read there; a test that writes
//! works on [`Case::copy_to`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::vectors::to_hex;

/// Topic of the transaction log.
pub const TRANSACTION_STATE: &str = "__transaction_state";

/// The case whose data lies in the repository as plain files, ready for a new user's first command.
pub const PLAIN_CASE: &str = "txn-state-50";

/// File in the unpacked folder that holds the checksum of the archive it came from.
const MARKER: &str = ".archive-sha256";

/// What one run of one or two brokers left behind.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the case's folder.
    pub name: String,
    /// Log directories: that of the broker that led the transaction log, then that of the second broker if there
    /// was one. `oracle/map.jsonl` describes the first: the second broker held no transaction log.
    pub data_dirs: Vec<PathBuf>,
    /// What Kafka's tools, brokers and clients made of the data.
    pub oracle: PathBuf,
    /// `case.json`: versions, settings, how the broker was stopped, counts.
    pub info: Value,
}

/// One line of `oracle/map.jsonl`: the last value of one transactional id, as Kafka's own classes read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Transactional id.
    pub id: String,
    /// Partition of the transaction log.
    pub partition: i32,
    /// Log offset of the record.
    pub offset: i64,
    /// Version of the value, 0 or 1.
    pub value_version: i16,
    /// Producer id.
    pub producer_id: i64,
    /// Producer id before the last rotation, -1 where the value has none.
    pub previous_producer_id: i64,
    /// Producer id after the coming rotation, -1 where the value has none.
    pub next_producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Reserved for two-phase commit, -1 where the value has none.
    pub next_producer_epoch: i16,
    /// Transaction time-out in milliseconds.
    pub timeout_ms: i32,
    /// Number of the state.
    pub status: i8,
    /// Name of the state.
    pub state: String,
    /// Partitions by topic; `None` where the value has a null array.
    pub partitions: Option<BTreeMap<String, BTreeSet<i32>>>,
    /// Time of the last update, milliseconds since 1970.
    pub last_update_ms: i64,
    /// Start of the transaction, milliseconds since 1970, -1 for none.
    pub start_ms: i64,
    /// Protocol version of the client, 0 where the value has none.
    pub client_transaction_version: i16,
}

/// All cases, sorted by name.
pub fn cases() -> Vec<Case> {
    let root = root();
    let mut names: Vec<String> = fs::read_dir(root)
        .expect("the unpacked corpus is readable")
        .map(|entry| entry.expect("the unpacked corpus is readable"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("case names are ASCII"))
        .collect();
    names.sort();
    names.iter().map(|name| open_case(root, name)).collect()
}

/// The case of that name. Panics if there is none.
pub fn case(name: &str) -> Case {
    let root = root();
    assert!(root.join(name).join("case.json").is_file(), "no case {name} in the corpus");
    open_case(root, name)
}

/// The log directory that lies in the repository as plain files: the data of [`PLAIN_CASE`].
pub fn plain_data_dir() -> PathBuf {
    fixtures().join(PLAIN_CASE)
}

/// Folder of the fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Text of a file, or of the same name with `.gz` where that exists instead; `None` where neither does.
pub fn read_text(path: &Path) -> Option<String> {
    let zipped = PathBuf::from(format!("{}.gz", path.display()));
    let mut text = String::new();
    if path.is_file() {
        File::open(path)
            .and_then(|mut file| file.read_to_string(&mut text))
            .expect("an oracle file is UTF-8 text");
    } else if zipped.is_file() {
        let file = File::open(&zipped).expect("an oracle file is readable");
        flate2::read::MultiGzDecoder::new(file)
            .read_to_string(&mut text)
            .expect("an oracle file is UTF-8 text");
    } else {
        return None;
    }
    Some(text)
}

/// SHA-256 of a file, in hex.
pub fn sha256_of(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    to_hex(&Sha256::digest(&bytes))
}

impl Case {
    /// Text of a file under `oracle/`, unzipped where it is stored zipped; `None` if the case has no such file.
    pub fn oracle_text(&self, name: &str) -> Option<String> {
        read_text(&self.oracle.join(name))
    }

    /// JSON of a file under `oracle/`; `None` if the case has no such file.
    pub fn oracle_json(&self, name: &str) -> Option<Value> {
        self.oracle_text(name).map(|text| serde_json::from_str(&text).expect("an oracle file is JSON"))
    }

    /// What loading the transaction log of the first data directory must give, sorted by id in UTF-16 order,
    /// then partition. `None` for a case without a transaction log.
    pub fn map(&self) -> Option<Vec<MapEntry>> {
        let text = self.oracle_text("map.jsonl")?;
        Some(
            text.lines()
                .map(|line| map_entry(&serde_json::from_str(line).expect("a line is JSON")))
                .collect(),
        )
    }

    /// Copies the data directories into an existing folder, under their own names, for a test that writes.
    /// Returns the copies in the order of `data_dirs`. The plain case's is named `data` like the others.
    pub fn copy_to(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let names = ["data", "data-broker-2"];
        self.data_dirs
            .iter()
            .zip(names)
            .map(|(from, name)| {
                let to = folder.join(name);
                copy_dir(from, &to)?;
                Ok(to)
            })
            .collect()
    }
}

fn open_case(root: &Path, name: &str) -> Case {
    let folder = root.join(name);
    let first = if name == PLAIN_CASE { plain_data_dir() } else { folder.join("data") };
    let second = folder.join("data-broker-2");
    let info = fs::read_to_string(folder.join("case.json")).expect("a case has a case.json");
    Case {
        name: name.to_owned(),
        data_dirs: [first, second].into_iter().filter(|dir| dir.is_dir()).collect(),
        oracle: folder.join("oracle"),
        info: serde_json::from_str(&info).expect("case.json is JSON"),
    }
}

/// The numbers of a line must be there and in range: a missing member must not pass as a default.
fn map_entry(line: &Value) -> MapEntry {
    fn number<T: TryFrom<i64>>(line: &Value, member: &str) -> T {
        let number = line[member].as_i64().and_then(|number| T::try_from(number).ok());
        number.unwrap_or_else(|| panic!("{member} of {line}"))
    }
    let text =
        |member: &str| line[member].as_str().unwrap_or_else(|| panic!("{member} of {line}")).to_owned();
    let ids = |ids: &Value| -> BTreeSet<i32> {
        let ids = ids.as_array().unwrap_or_else(|| panic!("partition ids of {line}"));
        ids.iter().map(|id| number(&serde_json::json!({ "id": id }), "id")).collect()
    };
    let partitions = match &line["partitions"] {
        Value::Null => None,
        Value::Object(topics) => {
            Some(topics.iter().map(|(topic, list)| (topic.clone(), ids(list))).collect())
        }
        other => panic!("partitions are {other}"),
    };
    MapEntry {
        id: text("id"),
        partition: number(line, "partition"),
        offset: number(line, "offset"),
        value_version: number(line, "valueVersion"),
        producer_id: number(line, "producerId"),
        previous_producer_id: number(line, "previousProducerId"),
        next_producer_id: number(line, "nextProducerId"),
        producer_epoch: number(line, "producerEpoch"),
        next_producer_epoch: number(line, "nextProducerEpoch"),
        timeout_ms: number(line, "timeoutMs"),
        status: number(line, "status"),
        state: text("state"),
        partitions,
        last_update_ms: number(line, "lastUpdateMs"),
        start_ms: number(line, "startMs"),
        client_transaction_version: number(line, "clientTransactionVersion"),
    }
}

/// The unpacked archive. Test binaries start at once, in threads and processes: each unpacks to a name of its
/// own, and the first to rename its folder into place wins.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let archive = fixtures().join("corpus.tar.zst");
        let checksum = sha256_of(&archive);
        let parent = target_dir().join("redrive-corpus");
        let place = parent.join(&checksum[..16]);
        let is_whole = || fs::read_to_string(place.join(MARKER)).is_ok_and(|marker| marker == checksum);
        if !is_whole() {
            let temporary = parent.join(format!("{}.{}", &checksum[..16], process::id()));
            unpack(&archive, &temporary, &checksum).expect("the corpus archive can be unpacked");
            if fs::rename(&temporary, &place).is_err() {
                // Lost the race; an unfinished folder under the final name cannot come from this code.
                fs::remove_dir_all(&temporary).expect("the folder just unpacked can be removed");
                assert!(is_whole(), "{} is no unpacked corpus: remove it", place.display());
            }
        }
        // As the engine names it, so that paths can be compared.
        place.canonicalize().expect("the unpacked corpus")
    })
}

fn unpack(archive: &Path, to: &Path, checksum: &str) -> io::Result<()> {
    if to.exists() {
        // Of an earlier process with this number that was killed while it unpacked.
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    let stream = zstd::stream::read::Decoder::new(File::open(archive)?)?;
    tar::Archive::new(stream).unpack(to)?;
    fs::write(to.join(MARKER), checksum)
}

/// Cargo tells a library neither where its target folder is nor that one was given on the command line; the
/// variable and the usual place are enough, since any place outside the sources would do.
fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
    }
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
