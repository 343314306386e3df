//! The `redrive` command.

#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    redrive_tools::run(std::env::args_os())
}
