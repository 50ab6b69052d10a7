//! The command line of `burrow`: arguments become calls, responses become tables or JSON, errors become hints and exit codes.
//!
//! Standard output contains only data; messages go to standard error. Absent: logic that a script could not have through the
//! API. Hidden roles of this program start before any thread exists (see `roles`).

mod commands;
mod context;
mod dispatch;
mod doctor;
mod failure;
mod groups;
mod interact;
mod local;
mod log_file;
mod parse;
mod print;
mod roles;
mod signals;
mod terminal;
mod transfer;

pub use dispatch::{command, main};
