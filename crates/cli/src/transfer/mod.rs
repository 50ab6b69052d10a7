//! Moves files between this host and a sandbox, in constant memory, trusting nothing that comes from one.

pub(crate) mod bridge;
pub(crate) mod download;
pub(crate) mod encrypt;
pub(crate) mod endpoint;
pub(crate) mod interrupt;
pub(crate) mod pack;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod tape;
pub(crate) mod unpack;
pub(crate) mod upload;
