//! `burrow`: arguments to calls, answers to tables or JSON, errors to hints and exit codes.
//!
//! Standard output carries data only, standard error is for people. What is absent: logic that a script could not
//! have through the API. One hidden role of this program runs before any thread exists (see `roles`).

mod commands;
mod context;
mod dispatch;
mod doctor;
mod failure;
mod interact;
mod local;
mod parse;
mod print;
mod roles;
mod terminal;
mod transfer;

pub use dispatch::{command, main};
