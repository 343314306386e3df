//! What the benchmarks measure on, and what they print.

#![deny(unsafe_code)]

pub mod dataset;
pub mod summary;
