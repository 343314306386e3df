//! A real broker on the same log.
//!
//! A broker makes its folders and the topic, and ends. `redrive generate --into` puts the scenario's log into them. Then
//! the broker starts again and loads, and its own lines tell how long that took:
//!
//! ```text
//! Finished loading 2500125 transaction metadata from __transaction_state-1 in 9342 milliseconds,
//!     of which 5120 milliseconds was spent in the scheduler.
//! ```
//!
//! One thread of a broker loads all partitions, one after the other; while it is at one, the others wait "in the
//! scheduler". So the sum of the times without that wait is what the thread worked.
//!
//! Two figures come of each start. The first load is that of a JVM that has just begun to compile, as after a crash. For
//! the second the broker is stopped in its tracks until its controller, which sits in the same process, must take it for
//! dead; when it wakes up it loses its partitions, is elected again and loads once more, with warm code and the heap that
//! it has.
//!
//! It has more heap than by default, since ten million ids do not fit into 1 GB, and the collector and the compilers that
//! Kafka's own start script gives it.

use std::fs;
use std::net::TcpListener;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrive_tools::generate::generate_into;

use crate::answer::Answer;
use crate::data::{self, Made};
use crate::error::BenchError;
use crate::job::{Job, Once, Work};
use crate::page_cache;
use crate::result::{Loader, Memory, Row, RowKey, Sample};
use crate::run::Settings;
use crate::scenario::{Cache, IdentityName, IoName};

const TOPIC: &str = "__transaction_state";
const SERVING: &str = "Kafka Server started";
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(300);
const LOAD_LIMIT: Duration = Duration::from_secs(1200);
/// What the controller says when it takes a broker for dead.
const FENCING: &str = "because its session has timed out";
/// Longer than the session that [`QUIET`] grants.
const UNCONSCIOUS: Duration = Duration::from_secs(8);
/// Time in which the controller must have noticed.
const NOTICED: Duration = Duration::from_secs(3);
/// Tries to be taken for dead: often the sign of life after waking up comes before the look at the session's age.
const TRIES: usize = 20;
/// What Kafka's start script asks of the JVM, instead of what the suite's script asks for short lives.
const JVM: &str = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
                   -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent";
/// Nothing may change the log: no expiry, no cleaning, no aborting.
const QUIET: [&str; 6] = [
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=86400000",
    "transaction.remove.expired.transaction.cleanup.interval.ms=86400000",
    "transactional.id.expiration.ms=2147483647",
    "log.cleaner.enable=false",
    "log.retention.ms=-1",
    "broker.session.timeout.ms=6000",
];

/// Measures the first load of a broker of this version, and that after another election, as often as the settings say.
/// The log that it gets must have this answer, if there is one.
///
/// # Errors
/// [`BenchError::Broker`] where no broker can be run, or it loads another number of ids than were written;
/// [`BenchError::Generate`], [`BenchError::Io`], [`BenchError::Load`].
pub fn rows(
    version: &str,
    made: &Made,
    answer: Option<&Answer>,
    settings: &Settings,
    says: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let jars = jars(version, &settings.data)?;
    let folder =
        tempfile::tempdir_in(&settings.data).map_err(BenchError::io("make a folder in", &settings.data))?;
    let partitions = made.data.partitions.get();
    let mut broker = Broker::start(&jars, folder.path(), partitions)?;
    broker.create_topic(&jars, partitions)?;
    broker.stop()?;

    let root = folder.path().join("data");
    let mut rows = [Memory::Fresh, Memory::Reused].map(|memory| Row {
        key: RowKey {
            loader: Loader::Broker { version: version.to_owned(), memory },
            cache: Cache::Warm,
            threads: NonZero::<usize>::MIN,
        },
        samples: Vec::new(),
        answer: None,
    });
    for round in 0..settings.broker_starts.get() {
        // The last start has appended to it.
        generate_into(&data::spec(&made.data, made.now_ms), &root, &mut ())?;
        check_answer(&root, answer, settings)?;
        let files = data::segments(&root)?;
        let invalid = page_cache::bring_and_check(&files, Cache::Warm)?.err();
        let mut broker = Broker::start(&jars, folder.path(), partitions)?;
        for (nth, row) in rows.iter_mut().enumerate() {
            if nth > 0 {
                broker.lose_consciousness()?;
            }
            let loads = broker.wait_for("it to load", LOAD_LIMIT, |log| {
                let loads = nth_loads(&loads(log), nth);
                (loads.len() == partitions as usize).then_some(loads)
            })?;
            let ids: u64 = loads.iter().map(|load| load.ids).sum();
            if ids != made.ids {
                let reason = format!("it found {ids} ids, but {} were written", made.ids);
                return Err(BenchError::Broker(reason));
            }
            let work_ms: u64 = loads.iter().map(|load| load.ms.saturating_sub(load.scheduler_ms)).sum();
            let seconds = Duration::from_millis(work_ms).as_secs_f64();
            says(&format!("  {}: {seconds:.3} s", row.key));
            let once = Once { seconds, bytes: made.bytes, ids, records: made.records, ..Once::default() };
            row.samples.push(Sample { round, invalid: invalid.clone(), once });
        }
        broker.stop()?;
    }
    Ok(rows.into())
}

