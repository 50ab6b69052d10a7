//! The messages between daemon and launcher.
//!
//! One message each way per request, over a `SOCK_SEQPACKET` pair: the kernel preserves message boundaries, and
//! descriptors arrive with the message they belong to. Both sides are the same program, so the format may change with
//! any version.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::container::criu::Adjustment;

/// A plan is a path, a name, a few numbers, and two paths for each volume; that of an emulator contains a command line.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// User and network namespace, boot socket, the namespace of the owners, v2 directory, and at most four v1 `tasks`
/// files; or the latter two, and the descriptors of an emulator.
const DESCRIPTORS_MAX: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Can this host create the namespaces and the filter that a machine needs?
    Probe,
    Launch(Plan),
    Emulate(EmulatorPlan),
    Adjust(AdjustPlan),
}

/// How to start one machine. It is sent with descriptors, in this order: user namespace, network namespace, boot
/// socket, a user namespace that maps the owners of its files (if `own_ids`), v2 cgroup directory (if `unified`), v1
/// `tasks` files (the rest).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) root: PathBuf,
    /// Device and inode of `root`.
    pub(crate) root_identity: (u64, u64),
    pub(crate) hostname: String,
    /// Size limit of `/dev/shm`.
    pub(crate) shm_bytes: u64,
    pub(crate) own_ids: bool,
    /// Enter the AppArmor profile of machines.
    pub(crate) profile: bool,
    pub(crate) unified: bool,
    pub(crate) mounts: Vec<MountPlan>,
}

/// A host directory that is mounted in a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MountPlan {
    pub(crate) source: PathBuf,
    /// Device and inode of `source`.
    pub(crate) source_identity: (u64, u64),
    /// Relative to the machine's root.
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// How to start one emulator of a microVM. It is sent with descriptors, in this order: v2 cgroup directory (if
/// `unified`), v1 `tasks` files (as many as `tasks`), the pipe for its errors, and its own descriptors (the rest).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EmulatorPlan {
    /// The program first, with its path in the emulator's root.
    pub(crate) argv: Vec<String>,
    /// An empty directory, on which its root is mounted.
    pub(crate) place: PathBuf,
    /// Files and directories that it reads, and their names in its root.
    pub(crate) shown: Vec<(PathBuf, String)>,
    pub(crate) uid: u32,
    /// Huge pages make emulators larger, and are only faster if the processor executes the guest itself.
    pub(crate) small_pages: bool,
    pub(crate) unified: bool,
    pub(crate) tasks: usize,
}

/// How to change a machine's processes before or after a dump. It is sent with descriptors, in this order: the socket
/// for the answer, and the v2 cgroup directory in which to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AdjustPlan {
    /// The v2 cgroup of the machine.
    pub(super) group: PathBuf,
    pub(super) adjustment: Adjustment,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LauncherReply {
    Able,
    /// Sent with the pidfd.
    Launched {
        pid: u32,
    },
    Failed(Failure),
}

/// The failed step, and the kernel's error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) errno: i32,
}

impl Failure {
    pub(crate) fn source(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// Names the step of an error, as in `mount(…).at("mount `/proc`")?`.
pub(super) trait AtStep<T> {
    fn at(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| {
            let errno = error.into().raw_os_error().unwrap_or(libc::EIO);
            Failure { step: step.to_owned(), errno }
        })
    }
}

/// Sends one message and the descriptors that belong to it.
pub(super) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message; `None` when the peer has closed the connection.
pub(super) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket.as_fd(), &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    // Taken before anything can fail, so that every descriptor has an owner that closes it.
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, descriptors)))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (ours, theirs) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&ours, &LauncherReply::Launched { pid: 7 }, &[file.as_fd(), file.as_fd()]).unwrap();
        send(&ours, &LauncherReply::Able, &[]).unwrap();
        let (answer, descriptors) = receive::<LauncherReply>(&theirs).unwrap().unwrap();
        assert!(matches!(answer, LauncherReply::Launched { pid: 7 }));
        assert_eq!(descriptors.len(), 2);
        let (answer, descriptors) = receive::<LauncherReply>(&theirs).unwrap().unwrap();
        assert!(matches!(answer, LauncherReply::Able));
        assert!(descriptors.is_empty());
        drop(ours);
        assert!(receive::<LauncherReply>(&theirs).unwrap().is_none());
    }

    #[test]
    fn an_oversized_message_is_rejected_before_it_is_sent() {
        let (ours, _theirs) = pair();
        let failure = Failure { step: "x".repeat(MESSAGE_BYTES_MAX), errno: 1 };
        assert_eq!(send(&ours, &failure, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
