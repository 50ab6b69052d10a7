//! Wires a network namespace that a machine brought along to the gateway that was made for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use super::dialler::Gateway;
use super::slot;
use crate::Plug;

/// The plug of one gateway. It holds the gateway as the handles do, so releasing the sandbox's network reaches it too,
/// and it keeps no namespace alive.
#[derive(Debug)]
pub(super) struct GatewayPlug {
    gateway: Arc<Gateway>,
}

impl GatewayPlug {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }
}

impl Plug for GatewayPlug {
    fn plug(&self, net: BorrowedFd<'_>) -> io::Result<()> {
        let gateway = self.gateway.namespace()?;
        // A thread of its own, since it visits both namespaces, and the caller's may be one of the async runtime's.
        let wired = thread::scope(|scope| {
            let wire = || slot::plug(gateway.as_fd(), net);
            thread::Builder::new()
                .name("burrow-plug".to_owned())
                .spawn_scoped(scope, wire)?
                .join()
                .map_err(|_panic| io::Error::other("the thread that wires a namespace panicked"))
        })?;
        wired.map_err(|error| io::Error::new(error.source.kind(), format!("{error}: {}", error.source)))
    }
}
