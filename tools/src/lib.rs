//! What the `redrive` command is made of: a module per subcommand, and what they share.
//!
//! | module | gives |
//! |---|---|
//! | [`cli`] | the command line as a whole |
//! | [`console`] | standard output and error, and what a terminal may be sent |
//! | [`failure`] | why a command stops, and the exit status |
//! | [`text`] | ids, sizes, times and durations for people |
//! | [`json`] | JSON that is safe to look at |
//! | [`load`] | the options of every command that loads, and the load with its progress |
//! | [`row`] | one transactional id in JSON |
//! | [`replay`], [`list`], [`describe`], [`dump`], [`mod@generate`], [`profile`], [`verify`], [`recover`], [`manual`] | the subcommands |
//!
//! Exit status of every command:
//!
//! | status | meaning |
//! |---|---|
//! | 0 | ran, nothing wrong; a forgiven tail is nothing wrong, since a broker cuts it as well |
//! | 1 | ran, and found something wrong: a refused partition, skipped damage, an id that is not there |
//! | 2 | bad usage |
//! | 3 | the input could not be read, or the output not written |
//! | 130 | interrupted |

#![deny(unsafe_code)]

pub mod cli;
pub mod console;
pub mod describe;
pub mod dump;
pub mod failure;
pub mod generate;
mod history;
pub mod json;
pub mod list;
pub mod load;
pub mod manual;
pub mod profile;
mod progress;
pub mod recover;
pub mod replay;
mod replay_text;
pub mod row;
pub mod text;
pub mod verify;

pub use cli::run;
