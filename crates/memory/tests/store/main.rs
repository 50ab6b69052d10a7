//! The store through its public API: branches, isolation, durability, damage, hostile input.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod basics;
mod branches;
mod crash;
mod damage;
mod embedders;
mod isolation;
mod power;
mod scale;
mod world;
mod writers;
