//! Measures loads: `bench list`, `bench run SCENARIO --out DIR`, `bench compare A B`; and logs that are written to: `bench
//! store --out DIR`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use clap::{Parser, Subcommand};
use redrive_bench::compare::compare;
use redrive_bench::error::BenchError;
use redrive_bench::job::Job;
use redrive_bench::result::RunResult;
use redrive_bench::run::{Settings, run};
use redrive_bench::scenario::{Against, Cache, IdentityName, IoName, Named, Scenario};
use redrive_bench::store::{self, StoreSize};
use redrive_bench::table;
use redrive_tools::generate::IdShape;

/// Measure how fast transaction logs are loaded, and against what
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name the scenarios
    List,
    /// Measure one: a table on stdout, and files for machines; exit status 1 if loaders found other than they must
    Run(RunArguments),
    /// Measure appends, reads and recovery of partition logs against plain system calls
    Store {
        /// Folder for store.json and store.txt; made if it is not there
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Rounds
        #[arg(long, default_value = "5")]
        repeats: NonZero<u32>,
        /// Where logs are written meanwhile; two GiB of room are needed
        #[arg(long, value_name = "DIR", default_value = ".")]
        data: PathBuf,
    },
    /// Say whether the run in B was slower than that in A; exit status 1 if it was
    Compare {
        /// A result.json, or its folder
        a: PathBuf,
        /// The later one
        b: PathBuf,
    },
    /// One measurement of a run, in its process
    #[command(name = redrive_bench::job::SUBCOMMAND, hide = true)]
    MeasureOnce {
        /// What to do, as JSON
        job: String,
    },
}

#[derive(clap::Args)]
struct RunArguments {
    /// A name that `bench list` shows, or a TOML file
    scenario: String,
    /// Folder for result.json, percentiles.txt and table.txt; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Repeats of everything [default: the scenario's]
    #[arg(long)]
    repeats: Option<NonZero<u32>>,
    /// What else to measure: read, naive, broker:4.4.0 [default: the scenario's]
    #[arg(long, value_delimiter = ',')]
    against: Option<Vec<Against>>,
    /// Numbers of threads [default: the scenario's]
    #[arg(long, value_delimiter = ',')]
    threads: Option<Vec<NonZero<usize>>>,
    /// What ids are compared by [default: the scenario's]
    #[arg(long, value_delimiter = ',')]
    identity: Option<Vec<IdentityName>>,
    /// States of the page cache [default: the scenario's]
    #[arg(long, value_delimiter = ',')]
    cache: Option<Vec<Cache>>,
    /// How warm bytes are reached [default: the scenario's]
    #[arg(long, value_delimiter = ',')]
    io: Option<Vec<IoName>>,
    /// What ids look like [default: the scenario's]
    #[arg(long)]
    id_shape: Option<IdShape>,
    /// How often a broker is started, if one is measured
    #[arg(long, default_value = "1")]
    broker_starts: NonZero<u32>,
    /// Where log directories are made and kept [default: bench-data beside this program's folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(3)
        }
    }
}

fn execute(command: Command) -> Result<ExitCode, BenchError> {
    match command {
        Command::List => {
            for scenario in Scenario::shipped()? {
                println!("{:20} {}", scenario.name, scenario.about);
            }
        }
        Command::Run(arguments) => return measure(arguments),
        Command::Compare { a, b } => {
            let verdict = compare(&RunResult::read(&a)?, &RunResult::read(&b)?);
            print!("{}", verdict.text());
            if verdict.is_worse() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Store { out, repeats, data } => return measure_store(out.as_deref(), repeats, &data),
        Command::MeasureOnce { job } => println!("{}", Job::answer_on_stdout(&job)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_store(out: Option<&Path>, repeats: NonZero<u32>, data: &Path) -> Result<ExitCode, BenchError> {
    let io = |operation, path: &Path| {
        let path = path.to_path_buf();
        move |source| BenchError::Io { operation, path, source }
    };
    if let Some(out) = out {
        fs::create_dir_all(out).map_err(io("create", out))?;
    }
    let size = StoreSize { repeats, append_bytes: 512 << 20, recovery_bytes: 1 << 30 };
    let result = store::run(data, &size)?;
    print!("{}", result.text());
    if let Some(out) = out {
        let json = serde_json::to_string_pretty(&result).unwrap_or_default();
        for (name, text) in [("store.json", json), ("store.txt", result.text())] {
            let path = out.join(name);
            fs::write(&path, text).map_err(io("write", &path))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: RunArguments) -> Result<ExitCode, BenchError> {
    let mut scenario = Scenario::find(&arguments.scenario)?;
    fn set<T>(field: &mut T, given: Option<T>) {
        if let Some(given) = given {
            *field = given;
        }
    }
    let measure = &mut scenario.measure;
    set(&mut measure.repeats, arguments.repeats);
    set(&mut measure.against, arguments.against);
    set(&mut measure.threads, arguments.threads);
    set(&mut measure.identities, arguments.identity);
    set(&mut measure.caches, arguments.cache);
    set(&mut measure.io, arguments.io);
    if let Some(shape) = arguments.id_shape.map(Named).filter(|shape| *shape != scenario.data.id_shape) {
        // The same records of other ids: what is right is not known.
        scenario.data.id_shape = shape;
        scenario.answer = None;
    }

    let io = |operation, path: &Path| {
        let path = path.to_path_buf();
        move |source| BenchError::Io { operation, path, source }
    };
    // A folder that cannot be made is said before anything is measured.
    if let Some(out) = &arguments.out {
        fs::create_dir_all(out).map_err(io("create", out))?;
    }
    let program = env::current_exe().map_err(io("find", Path::new("this program")))?;
    let beside = program.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("bench-data");
    let settings =
        Settings { data: arguments.data.unwrap_or(beside), broker_starts: arguments.broker_starts, program };
    let result = run(scenario, &settings, &mut |line| eprintln!("{line}"))?;
    let table = table::table(&result);
    print!("{table}");
    if let Some(out) = &arguments.out {
        result.write(out)?;
        for (name, text) in [("percentiles.txt", table::percentiles(&result)), ("table.txt", table)] {
            let path = out.join(name);
            fs::write(&path, text).map_err(io("write", &path))?;
        }
    }
    // A run whose loaders find different things, or the wrong one, has measured nothing.
    Ok(if result.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
