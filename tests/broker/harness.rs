//! A real broker as a child process, and the Java drivers that make it write.
//!
//! Every wait is bounded, and a [`Broker`] that goes out of scope, by a panic too, is killed and waited for.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Oldest Java that the broker runs on.
const JAVA_VERSION_MIN: u32 = 17;
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const DRIVER_LIMIT: Duration = Duration::from_secs(150);

/// Nothing but the driver may change the state topic while it is being compared: no cleaning, no expiry, no aborting
/// of late transactions. The partition count is the driver's, too.
const QUIET: [&str; 7] = [
    "transaction.state.log.num.partitions=7",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=86400000",
    "transaction.remove.expired.transaction.cleanup.interval.ms=86400000",
    "transactional.id.expiration.ms=2147483647",
    "log.cleaner.min.cleanable.ratio=1.0",
    "log.retention.ms=-1",
    // A crashed broker may register again only when its former session is over: by default that takes nine seconds.
    "broker.session.timeout.ms=2000",
];

/// One broker at a time: two of them on a small machine time each other out.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Jars and drivers, made ready once, or why they cannot be.
static KAFKA: LazyLock<Result<Kafka, String>> = LazyLock::new(Kafka::prepare);

/// One broker test: Kafka at hand, a folder of its own, no other broker beside it.
pub(crate) struct Run {
    pub(crate) kafka: &'static Kafka,
    pub(crate) folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Run {
    /// `None` where this machine cannot run a broker and nobody demands it.
    pub(crate) fn begin() -> Option<Self> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        match &*KAFKA {
            Ok(kafka) => {
                let folder = tempfile::tempdir().expect("a temporary folder");
                Some(Self { kafka, folder, _alone: alone })
            }
            Err(reason) => {
                assert!(!required("broker"), "the broker suite is required here, and cannot run: {reason}");
                say(&format!("skipped, no broker was run: {reason}"));
                None
            }
        }
    }
}

/// Whether the environment demands that a suite runs: `REDRIVE_REQUIRE` is a list of suites, separated by commas.
fn required(suite: &str) -> bool {
    std::env::var("REDRIVE_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name.trim() == suite))
}

/// Tells the person who runs the tests, past the capture of a passing test's output.
pub(crate) fn say(message: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "broker suite: {message}");
}

/// Which program asks the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `TransactionDriver.java`
    Transactions,
    /// `StoreDriver.java`
    Store,
}

/// What a broker run needs: Kafka's jars and the compiled drivers.
pub(crate) struct Kafka {
    jars: PathBuf,
    driver: PathBuf,
}

impl Kafka {
    /// Fetches the jars where they are missing and compiles the driver.
    ///
    /// # Errors
    /// A sentence that says what this machine lacks. A driver that does not compile is a panic: that is our fault.
    pub(crate) fn prepare() -> Result<Self, String> {
        let java =
            Command::new("java").arg("-version").output().map_err(|_| "there is no `java` on the path")?;
        let banner = String::from_utf8_lossy(&java.stderr).into_owned();
        if java_version(&banner).is_none_or(|version| version < JAVA_VERSION_MIN) {
            return Err(format!(
                "Java {JAVA_VERSION_MIN} or newer is needed, `java -version` says: {banner}"
            ));
        }
        if Command::new("javac").arg("-version").output().is_err() {
            return Err("there is no `javac` on the path (a JDK is needed, not only a JRE)".to_owned());
        }

        // Cargo's own target directory: the jars outlive the test but not a `cargo clean`.
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = scratch.parent().unwrap_or(scratch);
        let jars = target.join("broker-jars-4.4.0");
        let fetch = Command::new("bash").arg(folder().join("fetch-jars.sh")).arg(&jars).output();
        let fetch = fetch.map_err(|_| "there is no `bash` on the path")?;
        if !fetch.status.success() {
            let output = [fetch.stdout, fetch.stderr].concat();
            return Err(format!(
                "Maven could not fetch the broker's jars: {}",
                String::from_utf8_lossy(&output).trim()
            ));
        }

        let driver = scratch.join("broker-driver");
        let sources = ["TransactionDriver.java", "StoreDriver.java", "HistogramReader.java"];
        let sources = sources.map(|name| folder().join(name));
        let compile = Command::new("javac")
            .args(["-encoding", "UTF-8", "-cp", &format!("{}/*", jars.display()), "-d"])
            .arg(&driver)
            .args(sources)
            .output()
            .expect("javac answered a moment ago");
        assert!(compile.status.success(), "the driver: {}", String::from_utf8_lossy(&compile.stderr));
        Ok(Self { jars, driver })
    }

