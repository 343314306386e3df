//! `redrive recover`: what a broker's start does to a log directory after an unclean stop, or what it would do.

mod command;
mod json;
mod report;
mod text;

pub use command::{EXIT_STATUS, RecoverArgs, run};
