//! The catalog through its public interface: one program, so that it links once.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod crash;
mod egress;
mod events;
mod execs;
mod full_disk;
mod idempotency;
mod images;
mod keys;
mod merges;
mod migrations;
mod moving;
mod opening;
mod pages;
mod ports;
mod rows;
mod sandboxes;
mod search;
mod secrets;
mod snapshots;
mod spaces;
mod ssh_keys;
mod upkeep;
mod volumes;
mod warm_pool;
