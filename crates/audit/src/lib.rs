//! The verifiable audit log: events, the spool, one Merkle tree per tenant, signed checkpoints, verification.
//!
//! ```text
//!  egress process ── spool::Writer ──► segment file ── spool::Reader ──┐
//!  (durable before it acts)                                            ├─► Store: one Merkle tree per tenant
//!  daemon (API calls, execs, keys, snapshots …) ───────────────────────┘     └─► signed checkpoints, proofs, export
//! ```
//!
//! Invariants:
//! - The exact bytes of an [`Event`] are a leaf of its tenant's tree. Appended events never change; retention removes
//!   bodies and keeps their hashes.
//! - A process that must not act without a record records first and acts afterwards: [`spool::Writer::record`]
//!   returns when the event is on disk, or with an error.
//! - No event contains a secret, a body or a query: it has no field for them, and every text is limited and
//!   printable.
//!
//! This crate contains no HTTP, no clock (the caller passes times) and no access control.

mod event;
pub mod export;
pub mod note;
pub mod spool;
mod store;
pub mod tree;
pub mod verify;

pub use event::{Action, EVENT_BYTES_MAX, Event, Outcome, TEXT_BYTES_MAX, Text, UnknownWord};
pub use store::{
    ConsistencyProof, Durability, Entry, Filter, InclusionProof, Outline, Span, Store, StoreError,
};
