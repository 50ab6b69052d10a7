//! The agent, started as an ordinary process, answers the host's requests.

#![allow(clippy::unwrap_used, reason = "a helper that cannot continue fails the test")]

mod aborted;
mod activity;
mod archives;
mod exec;
mod files;
mod machine;
mod output;
mod ports;
mod renew;
mod support;
mod uploads;
mod watch;
