//! Copies files between this host and sandboxes, in constant memory. Data from sandboxes is not trusted.

pub(crate) mod archive_reader;
pub(crate) mod bridge;
pub(crate) mod destination;
pub(crate) mod download;
pub(crate) mod encrypt;
pub(crate) mod endpoint;
pub(crate) mod input;
pub(crate) mod interrupt;
pub(crate) mod pack;
pub(crate) mod progress;
pub(crate) mod save;
pub(crate) mod unpack;
pub(crate) mod upload;
