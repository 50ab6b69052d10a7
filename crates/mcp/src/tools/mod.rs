//! What a model can do, by subject.

mod files;
mod memory;
mod processes;
mod state;
