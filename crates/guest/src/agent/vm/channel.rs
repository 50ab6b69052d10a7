//! The serial port over which the driver and this process talk; see [`crate::protocol::VmMessage`].
//!
//! A thread of its own listens: the port hangs up whenever nobody on the host has it open, as while the daemon is down,
//! and comes back, which the async runtime does not expect of a descriptor. A host whose message cannot be read is told so.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc as threads};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::{At as _, Failure, init};
use crate::protocol::{
    BootReport, STREAM_BROKEN, STREAM_END, STREAM_PIECE_BYTES_MAX, VM_LINE_BYTES_MAX, VM_PORT, VmAnswer,
    VmMessage, VmRequest,
};

const PORTS: &str = "/sys/class/virtio-ports";

/// How long a host that comes back waits at most until it is heard.
const AWAY_LOOK_EVERY: Duration = Duration::from_millis(200);

/// That something came is told by an interrupt, which might have been meant for the machine this one was copied from.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How often it is tried to answer a host that does not read.
const ANSWER_ATTEMPTS: u32 = 100;
const ANSWER_PAUSE: Duration = Duration::from_millis(10);

/// The driver asks one thing at a time.
const MESSAGES_MAX: usize = 4;

/// One page: nothing on this thread recurses, and lines are on the heap.
const STACK_BYTES: usize = 128 << 10;

/// Pieces of a stream that wait for whoever takes them; the host waits then.
const PIECES_MAX: usize = 8;

pub(super) struct Channel {
    port: Arc<OwnedFd>,
    messages: Option<mpsc::Receiver<Heard>>,
    stream: Option<Stream>,
}

/// A message, and what comes with it.
struct Heard {
    message: VmMessage,
    stream: Option<Stream>,
}

/// The stream that follows a message, read on another thread than the one that listens.
pub(super) struct Stream {
    /// `None`: all was said. A sender that goes away before has not said all.
    pieces: threads::Receiver<Option<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    ended: bool,
}

impl Channel {
    pub(super) fn open() -> Result<Self, Failure> {
        let name = init::await_device(find_port).ok_or_else(|| {
            Failure::new("find the port to the host", &format!("no port is called `{VM_PORT}`"))
        })?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/dev/{name}");
        let port = init::await_device(|| rustix::fs::open(&path, flags, Mode::empty()).ok());
        let port = port.ok_or(Errno::NODEV).at("open the port to the host")?;
        Ok(Self { port: Arc::new(port), messages: None, stream: None })
    }

    /// The next message that makes sense.
    pub(super) async fn next(&mut self) -> VmMessage {
        loop {
            // Not before: the process may be told how to allocate only while it has one thread.
            let messages = self.messages.get_or_insert_with(|| listen(Arc::clone(&self.port)));
            match messages.recv().await {
                Some(Heard { message, stream }) => {
                    self.stream = stream;
                    return message;
                }
                // There was no room for a thread.
                None => {
                    self.messages = None;
                    tokio::time::sleep(AWAY_LOOK_EVERY).await;
                }
            }
        }
    }

    /// What came with the last message.
    pub(super) fn take_stream(&mut self) -> Option<Stream> {
        self.stream.take()
    }

    /// Says how it went. A host that does not listen any more asks again, if it wants to know.
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

fn listen(port: Arc<OwnedFd>) -> mpsc::Receiver<Heard> {
    let (send, receive) = mpsc::channel(MESSAGES_MAX);
    let thread = std::thread::Builder::new().name("burrow-host".to_owned()).stack_size(STACK_BYTES);
    // Without the thread the channel is closed at once.
    let _ = thread.spawn(move || hear(&port, &send));
    receive
}

/// Takes lines from the port and messages from lines, until nobody wants them.
fn hear(port: &OwnedFd, messages: &mpsc::Sender<Heard>) {
    let (mut heard, mut pump) = (Vec::new(), None);
    let mut chunk = vec![0; 16 << 10];
    loop {
        match rustix::io::read(port, &mut chunk[..]) {
            Ok(0) => {
                // Half a line of a host that is gone is none.
                heard.clear();
                pump = None;
                std::thread::sleep(AWAY_LOOK_EVERY);
            }
            Ok(count) => heard.extend_from_slice(&chunk[..count]),
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)];
                let _ = poll(&mut fds, Some(&LOOK_EVERY));
            }
            Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(AWAY_LOOK_EVERY),
        }
        if understand(&mut heard, &mut pump, messages).is_none() {
            return;
        }
        if heard.len() > VM_LINE_BYTES_MAX {
            heard.clear();
        }
    }
}

