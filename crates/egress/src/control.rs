//! The protocol between the daemon and the egress process.
//!
//! ```text
//! daemon                                  process
//!   ◄──────────── Greeting ──────────────        (version: a process of another version is replaced)
//!   ── Request n, with listeners ────────►
//!   ◄──────────── Answer n ──────────────
//!   ◄──────────── Log ───────────────────        (whenever there are entries)
//! ```
//!
//! Frames over a Unix stream socket: four bytes of length, one byte with the number of attached file descriptors,
//! then JSON. The format of frames, of [`Greeting`] and of [`RequestKind::Quit`] never changes, so that any daemon can
//! replace any process.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use burrow_model::SandboxId;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use crate::{BudgetLeft, Counters, Limits, LogEntry, PendingApproval, Policy, Target, Trial};

/// Incremented by every incompatible change of the protocol.
pub const PROTOCOL: u32 = 4;

/// Large enough for a policy with the maximum number of rules, each of maximum length, and its envelope.
const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The number of listeners of a sandbox.
const DESCRIPTORS_MAX: usize = 3;

const HEADER: usize = 5;

/// The first message of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    /// The version of the program. The daemon replaces a process of another version, so that upgrades take effect.
    pub version: String,
}

impl Greeting {
    pub fn ours() -> Self {
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Repeated in the answer.
    pub number: u64,
    pub ask: RequestKind,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// Sets the limits of sandboxes attached from now on, and additional trusted certificates (DER) for verifying
    /// hosts, beside this machine's own.
    Configure {
        limits: Limits,
        #[serde(default)]
        roots: Vec<Vec<u8>>,
    },
    /// Attaches a segment of the audit spool, to which events are written from now on.
    Spool,
    /// Lists the requests that wait for approval.
    Approvals {
        id: SandboxId,
    },
    /// Approves or rejects one of them.
    Decide {
        id: SandboxId,
        number: u64,
        yes: bool,
    },
    /// Lists what remains of the budgets of the sandbox's rules.
    Budgets {
        id: SandboxId,
    },
    /// Attaches the listeners: TCP, DNS over UDP, DNS over TCP. If the sandbox is already attached, its listeners and
    /// policy are replaced and its flows continue.
    Attach {
        id: SandboxId,
        policy: Policy,
    },
    SetPolicy {
        id: SandboxId,
        policy: Policy,
    },
    Detach {
        id: SandboxId,
    },
    List,
    Trial {
        id: SandboxId,
        target: Target,
    },
    Counters {
        id: SandboxId,
    },
    /// Exit immediately.
    Quit,
}

/// A message of the process after its greeting.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMessage {
    Answer { number: u64, answer: Answer },
    Log { entries: Vec<LogEntry> },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Done,
    NotAttached,
    Failed {
        reason: String,
    },
    Sandboxes {
        ids: Vec<SandboxId>,
    },
    Trial {
        trial: Trial,
    },
    Counters {
        counters: Counters,
    },
    Approvals {
        waiting: Vec<PendingApproval>,
    },
    /// No request with this number waits for approval.
    NotWaiting,
    Budgets {
        budgets: Vec<BudgetLeft>,
    },
}

/// One end of the control socket. Reading and writing can run concurrently. After either was cancelled midway, the
/// channel must not be used again.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
}

/// Bytes that were received but not decoded yet.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

/// Counts bytes instead of writing them.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends one message and its file descriptors.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // The message may contain secrets, so it is serialised into a single buffer that is zeroed afterwards.
        let mut length = Length(HEADER);
        serde_json::to_writer(&mut length, message)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(length.0));
        bytes.resize(HEADER, 0);
        serde_json::to_writer(&mut *bytes, message)?;
        let length = bytes.len() - HEADER;
        if length > FRAME_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        bytes[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        bytes[4] = u8::try_from(descriptors.len()).unwrap_or(u8::MAX);
        let mut sent = 0;
        while sent < bytes.len() {
            // The descriptors are sent with the first byte.
            let along = if sent == 0 { descriptors } else { &[] };
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || send_part(self.stream.as_fd(), &bytes[sent..], along))
                .await?;
        }
        Ok(())
    }

    /// Receives one message; `None` when the peer has closed the connection.
    pub async fn receive<T: DeserializeOwned>(
        &self,
        incoming: &mut ReceiveBuffer,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some((message, descriptors)) = incoming.next()? {
                let message = Zeroizing::new(message);
                return Ok(Some((serde_json::from_slice(&message)?, descriptors)));
            }
            let count = self
                .stream
                .async_io(Interest::READABLE, || receive_part(self.stream.as_fd(), incoming))
                .await?;
            match (count, incoming.bytes.is_empty()) {
                (0, true) => return Ok(None),
                (0, false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (_, _) => {}
            }
        }
    }
}

