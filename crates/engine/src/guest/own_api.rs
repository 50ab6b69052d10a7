//! What serves the own API of sandboxes: the daemon, through their own listeners.

use std::fmt;
use std::os::fd::OwnedFd;

use burrow_model::{SandboxId, TenantId};

/// Serves sandboxes' own API. Called from async code, so it must not block.
pub trait OwnApi: fmt::Debug + Send + Sync {
    /// Serves a sandbox's new listener, in place of an earlier one of the same sandbox.
    fn serve(&self, tenant: &TenantId, sandbox: &SandboxId, listener: OwnedFd);

    /// Closes the listener and its connections. Does nothing for an unknown sandbox.
    fn close(&self, sandbox: &SandboxId);
}

/// Serves no requests: for engines that are not part of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct NoOwnApi;

impl OwnApi for NoOwnApi {
    fn serve(&self, _tenant: &TenantId, _sandbox: &SandboxId, _listener: OwnedFd) {}

    fn close(&self, _sandbox: &SandboxId) {}
}
