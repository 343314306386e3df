//! The machine, the build and the moment of a measurement.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// CPU features that some loop here asks for.
const FLAGS: [&str; 10] =
    ["sse4_2", "pclmulqdq", "avx2", "avx512f", "avx512bw", "avx512vl", "vpclmulqdq", "crc32", "pmull", "sve"];

/// What a figure depends on besides the program. What could not be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Model of the CPU.
    pub cpu: String,
    /// Its features, as far as anything here uses them.
    pub cpu_flags: Vec<String>,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// File system of the data, and what it is mounted from.
    pub file_system: String,
    /// `transparent_hugepage/enabled`.
    pub transparent_huge_pages: String,
    /// Average load before the run.
    pub load_before: String,
    /// Commit of the repository, with `+` if files differ from it.
    pub commit: String,
    /// Version of the compiler on the path.
    pub rustc: String,
    /// `release`, or `debug` with assertions.
    pub build: String,
}

impl Facts {
    /// Of this machine, for data in this folder.
    pub fn here(data: &Path) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| -> String {
            let line = cpu.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let flags = [field("flags"), field("Features")].join(" ");
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            cpu: field("model name"),
            cpu_flags: flags
                .split_whitespace()
                .filter(|flag| FLAGS.contains(flag))
                .map(str::to_owned)
                .collect(),
            processors: thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_bytes: memory_bytes(),
            kernel: said("uname", &["-sr"]),
            file_system: said("df", &["--output=fstype,source", &data.to_string_lossy()])
                .lines()
                .nth(1)
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" on "),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            load_before: read("/proc/loadavg"),
            commit: commit(),
            rustc: said("rustc", &["--version"]),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        }
    }
}

/// Memory of the machine, bytes.
pub(crate) fn memory_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn commit() -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let head = said("git", &["-C", here, "rev-parse", "HEAD"]);
    let differs = !said("git", &["-C", here, "status", "--porcelain"]).is_empty();
    if differs { head + "+" } else { head }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_processor_memory_and_a_kernel() {
        let facts = Facts::here(Path::new("."));
        assert!(facts.processors > 0 && facts.memory_bytes > 1 << 28, "{facts:?}");
        assert!(facts.kernel.starts_with("Linux ") && facts.file_system.contains(" on "), "{facts:?}");
    }
}
