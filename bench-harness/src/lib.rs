//! What the benchmarks measure on, how, and what they print.
//!
//! | module | gives |
//! |---|---|
//! | [`scenario`] | what is measured, from `scenarios/` |
//! | [`data`] | its log directory, made once and kept |
//! | [`page_cache`] | brings files into a cache state, and looks whether they are in it |
//! | [`mod@read`] | the limit: what it costs merely to touch the bytes |
//! | [`cores`] | whether processors are cores of their own just now |
//! | [`answer`] | what a loader found, as one hash |
//! | [`job`] | one measurement in a process of its own |
//! | [`broker`] | a real broker on the same log |
//! | [`facts`] | machine and build |
//! | [`result`], [`mod@run`] | all of it, several times over |
//! | [`table`] | the result for people |
//! | [`store`] | logs that are written to, against plain system calls |
//! | [`mod@compare`] | whether a run was slower than another |
//! | [`dataset`], [`summary`] | for the Criterion benches |

#![deny(unsafe_code)]

pub mod answer;
pub mod broker;
pub mod compare;
pub mod cores;
pub mod data;
pub mod dataset;
pub mod error;
pub mod facts;
pub mod job;
pub mod page_cache;
pub mod read;
pub mod result;
pub mod run;
pub mod scenario;
pub mod store;
pub mod summary;
pub mod table;
