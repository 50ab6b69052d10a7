//! What all interfaces of the daemon share: application state, errors, authentication, input, streams, middleware.
//!
//! ```text
//!   request ─► observe (id, log line, metrics, panics) ─► admit (request slots) ─► audited ─► route ─► handler
//!                                                                                                │
//!                               auth: Reader · Executor · Admin ── input: JsonBody · Params ◄────┘
//! ```
//!
//! Not included: routes. The crates above (`rest`, `e2b`, `gateway`, `interpreter`) have them, and keep their own state as
//! [`app::Part`]s.

pub mod activity;
pub mod app;
pub mod audit;
pub mod audited;
pub mod auth;
pub mod convert;
pub mod error;
pub mod exec_trace;
pub mod guest_files;
pub mod guest_listing;
pub mod hints;
pub mod idempotency;
pub mod input;
pub mod memory;
pub mod metrics;
pub mod middleware;
pub mod observe;
pub mod own_listener;
pub mod pages;
pub mod range;
pub mod refusals;
pub mod request_target;
pub mod routes;
pub mod signer;
pub mod stream;
pub mod upload;
pub mod volume_content;
pub mod volumes;
pub mod within;
