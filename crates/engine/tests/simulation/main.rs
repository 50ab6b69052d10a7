//! The engine on simulated drivers: failures and crashes at every step, random sequences compared with a model.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod egress;
mod images;
mod lives;
mod moving;
mod rates;
mod secrets;
mod sleep;
mod time;
mod trials;
mod volumes;
mod walk;
mod warm_pool;
mod world;

mod lifecycle;
