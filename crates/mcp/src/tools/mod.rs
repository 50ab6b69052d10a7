//! The tools, by subject.

mod code;
mod files;
mod forks;
mod memory;
mod output;
mod processes;
mod skills;
mod state;
