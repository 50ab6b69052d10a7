//! The host–guest protocol, and the agent that speaks it as PID 1 inside every sandbox.
//!
//! The host side uses [`protocol`] and [`client`]; the binary `burrow-guest` uses [`protocol`] and `agent`. The same
//! binary is also the command `burrow-memory` inside ([`memory`]) and the SFTP server ([`sftp`]). Nothing here
//! depends on host code.

pub mod agent;
pub mod client;
pub mod memory;
pub mod protocol;
pub mod sftp;
