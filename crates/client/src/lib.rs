//! Rust SDK for Burrow: a typed client for the whole HTTP API.
//!
//! ```no_run
//! # async fn example() -> Result<(), burrow_client::ClientError> {
//! use burrow_client::{ApiKey, Client, ClientOptions};
//!
//! let client = Client::new(ClientOptions {
//!     url: "http://127.0.0.1:7700".to_owned(),
//!     key: Some(ApiKey::new("e2b_…")),
//!     ca_file: None,
//! })?;
//! let sandbox = client.create_sandbox(&burrow_client::api::CreateSandbox::default()).await?;
//! let result = client
//!     .run(&sandbox.id, &burrow_client::api::CreateExec { argv: vec!["id".into()], ..Default::default() })
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! Connections are pooled and kept alive. Streams (files, tar archives, output, events, backups) use constant memory. An
//! [`Attachment`] to an exec survives a dropped connection and a restart of the daemon: it reattaches at the last offset
//! it has seen. It does not reattach when the sandbox was put to sleep, because that would wake it at once. Absent: server
//! code, and decisions on behalf of the user.

mod acks;
mod attach;
mod audit;
mod body;
mod client;
mod code;
mod egress;
mod error;
mod events;
mod execs;
mod files;
mod host;
mod images;
mod keys;
mod memory;
mod merges;
mod ndjson;
mod pages;
mod ports;
mod sandboxes;
mod secrets;
mod services;
mod snapshots;
mod ssh;
mod url;
mod volumes;
mod websocket;

pub use attach::{AttachEvent, AttachMode, AttachOptions, AttachSender, Attachment, InputClosed};
pub use audit::{AuditQuery, AuditStream};
pub use body::{ByteStream, UploadBody};
pub use burrow_api as api;
pub use client::{ApiKey, Client, ClientOptions};
pub use egress::{EgressLogQuery, EgressLogStream};
pub use error::ClientError;
pub use events::{EventQuery, EventStream};
pub use execs::{OutputQuery, WaitOutcome};
pub use files::{Download, DownloadRange, UploadOptions, WatchOptions};
pub use memory::{ArtifactDownload, KvWatch, Memory, MemorySelection, NewArtifact};
pub use ndjson::NdjsonStream;
pub use pages::PageQuery;
pub use ports::PortConnection;
pub use sandboxes::{CreateOutcome, SandboxQuery};
pub use snapshots::{Export, ExportOptions, ImportOptions, SnapshotQuery};
