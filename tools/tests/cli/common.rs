//! Running the built command, and small logs for it to run on.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use redrive_tests::logs::{
    BatchSpec, SegmentFile, TopicPartitions, TransactionValue, encode_key, write_partition,
};
use serde_json::Value;

/// Nothing here takes a second; what takes a minute hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The command with an environment that decides nothing by chance.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.env_remove("NO_COLOR").env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    command
}

/// What a finished run left.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("output is UTF-8")
    }

    /// The one JSON document of the output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e} in {:?}", self.text()))
    }

    /// A JSON object a line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// The same run, after a look at its exit status.
    pub(crate) fn expect(self, code: i32) -> Self {
        let head: String = String::from_utf8_lossy(&self.stdout).chars().take(500).collect();
        assert_eq!(self.code, Some(code), "stderr {:?}, stdout {head:?}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// Runs the command to its end.
pub(crate) fn redrive<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    finish(command().args(args))
}

/// Runs a prepared command to its end, and fails if it hangs.
pub(crate) fn finish(command: &mut Command) -> Run {
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started");
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (done, is_done) = std::sync::mpsc::channel();
    let watch = std::thread::spawn(move || {
        let hangs = is_done.recv_timeout(HANGS_AFTER).is_err();
        if hangs {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        hangs
    });
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the command can be waited for");
    let _ = done.send(());
    assert!(!watch.join().expect("the watch ends"), "{command:?} hangs");
    Run { code: status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
}

/// Waits until a condition holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANGS_AFTER, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has a handler for SIGINT.
pub(crate) fn handles_interrupt(pid: u32) -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & SIGINT_BIT != 0)
    })
}

/// A value in a state, with the partitions orders-0 and orders-3 if it holds any.
pub(crate) fn value(status: i8) -> TransactionValue {
    let partitions = (status != 0).then(|| {
        if status >= 4 {
            return Vec::new();
        }
        vec![TopicPartitions { topic: b"orders".to_vec(), partition_ids: vec![3, 0], tags: Vec::new() }]
    });
    TransactionValue { status, partitions, ..TransactionValue::default() }
}

/// Batches of one record each from offset 0 on; a record without a value is a tombstone.
pub(crate) fn batches(records: &[(&[u8], Option<TransactionValue>)]) -> Vec<BatchSpec> {
    let batch = |(offset, (id, value)): (usize, &(&[u8], Option<TransactionValue>))| {
        BatchSpec::single(
            i64::try_from(offset).expect("a small log"),
            encode_key(0, id),
            value.as_ref().map(TransactionValue::encode),
        )
    };
    records.iter().enumerate().map(batch).collect()
}

/// Writes a partition of one segment under a root, and returns the path of the segment.
pub(crate) fn write_log(root: &Path, partition: i32, batches: &[BatchSpec]) -> PathBuf {
    let folder = root.join(format!("__transaction_state-{partition}"));
    let bytes = batches.iter().flat_map(BatchSpec::encode).collect();
    let segment = SegmentFile { base_offset: 0, bytes };
    write_partition(&folder, std::slice::from_ref(&segment)).expect("the folder can be written");
    folder.join(segment.file_name())
}

/// Every file below a folder with length and time of the last change.
pub(crate) fn listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be listed") {
            let entry = entry.expect("a folder can be listed");
            let metadata = entry.metadata().expect("a file can be looked at");
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            found.push((entry.path(), metadata.len(), metadata.modified().expect("a time of change")));
        }
    }
    found.sort();
    found
}
