//! From what Criterion measured to a table: per benchmark the minimum, median and maximum of a sample, raw samples
//! as CSV, and the machine they were taken on.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// One benchmark's samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `group/function`.
    pub name: String,
    /// Nanoseconds per iteration, one for each sample, in the order taken.
    pub nanoseconds: Vec<f64>,
    /// Bytes or elements per iteration, if the benchmark says so.
    pub per_iteration: Option<(u64, &'static str)>,
}

impl Measured {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.nanoseconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Smallest, median and largest sample.
    pub fn min_median_max(&self) -> Option<(f64, f64, f64)> {
        let sorted = self.sorted();
        Some((*sorted.first()?, sorted[sorted.len() / 2], *sorted.last()?))
    }
}

/// Every benchmark below Criterion's folder, by name.
///
/// # Errors
/// What reading the files gives, and `InvalidData` for files that Criterion did not write.
pub fn read(criterion: &Path) -> io::Result<Vec<Measured>> {
    let mut found = Vec::new();
    let mut folders = vec![criterion.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let sample = folder.join("new/sample.json");
        if sample.is_file() {
            found.push(read_one(&folder)?);
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn json(path: &Path) -> io::Result<Value> {
    serde_json::from_slice(&fs::read(path)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn read_one(folder: &Path) -> io::Result<Measured> {
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let sample = json(&folder.join("new/sample.json"))?;
    let about = json(&folder.join("new/benchmark.json"))?;
    let per_iteration = [("Bytes", "bytes"), ("Elements", "elements")]
        .into_iter()
        .find_map(|(key, unit)| Some((about["throughput"][key].as_u64()?, unit)));
    let nanoseconds = numbers(&sample["times"])
        .into_iter()
        .zip(numbers(&sample["iters"]))
        .map(|(time, count)| time / count);
    let name = about["full_id"].as_str().unwrap_or_default().to_owned();
    Ok(Measured { name, nanoseconds: nanoseconds.collect(), per_iteration })
}

/// `name,sample,nanoseconds` lines.
pub fn csv(all: &[Measured]) -> String {
    let mut out = String::from("benchmark,sample,nanoseconds\n");
    for measured in all {
        for (number, nanoseconds) in measured.nanoseconds.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{},{number},{nanoseconds:.1}", measured.name);
        }
    }
    out
}

/// A Markdown table. Times in ns per iteration; the rate is that of the median. Within a group, `of slowest` is the
/// slowest median divided by this one's: what the benchmarks of one run say about each other.
pub fn table(all: &[Measured]) -> String {
    let group = |measured: &Measured| measured.name.split('/').next().unwrap_or_default().to_owned();
    let mut out = String::from(
        "| benchmark | min ns | median ns | max ns | rate | of slowest |\n|---|---|---|---|---|---|\n",
    );
    for measured in all {
        let Some((min, median, max)) = measured.min_median_max() else { continue };
        let slowest = all
            .iter()
            .filter(|other| group(other) == group(measured))
            .filter_map(|other| Some(other.min_median_max()?.1))
            .fold(median, f64::max);
        let rate = match measured.per_iteration {
            Some((bytes, "bytes")) => format!("{:.3} GB/s", bytes as f64 / median),
            Some((count, unit)) => format!("{:.3} M {unit}/s", count as f64 * 1e3 / median),
            None => String::new(),
        };
        let name = &measured.name;
        let _ = writeln!(
            out,
            "| {name} | {min:.0} | {median:.0} | {max:.0} | {rate} | {:.2} × |",
            slowest / median
        );
    }
    out
}

/// Facts about this machine and build, one a line.
pub fn environment() -> String {
    let run = |program: &str, arguments: &[&str]| -> String {
        let output = Command::new(program).args(arguments).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_else(|e| format!("unknown: {e}"))
    };
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|line| line.starts_with("model name")).unwrap_or("model name: unknown");
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "{}\nprocessors: {cores}\nload before: {}\nkernel: {}\nrustc: {}\ncommit: {}\nprofile: bench (fat LTO, one codegen unit, no target-cpu)\n",
        model.split_whitespace().collect::<Vec<_>>().join(" "),
        load.trim(),
        run("uname", &["-sr"]),
        run("rustc", &["--version"]),
        run("git", &["rev-parse", "HEAD"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_what_the_samples_say() {
        let measured = |name: &str, nanoseconds: &[f64]| Measured {
            name: name.into(),
            nanoseconds: nanoseconds.into(),
            per_iteration: Some((2000, "bytes")),
        };
        let all = [measured("a/fast", &[100.0, 90.0, 120.0]), measured("a/slow", &[1000.0])];
        let table = table(&all);
        assert!(table.contains("| a/fast | 90 | 100 | 120 | 20.000 GB/s | 10.00 × |"), "{table}");
        assert!(table.contains("| a/slow | 1000 | 1000 | 1000 | 2.000 GB/s | 1.00 × |"), "{table}");
        assert!(csv(&all).contains("a/fast,1,90.0\n"));
    }
}
