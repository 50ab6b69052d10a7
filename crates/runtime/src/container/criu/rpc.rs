//! The communication with one `criu swrk` process.
//!
//! ```text
//! we ── request(options) ──► criu
//!    ◄── notify(name) ──────   any number of times: the processes are frozen while we act
//!    ─── ok / failed ──────►
//!    ◄── response ──────────   the result
//! ```
//!
//! Messages are protobuf, one per packet of a `SOCK_SEQPACKET` pair. The field numbers are those of CRIU's `rpc.proto`,
//! to which CRIU only adds.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::error::{CriuError, Operation};
use super::protobuf::{Fields, Message, ProtobufError, Value};

/// CRIU's responses are a few numbers and one error message of at most a kilobyte.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Notifications are sent at a dozen points of an operation, once each.
const NOTIFICATIONS_MAX: usize = 64;

const TYPE_DUMP: u64 = 1;
const TYPE_RESTORE: u64 = 2;
const TYPE_NOTIFY: u64 = 6;

const CLONE_NEWNET: u64 = 0x4000_0000;
const CGROUPS_IGNORE: u64 = 0;
const NETWORK_LOCK_SKIP: u64 = 3;

/// How often the progress of a silent CRIU is checked.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Errors and warnings. The first error is part of the response; more would be written but never read.
const LOG_LEVEL: u64 = 2;

/// The largest deleted file whose contents are kept in the images; a larger one makes the dump fail.
const GHOST_BYTES_MAX: u64 = 64 << 20;

/// The points at which CRIU waits for us, as far as we act on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Nothing has happened yet.
    PreDump,
    PreRestore,
    /// Everything is in the images, and the processes are frozen.
    PostDump,
    /// The namespaces exist and are empty, and no socket has been created yet.
    SetupNamespaces,
    /// Everything is restored, and the processes are about to resume.
    PreResume,
}

impl Point {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"pre-dump" => Some(Self::PreDump),
            b"pre-restore" => Some(Self::PreRestore),
            b"post-dump" => Some(Self::PostDump),
            b"setup-namespaces" => Some(Self::SetupNamespaces),
            b"pre-resume" => Some(Self::PreResume),
            _ => None,
        }
    }
}

/// The options that both operations have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    /// The directory of the images, and, for a restore, of its log.
    pub(super) images: BorrowedFd<'a>,
    pub(super) work: BorrowedFd<'a>,
    pub(super) log: &'a str,
    /// The past or future `/` of the processes.
    pub(super) root: &'a Path,
    /// External mounts, each as `mnt[…]:…`.
    pub(super) external: &'a [String],
}

impl Common<'_> {
    fn options(self) -> Message {
        use std::os::unix::ffi::OsStrExt as _;
        let options = Message::default()
            .number(1, descriptor(self.images))
            .flag(4) // ext_unix_sk
            .flag(5) // tcp_established
            .flag(8) // file_locks
            .number(9, LOG_LEVEL)
            .bytes(10, self.log.as_bytes())
            .flag(12) // notify_scripts
            .bytes(13, self.root.as_os_str().as_bytes())
            .number(17, descriptor(self.work))
            .flag(18) // link_remap
            .number(34, CGROUPS_IGNORE)
            .number(35, GHOST_BYTES_MAX)
            .number(38, CLONE_NEWNET) // empty_ns
            .number(64, NETWORK_LOCK_SKIP);
        self.external.iter().fold(options, |options, external| options.bytes(37, external.as_bytes()))
    }
}

/// CRIU opens our descriptor as `/proc/<our pid>/fd`.
fn descriptor(descriptor: BorrowedFd<'_>) -> u64 {
    u64::try_from(descriptor.as_raw_fd()).expect("an open descriptor is not negative")
}

