//! The command line of `burrow`: arguments become calls, responses become tables or JSON, errors become hints and exit codes.
//!
//! Standard output contains only data; messages go to standard error. Absent: logic that a script could not have through the
//! API. Hidden roles of this program start before any thread exists (see `roles`).

#![cfg_attr(
    not(feature = "daemon"),
    allow(dead_code, unused_imports, reason = "only the commands of the daemon's host use some helpers")
)]

mod commands;
mod context;
mod dispatch;
#[cfg(feature = "daemon")]
mod doctor;
mod failure;
mod groups;
mod interact;
#[cfg(feature = "daemon")]
mod local;
#[cfg(feature = "daemon")]
mod log_file;
mod names;
mod parse;
mod print;
#[cfg(feature = "daemon")]
mod roles;
mod signals;
mod terminal;
mod transfer;

pub use dispatch::{command, main};
