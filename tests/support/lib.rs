//! What the tests of more than one crate stand on.
//!
//! - [`corpus`]: log directories written by real brokers, and what Kafka makes of them.
//! - [`vectors`]: small inputs whose result was established with Kafka's own classes.
//! - [`naive`]: the slow twin, a loader so plain that it can judge the fast one.
//! - [`producer_twin`]: the slow twin of what a partition remembers of its producers.
//! - [`logs`]: a writer of batches and of whole random transaction logs.
//!
//! Nothing here uses the engine: a fault in it must not hide in what judges it. `naive` and `logs` share no
//! code with each other either, so that a reader and a writer cannot agree on the same mistake.

#![deny(unsafe_code)]

pub mod corpus;
pub mod logs;
pub mod naive;
pub mod producer_twin;
pub mod vectors;
