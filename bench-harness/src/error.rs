//! Why a measurement could not be made.

use std::io;
use std::path::{Path, PathBuf};

use redrive_tools::generate::GenerateError;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The operating system refused something.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// A verb.
        operation: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// What was said.
        source: io::Error,
    },
    /// A scenario or a result that is none.
    #[error("{path}: {reason}")]
    Content {
        /// Where it was read.
        path: String,
        /// A sentence.
        reason: String,
    },
    /// The data could not be made.
    #[error("the data of the scenario: {0}")]
    Generate(#[from] GenerateError),
    /// A load failed, or gave what it must not.
    #[error("{0}")]
    Load(String),
    /// A broker could not be measured.
    #[error("the broker: {0}")]
    Broker(String),
}

impl BenchError {
    /// For `map_err`: adds what was being done.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, path: path.to_path_buf(), source }
    }

    /// For `map_err` of parsers.
    pub(crate) fn content<E: std::fmt::Display>(path: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |reason| Self::Content { path: path.into(), reason: reason.to_string() }
    }
}
