//! What daemon and egress process say to each other.
//!
//! ```text
//! daemon                                  process
//!   ◄──────────── Greeting ──────────────        (version: another one is replaced)
//!   ── Request n, perhaps with doors ────►
//!   ◄──────────── Answer n ──────────────
//!   ◄──────────── Log ───────────────────        (whenever there is something)
//! ```
//!
//! Frames over a unix stream: four bytes of length, one that counts the descriptors that come along, then JSON. The form
//! of frames, of [`Greeting`] and of [`Ask::Quit`] never changes, so that any daemon can replace any process.

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

use crate::{BudgetLeft, Counters, Limits, LogEntry, Policy, Target, Trial, Waiting};

/// Raised with every change that the other side would not understand.
pub const PROTOCOL: u32 = 2;

/// A policy of as many rules as there may be, each as long as it may be, and something around it.
const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A sandbox's doors.
const DESCRIPTORS_MAX: usize = 3;

const HEADER: usize = 5;

/// The first words of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    /// Of the program. A process of another one is replaced, so that an upgrade reaches it.
    pub version: String,
}

impl Greeting {
    pub fn ours() -> Self {
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Comes back with the answer.
    pub number: u64,
    pub ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The limits of sandboxes attached from now on, and certificates in DER by which hosts are verified beside this
    /// machine's own.
    Configure {
        limits: Limits,
        #[serde(default)]
        roots: Vec<Vec<u8>>,
    },
    /// A segment of the audit spool comes along, to be written to from now on.
    Spool,
    /// The requests that wait for somebody's yes.
    Approvals {
        id: SandboxId,
    },
    /// Says yes or no to one of them.
    Decide {
        id: SandboxId,
        number: u64,
        yes: bool,
    },
    /// What is left of its rules' budgets.
    Budgets {
        id: SandboxId,
    },
    /// The doors come along: TCP, DNS over UDP, DNS over TCP. Of one that is attached, doors and policy are replaced and
    /// flows go on.
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
    /// End, now.
    Quit,
}

/// What the process says after its greeting.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
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
        waiting: Vec<Waiting>,
    },
    /// Nothing waits by that number (any more).
    NotWaiting,
    Budgets {
        budgets: Vec<BudgetLeft>,
    },
}

/// One side's end of the control socket. Reading and writing may happen at the same time; neither may be cancelled
/// midway and then be used again.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
}

/// What has been read and not yet understood.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

/// Counts what would be written.
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

    /// Sends one message and the descriptors that belong to it.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // It may hold secrets: written into one piece of memory, which is cleared.
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
            // They travel with the first byte.
            let along = if sent == 0 { descriptors } else { &[] };
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || send_part(self.stream.as_fd(), &bytes[sent..], along))
                .await?;
        }
        Ok(())
    }

    /// Receives one message; `None` when the other side has hung up.
    pub async fn receive<T: DeserializeOwned>(
        &self,
        incoming: &mut Incoming,
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

impl Incoming {
    /// The next whole frame.
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

fn receive_part(stream: BorrowedFd<'_>, incoming: &mut Incoming) -> io::Result<usize> {
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
    // More than belong to one frame wait here only if the other side does not count them.
    if incoming.descriptors.len() > 2 * DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    incoming.bytes.extend_from_slice(&piece[..received.bytes]);
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[tokio::test]
    async fn messages_arrive_whole_with_their_own_descriptors() {
        let (ours, theirs) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let sending = tokio::spawn(async move {
            let id = SandboxId::generate();
            let attach = Ask::Attach { id: id.clone(), policy: Policy::closed() };
            ours.send(&Request { number: 1, ask: attach }, &[file.as_fd(); 3]).await.unwrap();
            ours.send(&Request { number: 2, ask: Ask::List }, &[]).await.unwrap();
            // Far larger than any socket's buffer.
            let entries = Said::Log { entries: vec![] };
            ours.send(&entries, &[]).await.unwrap();
            ours.send(&"x".repeat(2_000_000), &[]).await.unwrap();
        });
        let mut incoming = Incoming::default();
        let (first, doors) = theirs.receive::<Request>(&mut incoming).await.unwrap().unwrap();
        assert!(matches!(first, Request { number: 1, ask: Ask::Attach { .. } }));
        assert_eq!(doors.len(), 3);
        let (second, none) = theirs.receive::<Request>(&mut incoming).await.unwrap().unwrap();
        assert!(matches!(second, Request { number: 2, ask: Ask::List }) && none.is_empty());
        theirs.receive::<Said>(&mut incoming).await.unwrap().unwrap();
        let (large, _) = theirs.receive::<String>(&mut incoming).await.unwrap().unwrap();
        assert_eq!(large.len(), 2_000_000);
        sending.await.unwrap();
        assert!(theirs.receive::<Request>(&mut incoming).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_too_large_or_not_a_message_is_an_error() {
        let (ours, theirs) = pair();
        let error = ours.send(&"x".repeat(FRAME_BYTES_MAX + 1), &[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        ours.stream().try_write(&[0xff; 5]).unwrap();
        let error = theirs.receive::<Request>(&mut Incoming::default()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_words_that_never_change_have_not_changed() {
        let quit = serde_json::to_string(&Request { number: 0, ask: Ask::Quit }).unwrap();
        assert_eq!(quit, r#"{"number":0,"ask":"quit"}"#);
        let greeting = serde_json::to_string(&Greeting { protocol: 7, version: "1.2.3".to_owned() }).unwrap();
        assert_eq!(greeting, r#"{"protocol":7,"version":"1.2.3"}"#);
    }
}
