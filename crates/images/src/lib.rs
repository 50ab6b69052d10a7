//! Image formats: pulling from OCI registries, reading and writing archives, applying layers to a directory.
//!
//! ```text
//!  registry::Puller ─┐                      ┌─► layer::apply ─► a directory, uids shifted
//!                    ├─► ImageSpec + layers ┤
//!  archive::open ────┘                      └─► (skipped, when the chain id is known)
//!
//!  a directory + RunConfig ─► export::write ─► an archive
//! ```
//!
//! Everything that comes in is hostile: every document, stream, path, count and wait is bounded, every digest is
//! checked, and no link in a tree is followed out of it. What fails has left at most a half-filled directory, which
//! its owner throws away.
//!
//! What is absent: pools, catalogs, policy, and what is done with the configuration. Apart from the network part of
//! [`registry`], everything blocks and belongs on a thread of its own.

pub mod archive;
mod digest;
mod entries;
mod error;
pub mod export;
pub mod layer;
pub mod manifest;
pub mod recipe;
mod reference;
pub mod registry;
mod spec;
#[cfg(test)]
mod testing;

pub use digest::{ChainId, DiffId, Digest, Hasher};
pub use error::ImageError;
pub use reference::Reference;
pub use spec::{Compression, ImageSpec, Layer, Platform, RunConfig};

/// Layers of one image. Docker's overlay driver takes no more than 127, so no builder makes more.
pub const LAYERS_MAX: usize = 127;

/// A manifest or index; the distribution specification asks registries to take 4 MiB.
pub const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// An image's configuration. Its history makes it larger than its manifest.
pub const CONFIG_BYTES_MAX: u64 = 8 * 1024 * 1024;
