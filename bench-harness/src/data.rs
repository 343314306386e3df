//! Log directories of scenarios, made once and kept.
//!
//! ```text
//! DATA/<writer>-<hash of what was asked for>/logs/       the log directory
//!                                           made.json    what was asked for, and when
//! ```

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redrive_tools::generate::{Spec, Volume, generate};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::BenchError;
use crate::scenario::Data;

/// Oldest data that are used again, in ms: a broker expires ids by their time stamps.
const AGE_MAX_MS: i64 = 14 * 86_400_000;

/// A log directory, and what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// What was asked for.
    pub data: Data,
    /// Moment at which the log ends, ms since 1970.
    pub now_ms: i64,
    /// Version of the generator's package.
    pub generator: String,
    /// Ids that a load must find.
    pub ids: u64,
    /// Records, tombstones included.
    pub records: u64,
    /// Bytes of the segments.
    pub bytes: u64,
}

/// The parameters of `redrive generate` for this.
pub fn spec(data: &Data, now_ms: i64) -> Spec {
    let mut spec = Spec::new(data.writer.0, data.seed, now_ms);
    spec.volume = Volume::Ids(data.ids);
    spec.transactions = data.transactions;
    spec.partitions = data.partitions;
    spec.id_shape = data.id_shape.0;
    spec.threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    spec
}

/// The log directory for this below `cache`, and what it holds. Made if it is not there, or is so old that a broker
/// would soon expire its ids.
///
/// # Errors
/// [`BenchError::Io`], [`BenchError::Generate`], [`BenchError::Content`].
pub fn prepare(data: &Data, cache: &Path) -> Result<(PathBuf, Made), BenchError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let folder = cache.join(folder_name(data)?);
    let (logs, made_path) = (folder.join("logs"), folder.join("made.json"));
    if let Ok(text) = fs::read(&made_path) {
        let made: Made = serde_json::from_slice(&text)
            .map_err(BenchError::content(made_path.to_string_lossy().into_owned()))?;
        let is_young = (0..AGE_MAX_MS).contains(&now_ms.saturating_sub(made.now_ms));
        if made.data == *data && made.generator == env!("CARGO_PKG_VERSION") && is_young {
            return Ok((logs, made));
        }
    }
    // Whatever is there is too old, or half of something.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(BenchError::io("remove", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    let summary = generate(&spec(data, now_ms), &logs, &mut ())?;
    let sum = |count: fn(&redrive_tools::generate::PartitionSummary) -> u64| {
        summary.partitions.iter().map(count).sum::<u64>()
    };
    let made = Made {
        data: data.clone(),
        now_ms,
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        ids: sum(|partition| partition.ids),
        records: sum(|partition| partition.records),
        bytes: sum(|partition| partition.bytes),
    };
    let text = serde_json::to_vec_pretty(&made).map_err(BenchError::content("made.json"))?;
    fs::write(&made_path, text).map_err(BenchError::io("write", &made_path))?;
    Ok((logs, made))
}

fn folder_name(data: &Data) -> Result<String, BenchError> {
    let text = serde_json::to_string(data).map_err(BenchError::content("the scenario's data"))?;
    let hash = hex(&Sha256::digest(text));
    Ok(format!("{}-{}", data.writer.0.name(), &hash[..12]))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The segments below a log directory, in the order of folders and base offsets.
///
/// # Errors
/// [`BenchError::Io`].
pub fn segments(root: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, BenchError> {
        let entries = fs::read_dir(folder).map_err(BenchError::io("list", folder))?;
        let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
        let mut paths = paths.map_err(BenchError::io("list", folder))?;
        paths.sort();
        Ok(paths)
    };
    let mut found = Vec::new();
    for folder in list(root)? {
        let is_ours =
            folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("__transaction_state-"));
        if is_ours {
            let files = list(&folder)?;
            found.extend(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "log")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn data_are_made_once_for_each_wish() {
        let cache = tempfile::tempdir().expect("a folder");
        let mut data = Scenario::find("load/smoke").expect("shipped").data;
        data.ids = 300;
        let (logs, made) = prepare(&data, cache.path()).expect("made");
        assert!(made.ids > 250 && made.records > 1000, "{made:?}");
        let bytes: u64 = segments(&logs)
            .expect("a list")
            .iter()
            .map(|path| fs::metadata(path).expect("a file").len())
            .sum();
        assert_eq!(bytes, made.bytes);
        let mark = logs.join("mark");
        fs::write(&mark, "").expect("a mark");
        assert_eq!(prepare(&data, cache.path()).expect("there"), (logs.clone(), made));
        assert!(mark.exists(), "it was made again");
        data.seed += 1;
        assert_ne!(prepare(&data, cache.path()).expect("made").0, logs);
    }
}
