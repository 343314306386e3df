//! `redrive verify`: checks every file of log directories, and the rules between them.

mod command;
mod json;
mod progress;
mod text;

pub use command::{VerifyArgs, run};
