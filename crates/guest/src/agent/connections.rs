//! The open connections: counted for [`crate::protocol::Activity`], and closed when the sandbox gets a new identity.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::clock;
use crate::protocol::Request;

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A short request and its answer, or a connection whose request is not known yet.
    Question,
    /// Lasts as long as both sides want: an exec's reader, a transfer, a watch, a pipe to a port.
    Stream,
}

/// All open connections. The server limits their number.
#[derive(Default)]
pub(super) struct Connections {
    open: RefCell<BTreeMap<u64, Rc<OpenConnection>>>,
    next: Cell<u64>,
    /// When a stream was last opened or closed, by [`clock::awake_ms`].
    streamed_ms: Cell<u64>,
}

/// One open connection.
pub(super) struct OpenConnection {
    number: u64,
    pub(super) stream: TcpStream,
    kind: Cell<Kind>,
    closed: Cell<bool>,
    closing: Notify,
}

/// Removes the connection from the list when its task ends.
pub(super) struct Entry<'c> {
    connections: &'c Connections,
    pub(super) open: Rc<OpenConnection>,
}

impl Connections {
    pub(super) fn add(&self, stream: TcpStream) -> Entry<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        let open = Rc::new(OpenConnection {
            number,
            stream,
            kind: Cell::new(Kind::Question),
            closed: Cell::new(false),
            closing: Notify::new(),
        });
        self.open.borrow_mut().insert(number, Rc::clone(&open));
        Entry { connections: self, open }
    }

    /// Closes all connections except `kept`. Their tasks see the same as when the host hangs up.
    pub(super) fn close_others(&self, kept: &OpenConnection) {
        for open in self.open.borrow().values().filter(|open| open.number != kept.number) {
            open.closed.set(true);
            open.closing.notify_waiters();
            // A connection that is already broken is closed as well.
            let _ = rustix::net::shutdown(&open.stream, Shutdown::Both);
        }
    }

    pub(super) fn streams(&self) -> usize {
        self.open.borrow().values().filter(|open| open.kind.get() == Kind::Stream).count()
    }

    pub(super) fn streamed_ms(&self) -> u64 {
        self.streamed_ms.get()
    }

    fn note(&self, kind: Kind) {
        if kind == Kind::Stream {
            self.streamed_ms.set(clock::awake_ms());
        }
    }
}

impl Entry<'_> {
    /// Records the kind of the connection, once its request has been read.
    pub(super) fn serves(&self, request: &Request) {
        let kind = Kind::of(request);
        self.open.kind.set(kind);
        self.connections.note(kind);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(&self.open.number);
        self.connections.note(self.open.kind.get());
    }
}

impl OpenConnection {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Returns when [`Connections::close_others`] closes the connection; not when the host hangs up.
    pub(super) async fn until_closed(&self) {
        loop {
            let closing = self.closing.notified();
            if self.closed.get() {
                return;
            }
            closing.await;
        }
    }
}

impl Kind {
    fn of(request: &Request) -> Self {
        match request {
            Request::ExecStart(start) if start.attach.is_none() => Self::Question,
            Request::ExecStart(_)
            | Request::Attach(_)
            | Request::ExecStdin { .. }
            | Request::ListStream(_)
            | Request::Read(_)
            | Request::Write(_)
            | Request::TarOut(_)
            | Request::TarIn(_)
            | Request::Watch(_)
            | Request::Connect { .. } => Self::Stream,
            Request::Ping
            | Request::ExecGet { .. }
            | Request::ExecList
            | Request::ExecWait { .. }
            | Request::ExecSignal { .. }
            | Request::ExecResize { .. }
            | Request::Stat { .. }
            | Request::List(_)
            | Request::MakeDir { .. }
            | Request::Move { .. }
            | Request::Remove { .. }
            | Request::ChangeMode { .. }
            | Request::Stats
            | Request::Activity
            | Request::SetServices { .. }
            | Request::SetTrust { .. }
            | Request::ListServices
            | Request::RestartService { .. }
            | Request::ListPorts
            | Request::SetRam { .. }
            | Request::Renew { .. }
            | Request::Shutdown { .. } => Self::Question,
        }
    }
}
