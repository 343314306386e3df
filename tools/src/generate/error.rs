//! Why nothing was generated.

use std::io;
use std::path::PathBuf;

/// Why nothing was generated. Its text is one sentence. Unless it says otherwise, nothing was changed either.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Spec(String),
    /// The output is there already, and not an empty directory.
    #[error("{} is not an empty directory, and nothing is overwritten", path.display())]
    Occupied {
        /// The output as given.
        path: PathBuf,
    },
    /// A running broker holds the directory.
    #[error("a running broker holds {}: stop it first", path.display())]
    Held {
        /// The root.
        path: PathBuf,
    },
    /// The directory is not one that can be filled, and why.
    #[error("{} cannot be filled: {reason}", path.display())]
    Unfit {
        /// A file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Replacing the files of a stopped broker failed half-way: run it again, or the broker finds a mixture.
    #[error("the files in {} are replaced in part, so run it again before a broker is started: {source}", path.display())]
    HalfReplaced {
        /// The root.
        path: PathBuf,
        /// What failed.
        source: Box<GenerateError>,
    },
    /// The directory cannot be read as a log directory.
    #[error(transparent)]
    Engine(#[from] redrive::Error),
    /// The observer wanted no more.
    #[error("cancelled")]
    Cancelled,
}

impl GenerateError {
    /// An [`Io`](Self::Io) error maker for `map_err`.
    pub(super) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }
}
