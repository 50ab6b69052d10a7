//! The serial port over which the driver and this process communicate; see [`crate::protocol::VmMessage`].
//!
//! A thread of its own listens: the port reports a hang-up while no process on the host has it open, as while the
//! daemon is down, and becomes usable again later, which the async runtime does not support. The host receives an
//! error for a message that cannot be parsed.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc as threads};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::failure::{AtStep as _, Failure};
use super::init;
use crate::protocol::{
    BootReport, STREAM_BROKEN, STREAM_END, STREAM_PIECE_BYTES_MAX, VM_LINE_BYTES_MAX, VM_PORT, VmAnswer,
    VmMessage, VmRequest,
};

const PORTS: &str = "/sys/class/virtio-ports";

/// The longest delay until a returning host is noticed.
const AWAY_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Data is announced by an interrupt, which may have been delivered to the machine that this one was copied from; so
/// the port is also read at this interval.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How often the agent tries to send an answer to a host that does not read.
const ANSWER_ATTEMPTS: u32 = 100;
const ANSWER_PAUSE: Duration = Duration::from_millis(10);

/// The driver sends one request at a time.
const MESSAGES_MAX: usize = 4;

/// One page: nothing on this thread recurses, and lines are on the heap.
const STACK_BYTES: usize = 128 << 10;

/// Pieces of a stream that wait for the reader; the host waits when there are more.
const PIECES_MAX: usize = 8;

pub(super) struct Channel {
    port: Arc<OwnedFd>,
    messages: Option<mpsc::Receiver<IncomingMessage>>,
    stream: Option<Stream>,
}

/// A message, and the stream that follows it.
struct IncomingMessage {
    message: VmMessage,
    stream: Option<Stream>,
}

/// The stream that follows a message; it is read on another thread than the one that listens.
pub(super) struct Stream {
    /// `None` ends the stream. If the sender is dropped before, the stream is incomplete.
    pieces: threads::Receiver<Option<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    ended: bool,
}

impl Channel {
    pub(super) fn open() -> Result<Self, Failure> {
        let name = init::await_device(find_port).ok_or_else(|| {
            Failure::new("find the port to the host", &format!("there is no serial port named `{VM_PORT}`"))
        })?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/dev/{name}");
        let port = init::await_device(|| rustix::fs::open(&path, flags, Mode::empty()).ok());
        let port = port.ok_or(Errno::NODEV).at("open the port to the host")?;
        Ok(Self { port: Arc::new(port), messages: None, stream: None })
    }

    /// The next valid message.
    pub(super) async fn next(&mut self) -> VmMessage {
        loop {
            // Not earlier: the allocator can be configured only while the process has one thread.
            let messages = self.messages.get_or_insert_with(|| listen(Arc::clone(&self.port)));
            match messages.recv().await {
                Some(IncomingMessage { message, stream }) => {
                    self.stream = stream;
                    return message;
                }
                // The thread could not be started.
                None => {
                    self.messages = None;
                    tokio::time::sleep(AWAY_LOOK_EVERY).await;
                }
            }
        }
    }

    /// The stream of the last message.
    pub(super) fn take_stream(&mut self) -> Option<Stream> {
        self.stream.take()
    }

    /// Sends the result. A host that has stopped listening repeats its request if it needs the result.
    pub(super) async fn answer(&self, id: u64, report: BootReport) {
        let Ok(mut line) = serde_json::to_vec(&VmAnswer { id, report }) else { return };
        line.push(b'\n');
        let (mut rest, mut attempts) = (line.as_slice(), 0);
        while !rest.is_empty() && attempts < ANSWER_ATTEMPTS {
            match rustix::io::write(&self.port, rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    attempts += 1;
                    tokio::time::sleep(ANSWER_PAUSE).await;
                }
                Err(_) => return,
            }
        }
    }
}

fn listen(port: Arc<OwnedFd>) -> mpsc::Receiver<IncomingMessage> {
    let (send, receive) = mpsc::channel(MESSAGES_MAX);
    let thread = std::thread::Builder::new().name("burrow-host".to_owned()).stack_size(STACK_BYTES);
    // If the thread cannot be started, the channel is closed at once.
    let _ = thread.spawn(move || read_messages(&port, &send));
    receive
}

/// Reads lines from the port and parses messages, until the receiver is dropped.
fn read_messages(port: &OwnedFd, messages: &mpsc::Sender<IncomingMessage>) {
    let (mut received, mut pump) = (Vec::new(), None);
    let mut chunk = vec![0; 16 << 10];
    loop {
        match rustix::io::read(port, &mut chunk[..]) {
            Ok(0) => {
                // Half a line of a host that is gone is discarded.
                received.clear();
                pump = None;
                std::thread::sleep(AWAY_LOOK_EVERY);
            }
            Ok(count) => received.extend_from_slice(&chunk[..count]),
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)];
                let _ = poll(&mut fds, Some(&LOOK_EVERY));
            }
            Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(AWAY_LOOK_EVERY),
        }
        if parse_messages(&mut received, &mut pump, messages).is_none() {
            return;
        }
        if received.len() > VM_LINE_BYTES_MAX {
            received.clear();
        }
    }
}