    /// Starts a broker on `dir` and waits until it serves. `format` goes to the storage tool at the first start.
    pub(crate) fn start(&self, dir: &Path, format: &str) -> Broker {
        self.start_with(dir, format, &[])
    }

    /// The same with settings on top.
    pub(crate) fn start_with(&self, dir: &Path, format: &str, settings: &[&str]) -> Broker {
        let port = free_port();
        fs::create_dir_all(dir).expect("the broker's folder");
        // The log of an earlier start would say at once that the broker serves.
        let log = dir.join("broker.log");
        File::create(&log).expect("the broker's log");
        let child = Command::new("bash")
            .arg(folder().join("start.sh"))
            .args([self.jars.as_os_str(), dir.as_os_str(), OsStr::new(&port.to_string())])
            .args(QUIET)
            .args(settings)
            .env("FORMAT_FLAGS", format)
            .stdin(Stdio::null())
            .spawn()
            .expect("bash starts");
        let mut broker = Broker { child, dir: dir.to_owned(), port };
        wait_for("the broker to serve", START_LIMIT, || {
            let ended = broker.child.try_wait().expect("the broker is our child");
            assert!(ended.is_none(), "the broker gave up: {ended:?}");
            let text = fs::read(&log).expect("the broker's log");
            contains(&text, b"Kafka Server started").then_some(())
        });
        broker
    }

    /// Runs HdrHistogram's own reader over an interval log; what it prints, see `HistogramReader.java`.
    pub(crate) fn read_histograms(&self, log: &Path) -> String {
        let class_path = format!("{}:{}/*", self.driver.display(), self.jars.display());
        let output = Command::new("java")
            .args(["-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", &class_path, "HistogramReader"])
            .arg(log)
            .output()
            .expect("java answered a moment ago");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("ASCII")
    }

    /// Runs Kafka's DumpLogSegments over files with these flags; what it prints on both streams.
    pub(crate) fn dump_log(&self, flags: &[&str], files: &[PathBuf]) -> String {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let output = Command::new("java")
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
            .arg(format!("{}/*", self.jars.display()))
            .arg("org.apache.kafka.tools.DumpLogSegments")
            .args(flags)
            .args(["--files", &files.join(",")])
            .output()
            .expect("java answered a moment ago");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        text
    }

    /// Starts a driver. `out` appears when it has done what `mode` says.
    fn spawn_driver(
        &self,
        driver: Driver,
        broker: &Broker,
        mode: &str,
        out: &Path,
        more: &[&OsStr],
    ) -> Process {
        let class = match driver {
            Driver::Transactions => "TransactionDriver",
            Driver::Store => "StoreDriver",
        };
        let class_path = format!("{}:{}/*", self.driver.display(), self.jars.display());
        let child = Command::new("java")
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", &class_path, class])
            .arg(format!("127.0.0.1:{}", broker.port))
            .arg(mode)
            .arg(out)
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .expect("java answered a moment ago");
        Process(child)
    }

    /// Runs the driver of transactions to its end and returns what it wrote.
    pub(crate) fn drive(&self, broker: &Broker, mode: &str) -> String {
        self.drive_with(broker, mode, &[])
    }

