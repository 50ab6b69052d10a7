//! Connects a machine's network namespace or network interface to the gateway that was created for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use super::dialler::Gateway;
use super::netlink::SlotError;
use super::slot;
use crate::Plug;

/// The plug of one gateway. It refers to the gateway as the handles do, so releasing the sandbox's network closes it
/// too, and it keeps no namespace alive.
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
        self.on_own_thread(|gateway| slot::plug(gateway, net))
    }

    fn plug_tap(&self) -> io::Result<OwnedFd> {
        self.gateway.set_tap();
        self.on_own_thread(slot::plug_tap)
    }
}

impl GatewayPlug {
    /// Runs `wire` on a separate thread, since it visits namespaces, and the caller's thread may belong to the async
    /// runtime.
    fn on_own_thread<T: Send>(
        &self,
        wire: impl FnOnce(BorrowedFd<'_>) -> Result<T, SlotError> + Send,
    ) -> io::Result<T> {
        let gateway = self.gateway.namespace()?;
        let wired = thread::scope(|scope| {
            let wire = || wire(gateway.as_fd());
            thread::Builder::new()
                .name("burrow-plug".to_owned())
                .spawn_scoped(scope, wire)?
                .join()
                .map_err(|_panic| io::Error::other("the thread that connects a machine panicked"))
        })?;
        wired.map_err(|error| io::Error::new(error.source.kind(), format!("{error}: {}", error.source)))
    }
}