/// Whether what the broker is about to load is what the others have loaded.
fn check_answer(root: &Path, answer: Option<&Answer>, settings: &Settings) -> Result<(), BenchError> {
    let one = NonZero::<usize>::MIN;
    let work = Work::Redrive { threads: one, identity: IdentityName::Exact, io: IoName::Auto, loads: 1 };
    let found = Job { root: root.to_path_buf(), work, answer: true }.run_in(&settings.program)?.answer;
    match (answer, found) {
        (Some(answer), Some(found)) if *answer != found => {
            Err(BenchError::Broker(format!("its log has another answer: {found:?} instead of {answer:?}")))
        }
        _ => Ok(()),
    }
}

/// Kafka's jars, fetched where they are missing.
fn jars(version: &str, cache: &Path) -> Result<PathBuf, BenchError> {
    let jars = cache.join(format!("broker-jars-{version}"));
    let script = scripts().join("fetch-jars.sh");
    let output = Command::new("bash").arg(&script).arg(&jars).env("KAFKA_VERSION", version).output();
    let output = output.map_err(BenchError::io("start", &script))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::Broker(format!("its jars could not be fetched: {said}")));
    }
    Ok(jars)
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/broker")
}

/// One line about a load.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Load {
    partition: String,
    ids: u64,
    ms: u64,
    scheduler_ms: u64,
}

/// The finished loads in a broker's log.
fn loads(log: &str) -> Vec<Load> {
    let parse = |line: &str| {
        let (_, rest) = line.split_once("Finished loading ")?;
        let (ids, rest) = rest.split_once(" transaction metadata from ")?;
        let (partition, rest) = rest.split_once(" in ")?;
        let (ms, rest) = rest.split_once(" milliseconds, of which ")?;
        let (scheduler_ms, _) = rest.split_once(" milliseconds was spent in the scheduler")?;
        let (ids, ms) = (ids.parse().ok()?, ms.parse().ok()?);
        Some(Load { partition: partition.to_owned(), ids, ms, scheduler_ms: scheduler_ms.parse().ok()? })
    };
    log.lines().filter_map(parse).collect()
}

/// Of each partition the load with this number, from 0, if it has one.
fn nth_loads(loads: &[Load], nth: usize) -> Vec<Load> {
    let earlier = |at: usize| loads[..at].iter().filter(|load| load.partition == loads[at].partition).count();
    (0..loads.len()).filter(|&at| earlier(at) == nth).map(|at| loads[at].clone()).collect()
}

/// A running broker; killed when it goes out of scope.
struct Broker {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Broker {
    /// Starts one and waits until it serves.
    fn start(jars: &Path, folder: &Path, partitions: u32) -> Result<Self, BenchError> {
        let port = free_port().ok_or_else(|| BenchError::Broker("there are no two free ports".to_owned()))?;
        let log = folder.join("broker.log");
        // Lines of the last start would be taken for those of this one.
        fs::write(&log, "").map_err(BenchError::io("write", &log))?;
        let script = scripts().join("start.sh");
        let child = Command::new("bash")
            .arg(&script)
            .args([jars.as_os_str(), folder.as_os_str()])
            .arg(port.to_string())
            .args(QUIET)
            .arg(format!("transaction.state.log.num.partitions={partitions}"))
            .env("_JAVA_OPTIONS", JVM)
            .env("BROKER_HEAP", format!("{}m", heap_mebibytes()))
            .stdin(Stdio::null())
            .spawn()
            .map_err(BenchError::io("start", &script))?;
        let mut broker = Self { child, folder: folder.to_path_buf(), port };
        broker.wait_for("it to serve", START_LIMIT, |log| log.contains(SERVING).then_some(()))?;
        Ok(broker)
    }