impl ReceiveBuffer {
    /// Returns the next complete frame.
    fn next(&mut self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let Some(header) = self.bytes.get(..HEADER) else { return Ok(None) };
        let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let count = usize::from(header[4]);
        if length > FRAME_BYTES_MAX || count > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        if self.descriptors.len() < count {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rest = self.bytes.split_off(HEADER + length);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        frame.drain(..HEADER);
        Ok(Some((frame, self.descriptors.drain(..count).collect())))
    }
}

fn send_part(stream: BorrowedFd<'_>, bytes: &[u8], along: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !along.is_empty() && !control.push(SendAncillaryMessage::ScmRights(along)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

fn receive_part(stream: BorrowedFd<'_>, incoming: &mut ReceiveBuffer) -> io::Result<usize> {
    let mut piece = [0; 16 * 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(&mut piece)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            incoming.descriptors.extend(rights);
        }
    }
    // More descriptors than this can only mean that the peer miscounts them.
    if incoming.descriptors.len() > 2 * DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    incoming.bytes.extend_from_slice(&piece[..received.bytes]);
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogKind, Verdict};

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[tokio::test]
    async fn messages_arrive_complete_with_their_own_descriptors() {
        let (ours, theirs) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let sending = tokio::spawn(async move {
            let id = SandboxId::generate();
            let attach = RequestKind::Attach { id: id.clone(), policy: Policy::closed() };
            ours.send(&Request { number: 1, ask: attach }, &[file.as_fd(); 3]).await.unwrap();
            ours.send(&Request { number: 2, ask: RequestKind::List }, &[]).await.unwrap();
            // Far larger than a socket buffer.
            let entries = ProcessMessage::Log { entries: vec![] };
            ours.send(&entries, &[]).await.unwrap();
            ours.send(&"x".repeat(2_000_000), &[]).await.unwrap();
        });
        let mut incoming = ReceiveBuffer::default();
        let (first, listeners) = theirs.receive::<Request>(&mut incoming).await.unwrap().unwrap();
        assert!(matches!(first, Request { number: 1, ask: RequestKind::Attach { .. } }));
        assert_eq!(listeners.len(), 3);
        let (second, none) = theirs.receive::<Request>(&mut incoming).await.unwrap().unwrap();
        assert!(matches!(second, Request { number: 2, ask: RequestKind::List }) && none.is_empty());
        theirs.receive::<ProcessMessage>(&mut incoming).await.unwrap().unwrap();
        let (large, _) = theirs.receive::<String>(&mut incoming).await.unwrap().unwrap();
        assert_eq!(large.len(), 2_000_000);
        sending.await.unwrap();
        assert!(theirs.receive::<Request>(&mut incoming).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn oversized_and_malformed_messages_are_errors() {
        let (ours, theirs) = pair();
        let error = ours.send(&"x".repeat(FRAME_BYTES_MAX + 1), &[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        ours.stream().try_write(&[0xff; 5]).unwrap();
        let error = theirs.receive::<Request>(&mut ReceiveBuffer::default()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_stable_messages_have_not_changed() {
        let quit = serde_json::to_string(&Request { number: 0, ask: RequestKind::Quit }).unwrap();
        assert_eq!(quit, r#"{"number":0,"ask":"quit"}"#);
        let greeting = serde_json::to_string(&Greeting { protocol: 7, version: "1.2.3".to_owned() }).unwrap();
        assert_eq!(greeting, r#"{"protocol":7,"version":"1.2.3"}"#);
    }

    /// A process of an earlier build is kept if its protocol is the same. Raise [`PROTOCOL`] with every change of a message.
    #[test]
    fn a_changed_log_entry_is_another_protocol() {
        let entry = LogEntry {
            sandbox: "sbxncjxjqimykr23gtmskm3".parse().unwrap(),
            at_ms: 1,
            last_ms: 2,
            kind: LogKind::Dns,
            host: "a.example".to_owned(),
            port: 0,
            protocol: None,
            verdict: Verdict::Deny,
            rule: None,
            reason: None,
            address: None,
            bytes_in: 0,
            bytes_out: 0,
            duration_ms: None,
            count: 3,
        };
        let expected = r#"{"sandbox":"sbxncjxjqimykr23gtmskm3","at_ms":1,"last_ms":2,"kind":"dns","host":"a.example","port":0,"protocol":null,"verdict":"deny","rule":null,"reason":null,"address":null,"bytes_in":0,"bytes_out":0,"duration_ms":null,"count":3}"#;
        assert_eq!((PROTOCOL, serde_json::to_string(&entry).unwrap().as_str()), (4, expected));
    }
}
