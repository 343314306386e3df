//! Writes what the last `cargo bench` measured into a folder: `environment.txt`, `raw.csv`, `summary.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use redrive_bench::summary;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(criterion), Some(out), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: bench-summary CRITERION_FOLDER OUT_FOLDER (the first is target/criterion)");
        return ExitCode::from(2);
    };
    let written = || -> io::Result<String> {
        let all = summary::read(&criterion)?;
        let table = summary::table(&all);
        fs::create_dir_all(&out)?;
        fs::write(out.join("environment.txt"), summary::environment())?;
        fs::write(out.join("raw.csv"), summary::csv(&all))?;
        fs::write(out.join("summary.md"), &table)?;
        Ok(table)
    };
    match written() {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("bench-summary: {e}");
            ExitCode::FAILURE
        }
    }
}
