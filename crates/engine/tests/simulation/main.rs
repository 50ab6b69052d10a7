//! The engine on simulated drivers: every failure walked, every crash survived, random lives compared with a model.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod egress;
mod images;
mod lives;
mod moving;
mod rates;
mod secrets;
mod shelves;
mod sleep;
mod stock;
mod time;
mod walk;
mod world;

mod lifecycle;
