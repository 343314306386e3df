//! `redrive profile`: loads the transaction log, several times over, and says where the time goes and why.
//!
//! ```text
//! first load, as found ─ figures ─ walk over the ids ─ more loads: warm, by one thread, cold ─ Report ─ text, JSON, hlog
//! ```
//!
//! | module | gives |
//! |---|---|
//! | `command` | the command line |
//! | `report` | everything that was found, as it is in JSON |
//! | `last` | which partition was ready last, and why |
//! | `ids` | the largest and the busiest ids, read from the log |
//! | `counters` | records by id in bounded memory |
//! | `runs` | the loads and what they took |
//! | `out` | the folder with `profile.json` and `load.hlog` |
//! | `histograms` | `load.hlog` |
//! | `text` | the report for people |
//!
//! Every figure is measured here and now: none is an estimate, and nothing is compared with a broker. Maps of one load
//! are gone before the next begins, so memory is that of one load, and some 150 MiB at most for the busiest ids.

mod command;
mod counters;
mod histograms;
mod ids;
mod last;
mod out;
mod report;
mod runs;
mod text;

pub use command::{ProfileArgs, run};
