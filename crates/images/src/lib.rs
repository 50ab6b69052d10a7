//! Image formats: pulling from OCI registries, reading and writing archives, applying layers to a directory, build files.
//!
//! ```text
//!  registry::Puller ─┐                      ┌─► layer::apply ─► a directory, uids shifted
//!                    ├─► ImageSpec + layers ┤
//!  archive::open ────┘                      └─► (skipped, when the chain id is known)
//!
//!  a directory + RunConfig ─► export::write ─► an archive
//! ```
//!
//! All input is assumed to be hostile: every document, stream, path, count and wait is limited, every digest is
//! verified, and no link in a tree is followed out of it. A failure leaves at most a partly filled directory, which
//! its owner discards.
//!
//! Not here: pools, catalogs, policy, and the use of the configuration. Except for the network part of [`registry`],
//! every function blocks and must be called on a thread of its own.

pub mod archive;
mod digest;
mod disk_space;
pub mod dockerfile;
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
pub use disk_space::{DiskSpace, Unlimited};
pub use error::ImageError;
pub use reference::Reference;
pub use spec::{Compression, ImageSpec, Layer, Platform, RunConfig};

/// Layers of one image. Docker's overlay driver supports at most 127, so no builder creates more.
pub const LAYERS_MAX: usize = 127;

/// A manifest or index; the distribution specification requires registries to accept 4 MiB.
pub const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// An image's configuration. Its history makes it larger than the manifest.
pub const CONFIG_BYTES_MAX: u64 = 8 * 1024 * 1024;
