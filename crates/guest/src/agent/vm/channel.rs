//! The serial port over which the driver and this process talk; see [`crate::protocol::VmMessage`].
//!
//! A thread of its own listens: the port hangs up whenever nobody on the host has it open, as while the daemon is down,
//! and comes back, which the async runtime does not expect of a descriptor. A host whose message cannot be read is told so.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::{At as _, Failure, init};
use crate::protocol::{BootReport, VM_LINE_BYTES_MAX, VM_PORT, VmAnswer, VmMessage, VmRequest};

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

pub(super) struct Channel {
    port: Arc<OwnedFd>,
    messages: Option<mpsc::Receiver<VmMessage>>,
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
        Ok(Self { port: Arc::new(port), messages: None })
    }

    /// The next message that makes sense.
    pub(super) async fn next(&mut self) -> VmMessage {
        loop {
            // Not before: the process may be told how to allocate only while it has one thread.
            let messages = self.messages.get_or_insert_with(|| listen(Arc::clone(&self.port)));
            match messages.recv().await {
                Some(message) => return message,
                // There was no room for a thread.
                None => {
                    self.messages = None;
                    tokio::time::sleep(AWAY_LOOK_EVERY).await;
                }
            }
        }
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

fn listen(port: Arc<OwnedFd>) -> mpsc::Receiver<VmMessage> {
    let (send, receive) = mpsc::channel(MESSAGES_MAX);
    let thread = std::thread::Builder::new().name("burrow-host".to_owned()).stack_size(STACK_BYTES);
    // Without the thread the channel is closed at once.
    let _ = thread.spawn(move || hear(&port, &send));
    receive
}

/// Takes lines from the port and messages from lines, until nobody wants them.
fn hear(port: &OwnedFd, messages: &mpsc::Sender<VmMessage>) {
    let mut heard = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    loop {
        match rustix::io::read(port, &mut chunk[..]) {
            Ok(0) => {
                // Half a line of a host that is gone is none.
                heard.clear();
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
        while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = heard.drain(..=end).collect();
            if let Some(message) = parse(&line)
                && messages.blocking_send(message).is_err()
            {
                return;
            }
        }
        if heard.len() > VM_LINE_BYTES_MAX {
            heard.clear();
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
fn find_port() -> Option<String> {
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
}
