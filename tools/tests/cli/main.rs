//! The built `redrive` command from the outside: streams, exit status, signals.

#![deny(unsafe_code)]

mod commands;
mod common;
mod dump;
mod generate;
mod hostile;
mod process;
mod profile;
mod refusals;
mod verify;
