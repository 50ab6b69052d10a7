//! The real process behind real doors, in a network of the tests' own.
//!
//! Each test runs itself again in new network and mount namespaces, with a hosts file and upstream addresses of its
//! own (see `world`). So nothing here needs the internet, and nothing is left behind.

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