/// The processes are left alive, and as frozen as they are.
pub(super) fn dump_request(common: Common<'_>, pid: u32, freeze_cgroup: &Path) -> Message {
    use std::os::unix::ffi::OsStrExt as _;
    let options = common
        .options()
        .number(2, pid.into())
        .flag(3) // leave_running
        .bytes(44, freeze_cgroup.as_os_str().as_bytes())
        .flag(46); // tcp_skip_in_flight
    Message::default().number(1, TYPE_DUMP).message(2, &options)
}

pub(super) fn restore_request(common: Common<'_>) -> Message {
    Message::default().number(1, TYPE_RESTORE).message(2, &common.options())
}

/// Our end of the communication.
pub(super) struct Conversation<'a> {
    pub(super) socket: OwnedFd,
    /// Shows when CRIU has ended: the processes that it restored may keep its end of the socket open longer than
    /// itself.
    pub(super) process: BorrowedFd<'a>,
    pub(super) operation: Operation,
}

/// When a silent CRIU is considered to hang.
pub(super) struct HangPolicy<'a> {
    /// A number that changes while it works.
    pub(super) progress: &'a dyn Fn() -> u64,
    /// How long it may be silent without progress.
    pub(super) idle_max: Duration,
    /// An action that is tried once before it is considered to hang, and how long it may be silent from then on.
    pub(super) nudge: Option<(&'a dyn Fn(), Duration)>,
}

/// CRIU's final response.
#[derive(Debug, Default)]
pub(super) struct CriuResponse {
    success: bool,
    /// Of a restore: the pid of the first process in our pid namespace.
    pub(super) pid: Option<u32>,
    reason: String,
}

enum IncomingMessage {
    Notification { point: Option<Point>, pid: Option<u32> },
    CriuResponse(CriuResponse),
}