/// Takes complete messages out of the bytes received. Returns `None` if the receiver was dropped.
fn parse_messages(
    received: &mut Vec<u8>,
    pump: &mut Option<Pump>,
    messages: &mpsc::Sender<IncomingMessage>,
) -> Option<()> {
    loop {
        if let Some(filled) = pump {
            match filled.take(received) {
                Some(true) => {}
                Some(false) => *pump = None,
                None => return Some(()),
            }
            continue;
        }
        let Some(end) = received.iter().position(|byte| *byte == b'\n') else { return Some(()) };
        let line: Vec<u8> = received.drain(..=end).collect();
        let Some(message) = parse(&line) else { continue };
        let mut stream = None;
        if matches!(message.request, VmRequest::Apply) {
            let (send, pieces) = threads::sync_channel(PIECES_MAX);
            *pump = Some(Pump { pieces: send });
            stream = Some(Stream { pieces, piece: io::Cursor::default(), ended: false });
        }
        messages.blocking_send(IncomingMessage { message, stream }).ok()?;
    }
}

/// Passes on the pieces of a stream. If the reader is gone they are consumed all the same, to find the next message.
struct Pump {
    pieces: threads::SyncSender<Option<Vec<u8>>>,
}

impl Pump {
    /// Returns whether more pieces follow; `None` if more bytes are needed.
    fn take(&self, received: &mut Vec<u8>) -> Option<bool> {
        let length = u32::from_le_bytes(*received.first_chunk::<4>()?);
        if length == STREAM_END || length == STREAM_BROKEN {
            received.drain(..4);
            if length == STREAM_END {
                let _ = self.pieces.send(None);
            }
            return Some(false);
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= STREAM_PIECE_BYTES_MAX);
        let Some(length) = length else {
            received.clear();
            return Some(false);
        };
        if received.len() < 4 + length {
            return None;
        }
        let piece = received.drain(..4 + length).skip(4).collect();
        let _ = self.pieces.send(Some(piece));
        Some(true)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(buffer)?;
            if count > 0 || self.ended || buffer.is_empty() {
                return Ok(count);
            }
            match self.pieces.recv() {
                Ok(Some(piece)) => self.piece = io::Cursor::new(piece),
                Ok(None) => self.ended = true,
                Err(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }
}

/// Parses a message. Returns `None` if it has no id, so that no answer is possible.
fn parse(line: &[u8]) -> Option<VmMessage> {
    #[derive(serde::Deserialize)]
    struct Id {
        id: u64,
    }
    match serde_json::from_slice(line) {
        Ok(message) => Some(message),
        Err(error) => {
            let Id { id } = serde_json::from_slice(line).ok()?;
            Some(VmMessage { id, request: VmRequest::Invalid { message: error.to_string() } })
        }
    }
}

/// The device of the port with the agent's name.
pub(super) fn find_port() -> Option<String> {
    for entry in fs::read_dir(PORTS).ok()?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == VM_PORT {
            return entry.file_name().into_string().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_messages_are_answered_if_they_have_an_id() {
        assert!(matches!(
            parse(b"{\"id\":3,\"op\":\"hold\"}"),
            Some(VmMessage { id: 3, request: VmRequest::Hold })
        ));
        let invalid = parse(b"{\"id\":4,\"op\":\"dance\"}").unwrap();
        assert!(matches!(invalid, VmMessage { id: 4, request: VmRequest::Invalid { .. } }), "{invalid:?}");
        assert!(parse(b"rubbish").is_none());
    }

    #[test]
    fn a_stream_arrives_with_its_message_and_later_messages_are_read() {
        let (send, mut messages) = mpsc::channel(MESSAGES_MAX);
        let (mut received, mut pump) = (Vec::new(), None);
        let said =
            b"{\"id\":1,\"op\":\"apply\"}\n\x03\0\0\0abc\x02\0\0\0de\0\0\0\0{\"id\":2,\"op\":\"hold\"}\n\
            {\"id\":3,\"op\":\"apply\"}\n\x01\0\0\0x\xff\xff\xff\xff{\"id\":4,\"op\":\"hold\"}\n";
        for byte in said {
            received.push(*byte);
            parse_messages(&mut received, &mut pump, &send).unwrap();
        }
        let mut next = || messages.try_recv().unwrap();
        let mut text = String::new();
        next().stream.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcde");
        assert_eq!(next().message.id, 2);
        assert!(next().stream.unwrap().read_to_string(&mut text).is_err(), "the stream is incomplete");
        assert_eq!((next().message.id, received), (4, Vec::new()));
    }
}