    /// The same with arguments on top.
    pub(crate) fn drive_with(&self, broker: &Broker, mode: &str, more: &[&OsStr]) -> String {
        self.drive_by(Driver::Transactions, broker, mode, more)
    }

    /// Runs a driver to its end and returns what it wrote.
    pub(crate) fn drive_by(&self, driver: Driver, broker: &Broker, mode: &str, more: &[&OsStr]) -> String {
        let out = broker.dir.join(format!("{mode}.answer"));
        // There is one already where the driver ran in this folder before.
        let _ = fs::remove_file(&out);
        let mut driver = self.spawn_driver(driver, broker, mode, &out, more);
        let status = wait_for("the driver to end", DRIVER_LIMIT, || driver.0.try_wait().expect("our child"));
        assert!(status.success(), "the driver failed: {status}");
        fs::read_to_string(out).expect("the driver's answer")
    }

    /// Kills the broker in the middle of many transactions.
    pub(crate) fn crash_in_a_storm(&self, broker: Broker) {
        self.crash_in_a_storm_of(Driver::Transactions, broker, &[]);
    }

    /// The same in the middle of what a driver makes of `more`.
    pub(crate) fn crash_in_a_storm_of(&self, driver: Driver, broker: Broker, more: &[&OsStr]) {
        let warm = broker.dir.join("storm.warm");
        let mut driver = self.spawn_driver(driver, &broker, "storm", &warm, more);
        wait_for("the storm to rise", DRIVER_LIMIT, || {
            let ended = driver.0.try_wait().expect("our child");
            assert!(ended.is_none(), "the storm ended by itself: {ended:?}");
            warm.exists().then_some(())
        });
        broker.crash();
    }
}

/// A running broker.
pub(crate) struct Broker {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl Broker {
    /// What it has logged since its start.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    /// Where its partition directories lie.
    pub(crate) fn log_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Waits until its log has so many lines with a text, and returns them.
    pub(crate) fn await_lines(&self, text: &str, count: usize) -> Vec<String> {
        wait_for(text, DRIVER_LIMIT, || {
            let log = fs::read(self.dir.join("broker.log")).expect("the broker's log");
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// Asks it to end and waits until it has: logs flushed, the clean-shutdown file written.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("bash").args(["-c", "kill -TERM \"$1\"", "bash", &pid]).status();
        assert!(asked.is_ok_and(|status| status.success()), "the broker had ended before it was asked to");
        wait_for("the broker to end", STOP_LIMIT, || self.child.try_wait().expect("our child"));
    }

    /// Kills it on the spot, as `kill -9` does.
    pub(crate) fn crash(self) {
        drop(self);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        end(&mut self.child);
        if thread::panicking() {
            let log = fs::read(self.dir.join("broker.log")).unwrap_or_default();
            let tail = &log[log.len().saturating_sub(4000)..];
            eprintln!("the end of the broker's log:\n{}", String::from_utf8_lossy(tail));
        }
    }
}

/// A child that does not outlive its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn end(child: &mut Child) {
    // Both fail only for a child that has ended and been waited for.
    let _ = child.kill();
    let _ = child.wait();
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("broker")
}

/// A port such that it and the next one are free, below the ephemeral range.
fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const PAIRS: u32 = 6_000;
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Runs on one machine begin at different places, so that they seldom race for the same pair.
    let start = std::process::id();
    (0..PAIRS)
        .filter_map(|i| u16::try_from(FIRST + 2 * ((start + i) % PAIRS)).ok())
        .find(|&port| free(port) && free(port + 1))
        .expect("a pair of free ports")
}

/// Major version in the first line of `java -version`: `openjdk version "17.0.15" 2025-04-15`.
fn java_version(banner: &str) -> Option<u32> {
    let quoted = banner.split('"').nth(1)?;
    quoted.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Polls until there is an answer; panics at the limit.
fn wait_for<T>(what: &str, limit: Duration, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = poll() {
            return answer;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