impl Conversation<'_> {
    /// Sends the request, acts at the points that CRIU names, and returns its response. Without `patience` it waits as
    /// long as CRIU runs.
    pub(super) fn run(
        &self,
        request: &Message,
        patience: Option<&HangPolicy<'_>>,
        act: &mut dyn FnMut(Point, Option<u32>) -> Result<(), CriuError>,
    ) -> Result<CriuResponse, CriuError> {
        let mut failed = None;
        let mut act = |point, pid| match act(point, pid) {
            Ok(()) => true,
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        };
        let outcome = self.converse(request, patience, &mut act);
        // If a step of ours failed, that is why CRIU failed or died; its own message contains no more. And CRIU only
        // logs some failed steps, and continues.
        failed.map_or(outcome, Err)
    }

    fn converse(
        &self,
        request: &Message,
        patience: Option<&HangPolicy<'_>>,
        act: &mut dyn FnMut(Point, Option<u32>) -> bool,
    ) -> Result<CriuResponse, CriuError> {
        let operation = self.operation;
        let talk = |source: io::Error| CriuError::Talk { operation, source };
        self.send(request).map_err(talk)?;
        for _ in 0..NOTIFICATIONS_MAX {
            if let Some(after) = self.await_packet(patience).map_err(talk)? {
                return Err(CriuError::Timeout { operation, after, last: None });
            }
            let packet = self.receive().map_err(talk)?;
            match parse_incoming(&packet).map_err(|error| talk(io::Error::other(error)))? {
                IncomingMessage::CriuResponse(answer) if answer.success => return Ok(answer),
                IncomingMessage::CriuResponse(answer) => {
                    return Err(CriuError::Refused { operation, reason: answer.reason });
                }
                IncomingMessage::Notification { point, pid } => {
                    let done = point.is_none_or(|point| act(point, pid));
                    let reply = Message::default().number(1, TYPE_NOTIFY).number(3, done.into());
                    self.send(&reply).map_err(talk)?;
                }
            }
        }
        Err(talk(io::Error::other("CRIU sent too many messages")))
    }

    fn send(&self, message: &Message) -> io::Result<()> {
        send(&self.socket, message.as_bytes(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a packet. `Some`: CRIU hung for that time.
    fn await_packet(&self, patience: Option<&HangPolicy<'_>>) -> io::Result<Option<Duration>> {
        let mut seen = patience.map_or(0, |patience| (patience.progress)());
        let mut idle_since = Instant::now();
        // Once: a CRIU that only ever responds to a nudge hangs as well.
        let mut nudged = None;
        loop {
            let mut ready =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.process, PollFlags::IN)];
            let pause = Timespec::try_from(LOOK_PAUSE).map_err(io::Error::other)?;
            match poll(&mut ready, Some(&pause)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            if !ready[0].revents().is_empty() {
                return Ok(None);
            }
            if !ready[1].revents().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(patience) = patience else { continue };
            let now = (patience.progress)();
            if now != seen {
                (seen, idle_since) = (now, Instant::now());
            } else if idle_since.elapsed() >= nudged.unwrap_or(patience.idle_max) {
                match patience.nudge {
                    Some((nudge, grace)) if nudged.is_none() => {
                        nudge();
                        (nudged, idle_since) = (Some(grace), Instant::now());
                    }
                    Some(_) | None => return Ok(Some(patience.idle_max + nudged.unwrap_or_default())),
                }
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut packet = vec![0; ANSWER_BYTES_MAX];
        let (length, whole) = loop {
            match recv(self.socket.as_fd(), &mut packet[..], RecvFlags::TRUNC) {
                Err(rustix::io::Errno::INTR) => {}
                // It was killed before it read our message.
                Err(rustix::io::Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
                other => break other?,
            }
        };
        match length {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ if whole > packet.len() => Err(io::ErrorKind::InvalidData.into()),
            length => {
                packet.truncate(length);
                Ok(packet)
            }
        }
    }
}

fn parse_incoming(packet: &[u8]) -> Result<IncomingMessage, ProtobufError> {
    let mut kind = 0;
    let mut answer = CriuResponse::default();
    let (mut point, mut notified) = (None, None);
    for field in Fields::of(packet) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Number(number)) => kind = number,
            (2, Value::Number(number)) => answer.success = number != 0,
            (4, Value::Bytes(restored)) => answer.pid = pid(restored, 1)?,
            (5, Value::Bytes(notification)) => {
                point = name(notification)?;
                notified = pid(notification, 2)?;
            }
            (9, Value::Bytes(text)) => {
                answer.reason =
                    super::reason::first_error(&String::from_utf8_lossy(text)).unwrap_or_default();
            }
            _ => {}
        }
    }
    if kind == TYPE_NOTIFY {
        return Ok(IncomingMessage::Notification { point, pid: notified });
    }
    Ok(IncomingMessage::CriuResponse(answer))
}

fn pid(message: &[u8], number: u32) -> Result<Option<u32>, ProtobufError> {
    for field in Fields::of(message) {
        let field = field?;
        if let (true, Value::Number(pid)) = (field.number == number, field.value) {
            return Ok(u32::try_from(pid).ok());
        }
    }
    Ok(None)
}

fn name(notification: &[u8]) -> Result<Option<Point>, ProtobufError> {
    for field in Fields::of(notification) {
        if let super::protobuf::Field { number: 1, value: Value::Bytes(name) } = field? {
            return Ok(Point::named(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn notification(script: &str) -> Message {
        let inner = Message::default().bytes(1, script.as_bytes()).number(2, 42);
        Message::default().number(1, TYPE_NOTIFY).flag(2).message(5, &inner)
    }

    /// A pidfd of a process that does not end meanwhile.
    fn own_pidfd() -> OwnedFd {
        rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap()
    }

    #[test]
    fn a_killed_or_hanging_criu_is_noticed_although_its_socket_stays_open() {
        let (ours, _theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let conversation =
            Conversation { socket: ours, process: pidfd.as_fd(), operation: Operation::Restore };
        let patience = HangPolicy { progress: &|| 7, idle_max: Duration::ZERO, nudge: None };
        let hung = conversation.run(&Message::default().flag(1), Some(&patience), &mut |_, _| Ok(()));
        assert!(matches!(hung, Err(CriuError::Timeout { .. })), "{hung:?}");
        child.kill().unwrap();
        let killed = conversation.run(&Message::default().flag(1), None, &mut |_, _| Ok(()));
        assert!(
            matches!(&killed, Err(CriuError::Talk { source, .. }) if source.kind() == io::ErrorKind::UnexpectedEof),
            "{killed:?}"
        );
        child.wait().unwrap();
    }

    /// Simulates CRIU with a list of packets, and collects whether each notification was answered with success.
    fn play(
        packets: Vec<Message>,
        mut act: impl FnMut(Point) -> Result<(), CriuError>,
    ) -> (Result<CriuResponse, CriuError>, Vec<bool>) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let criu = thread::spawn(move || {
            let own = own_pidfd();
            let theirs = Conversation { socket: theirs, process: own.as_fd(), operation: Operation::Dump };
            theirs.receive().unwrap();
            let mut replies = Vec::new();
            for packet in packets {
                theirs.send(&packet).unwrap();
                if matches!(parse_incoming(packet.as_bytes()), Ok(IncomingMessage::Notification { .. })) {
                    let reply = theirs.receive().unwrap();
                    replies.push(Fields::of(&reply).any(|field| {
                        field.unwrap() == super::super::protobuf::Field { number: 3, value: Value::Number(1) }
                    }));
                }
            }
            replies
        });
        let own = own_pidfd();
        let conversation = Conversation { socket: ours, process: own.as_fd(), operation: Operation::Dump };
        let answer = conversation.run(&Message::default().flag(1), None, &mut |point, _| act(point));
        drop(conversation);
        (answer, criu.join().unwrap())
    }

    #[test]
    fn known_points_are_acted_on_and_others_acknowledged() {
        let answer =
            Message::default().number(1, TYPE_RESTORE).flag(2).message(4, &Message::default().number(1, 77));
        let mut seen = Vec::new();
        let packets = vec![notification("network-lock"), notification("post-dump"), answer];
        let (answer, replies) = play(packets, |point| {
            seen.push(point);
            Ok(())
        });
        assert_eq!(answer.unwrap().pid, Some(77));
        assert_eq!((seen, replies), (vec![Point::PostDump], vec![true, true]));
    }

    #[test]
    fn the_error_of_our_own_step_replaces_criu_s() {
        let answer =
            Message::default().number(1, TYPE_DUMP).number(2, 0).bytes(9, b"Error (x.c:1): script failed\n");
        let (answer, replies) = play(vec![notification("post-dump"), answer], |_| {
            let source = io::ErrorKind::StorageFull.into();
            Err(CriuError::Step { operation: Operation::Dump, step: "take the snapshot", source })
        });
        assert!(matches!(answer, Err(CriuError::Step { step: "take the snapshot", .. })), "{answer:?}");
        assert_eq!(replies, [false]);
    }

    #[test]
    fn a_failed_step_is_an_error_even_if_criu_continues() {
        let answer = Message::default().number(1, TYPE_RESTORE).flag(2);
        let (answer, _) = play(vec![notification("pre-resume"), answer], |_| {
            let source = io::ErrorKind::NotFound.into();
            Err(CriuError::Step { operation: Operation::Restore, step: "settle the machine", source })
        });
        assert!(matches!(answer, Err(CriuError::Step { .. })), "{answer:?}");
    }

    #[test]
    fn criu_s_reason_is_reported_and_a_closed_connection_is_an_error() {
        let answer =
            Message::default().number(1, TYPE_DUMP).number(2, 0).bytes(9, b"Error (criu/x.c:1): no way\n");
        let (answer, _) = play(vec![answer], |_| Ok(()));
        assert!(
            matches!(&answer, Err(CriuError::Refused { reason, .. }) if reason == "no way"),
            "{answer:?}"
        );
        let (answer, _) = play(Vec::new(), |_| Ok(()));
        assert!(matches!(answer, Err(CriuError::Talk { .. })), "{answer:?}");
    }
}
