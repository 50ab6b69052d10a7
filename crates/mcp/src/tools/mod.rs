//! What a model can do, by subject.

mod code;
mod files;
mod forks;
mod keep;
mod memory;
mod output;
mod processes;
mod state;
