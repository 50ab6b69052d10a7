//! The whole surface on simulated drivers: what a client may send, and what it is answered.

mod bad_input;
mod execs;
mod files;
mod guest;
mod idempotency;
mod lifecycle;
mod scopes;
mod wire;
mod world;
