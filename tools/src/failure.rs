//! Why a command stops, and what the caller of the process is told.

use std::fmt;
use std::io;

use redrive::Error;

/// How a command ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing wrong: exit status 0.
    Fine,
    /// The input has something wrong in it: exit status 1.
    FoundWrong,
    /// The command line makes no sense, and that has been said: exit status 2.
    BadUsage,
    /// Some of the input could not be read, and that has been said: exit status 3.
    Unreadable,
}

impl Status {
    /// The exit status.
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::FoundWrong => 1,
            Self::BadUsage => 2,
            Self::Unreadable => 3,
        }
    }
}

/// Why a command stopped before its end. Its text is one sentence.
#[derive(Debug)]
pub enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// The engine could not do it.
    Engine(Error),
    /// The input lacks what was asked for.
    Input(String),
    /// Something could not be written.
    Output {
        /// Where to, as a phrase.
        to: String,
        /// What the system said.
        source: io::Error,
    },
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// A failure to write to standard output, or to read what was to be written.
    pub fn stdout(source: io::Error) -> Self {
        match source.downcast::<Error>() {
            Ok(error) => Self::Engine(error),
            Err(source) => Self::Output { to: "to standard output".to_owned(), source },
        }
    }

    /// The exit status.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Engine(Error::Cancelled) | Self::Interrupted => 130,
            Self::Engine(_) | Self::Input(_) | Self::Output { .. } => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Input(sentence) => f.write_str(sentence),
            Self::Engine(Error::Cancelled) | Self::Interrupted => f.write_str("interrupted"),
            Self::Engine(error) => error.fmt(f),
            Self::Output { to, source } => write!(f, "cannot write {to}: {source}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}