/// Takes what is whole out of what was heard. `None`: nobody wants it.
fn understand(heard: &mut Vec<u8>, pump: &mut Option<Pump>, messages: &mpsc::Sender<Heard>) -> Option<()> {
    loop {
        if let Some(filled) = pump {
            match filled.take(heard) {
                Some(true) => {}
                Some(false) => *pump = None,
                None => return Some(()),
            }
            continue;
        }
        let Some(end) = heard.iter().position(|byte| *byte == b'\n') else { return Some(()) };
        let line: Vec<u8> = heard.drain(..=end).collect();
        let Some(message) = parse(&line) else { continue };
        let mut stream = None;
        if matches!(message.request, VmRequest::Apply) {
            let (send, pieces) = threads::sync_channel(PIECES_MAX);
            *pump = Some(Pump { pieces: send });
            stream = Some(Stream { pieces, piece: io::Cursor::default(), ended: false });
        }
        messages.blocking_send(Heard { message, stream }).ok()?;
    }
}

/// Passes on the pieces of a stream. If nobody takes them they are heard all the same, so that what follows is found.
struct Pump {
    pieces: threads::SyncSender<Option<Vec<u8>>>,
}

impl Pump {
    /// Whether there is more to come; `None`: not heard yet.
    fn take(&self, heard: &mut Vec<u8>) -> Option<bool> {
        let length = u32::from_le_bytes(*heard.first_chunk::<4>()?);
        if length == STREAM_END || length == STREAM_BROKEN {
            heard.drain(..4);
            if length == STREAM_END {
                let _ = self.pieces.send(None);
            }
            return Some(false);
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= STREAM_PIECE_BYTES_MAX);
        let Some(length) = length else {
            heard.clear();
            return Some(false);
        };
        if heard.len() < 4 + length {
            return None;
        }
        let piece = heard.drain(..4 + length).skip(4).collect();
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

/// A message; `None` for what does not even say what an answer would be to.
fn parse(line: &[u8]) -> Option<VmMessage> {
    #[derive(serde::Deserialize)]
    struct Id {
        id: u64,
    }
    match serde_json::from_slice(line) {
        Ok(message) => Some(message),
        Err(error) => {
            let Id { id } = serde_json::from_slice(line).ok()?;
            Some(VmMessage { id, request: VmRequest::Nonsense { message: error.to_string() } })
        }
    }
}

/// The device of the port that bears our name.
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
    fn what_cannot_be_read_is_answered_if_it_says_to_whom() {
        assert!(matches!(
            parse(b"{\"id\":3,\"op\":\"hold\"}"),
            Some(VmMessage { id: 3, request: VmRequest::Hold })
        ));
        let nonsense = parse(b"{\"id\":4,\"op\":\"dance\"}").unwrap();
        assert!(matches!(nonsense, VmMessage { id: 4, request: VmRequest::Nonsense { .. } }), "{nonsense:?}");
        assert!(parse(b"rubbish").is_none());
    }

    #[test]
    fn a_stream_comes_with_its_message_and_what_follows_is_heard() {
        let (send, mut messages) = mpsc::channel(MESSAGES_MAX);
        let (mut heard, mut pump) = (Vec::new(), None);
        let said =
            b"{\"id\":1,\"op\":\"apply\"}\n\x03\0\0\0abc\x02\0\0\0de\0\0\0\0{\"id\":2,\"op\":\"hold\"}\n\
            {\"id\":3,\"op\":\"apply\"}\n\x01\0\0\0x\xff\xff\xff\xff{\"id\":4,\"op\":\"hold\"}\n";
        for byte in said {
            heard.push(*byte);
            understand(&mut heard, &mut pump, &send).unwrap();
        }
        let mut next = || messages.try_recv().unwrap();
        let mut text = String::new();
        next().stream.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcde");
        assert_eq!(next().message.id, 2);
        assert!(next().stream.unwrap().read_to_string(&mut text).is_err(), "it was broken off");
        assert_eq!((next().message.id, heard), (4, Vec::new()));
    }
}
