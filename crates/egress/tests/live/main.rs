//! Tests of the real process with real listeners, in an isolated network.
//!
//! Each test runs itself again in new network and mount namespaces, with its own hosts file and upstream addresses
//! (see `world`). So the tests need no internet access and leave nothing behind.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod certificates;
mod clients;
mod confinement;
mod encrypted;
mod floods;
mod intercepting;
mod lifetime;
mod names;
mod reaching;
mod refusing;
mod secrets;
mod upstreams;
mod world;
