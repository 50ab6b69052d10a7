//! The whole surface on simulated drivers: what a client may send, and what it is answered.

mod audit;
mod bad_input;
mod code;
mod e2b;
mod egress;
mod execs;
mod files;
mod gateway;
mod gateway_wire;
mod guest;
mod idempotency;
mod images;
mod lifecycle;
mod mcp;
mod memory;
mod moving;
mod policy;
mod ports;
mod rollback;
mod scopes;
mod secrets;
mod sleep;
mod snapshots;
mod volumes;
mod wire;
mod world;