    /// Asking for an id that nobody has makes the topic, and writes nothing into it.
    fn create_topic(&mut self, jars: &Path, partitions: u32) -> Result<(), BenchError> {
        let root = self.folder.join("data");
        let is_there =
            |partition: u32| root.join(format!("{TOPIC}-{partition}")).join("partition.metadata").exists();
        let class_path = format!("{}/*", jars.display());
        let address = format!("127.0.0.1:{}", self.port);
        // The answer is an error either way; what counts is the folders.
        Command::new("java")
            .args(["-cp", &class_path, "org.apache.kafka.tools.TransactionsCommand"])
            .args(["--bootstrap-server", &address, "describe", "--transactional-id", "nobody"])
            .stdin(Stdio::null())
            .output()
            .map_err(BenchError::io("start", Path::new("java")))?;
        self.wait_for("its topic", START_LIMIT, |_| (0..partitions).all(is_there).then_some(()))
    }

    /// Asks it to end, and waits until it has.
    fn stop(&mut self) -> Result<(), BenchError> {
        self.signal(Signal::SIGTERM)?;
        let started = Instant::now();
        while self.ended()?.is_none() {
            if started.elapsed() > STOP_LIMIT {
                return Err(BenchError::Broker("it does not end".to_owned()));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Stops it in its tracks for so long that its controller takes it for dead.
    fn lose_consciousness(&mut self) -> Result<(), BenchError> {
        for _ in 0..TRIES {
            self.signal(Signal::SIGSTOP)?;
            thread::sleep(UNCONSCIOUS);
            self.signal(Signal::SIGCONT)?;
            thread::sleep(NOTICED);
            if self.wait_for("its log", NOTICED, |log| Some(log.contains(FENCING)))? {
                return Ok(());
            }
        }
        Err(BenchError::Broker(format!("it was not taken for dead in {TRIES} tries")))
    }

    fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        let pid = i32::try_from(self.child.id()).map_err(|e| BenchError::Broker(e.to_string()))?;
        kill(Pid::from_raw(pid), signal).map_err(|e| BenchError::Broker(format!("{signal}: {e}")))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.child.try_wait().map_err(|e| BenchError::Broker(e.to_string()))
    }

    /// Looks at its log until there is what is looked for.
    fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        look: impl Fn(&str) -> Option<T>,
    ) -> Result<T, BenchError> {
        let path = self.folder.join("broker.log");
        let started = Instant::now();
        loop {
            let log = fs::read(&path).map_err(BenchError::io("read", &path))?;
            let log = String::from_utf8_lossy(&log);
            if let Some(found) = look(&log) {
                return Ok(found);
            }
            let ended = self.ended()?;
            if ended.is_some() || started.elapsed() > limit {
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                let reason = format!("waited for {what}; it ended: {ended:?}; its last lines:\n{last}");
                return Err(BenchError::Broker(reason));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Both fail only for one that has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Half of the machine's memory: the other half holds the log.
fn heap_mebibytes() -> u64 {
    crate::facts::memory_bytes() / 2 / (1 << 20)
}

/// A port such that it and the next one are free, below the ephemeral range.
fn free_port() -> Option<u16> {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (21_000..32_000).step_by(2).find(|&port| free(port) && free(port + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as broker 4.4.0 writes them.
    #[test]
    fn lines_about_loads_are_read() {
        let log = "\
[2026-11-30T20:15:02,119] INFO Loading transaction metadata from __transaction_state-1 at epoch 3 (x)
[2026-11-30T20:15:11,461] INFO [Transaction State Manager 1]: Finished loading 2500125 transaction metadata from \
__transaction_state-1 in 9342 milliseconds, of which 5120 milliseconds was spent in the scheduler. (x)
[2026-11-30T20:15:11,461] INFO Completed loading transaction metadata from __transaction_state-1 (x)
";
        let load = |partition: &str, ids| Load {
            partition: partition.to_owned(),
            ids,
            ms: 9342,
            scheduler_ms: 5120,
        };
        assert_eq!(loads(log), [load("__transaction_state-1", 2_500_125)]);

        let loads = [load("a", 1), load("b", 2), load("a", 3), load("a", 4)];
        assert_eq!(nth_loads(&loads, 0), [load("a", 1), load("b", 2)]);
        assert_eq!(nth_loads(&loads, 1), [load("a", 3)]);
    }
}
