//! What happened, by whom, and the proof that nobody changed the tale.
//!
//! ```text
//!  egress process ── spool::Writer ──► segment file ── spool::Reader ──┐
//!  (durable before it acts)                                            ├─► Store: one Merkle tree per tenant
//!  daemon (API calls, execs, keys, snapshots …) ───────────────────────┘     └─► signed checkpoints, proofs, export
//! ```
//!
//! Invariants:
//! - An [`Event`] is a leaf of its tenant's tree by its exact bytes. What is appended is never changed; retention removes
//!   bodies and leaves their hashes.
//! - Whoever must not act without a trace records first and acts afterwards: [`spool::Writer::record`] answers once the
//!   event is on disk, or with an error.
//! - No event holds a secret, a body or a query: it has no field for them, and every text is bounded and printable.
//!
//! Absent: HTTP, a clock (times are given), policy about who may read.

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
