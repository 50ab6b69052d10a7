//! A reason why a machine cannot be dumped, and whether it may disappear by itself.

use std::fmt;

/// A reason why a machine cannot be dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The pid inside the machine.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A descriptor of a kind that cannot be restored.
    Descriptor { descriptor: u32, what: String },
    /// A mapping of such a kind.
    Mapping { what: String },
    /// Its program is in no file.
    Program,
    /// The path of its working directory is longer than any system call accepts.
    Directory,
    /// A debugger traces it, and a process can only have one tracer.
    Traced,
    /// It is in another namespace than the machine's.
    Namespace { kind: &'static str },
    /// It and its session's leader have ended, and were not reaped yet: passes within moments.
    EndedSession { leader: u32 },
    /// It has just created a process that is about to execute another program: passes as well.
    Spawning,
    /// It has unread netlink messages: passes if it reads them.
    Unread,
    /// A connection within the machine, of which CRIU does not restore the other end: passes as well, if the server
    /// accepts or it reads.
    Connection { descriptor: u32, what: &'static str },
    /// It was sent a signal that stops it, and has not stopped yet: passes as well.
    Stopping,
    /// The leader of its session has ended, and none of its ancestors is of that session.
    LostSession { leader: u32 },
}

impl Reason {
    /// Whether it may disappear within moments.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::EndedSession { .. }
            | Self::Spawning
            | Self::Stopping
            | Self::Unread
            | Self::Connection { .. } => true,
            Self::Descriptor { .. }
            | Self::Mapping { .. }
            | Self::Program
            | Self::Directory
            | Self::Traced
            | Self::Namespace { .. }
            | Self::LostSession { .. } => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (`{}`) {}", self.pid, self.name, self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor { descriptor, what } => write!(f, "has {what} open as descriptor {descriptor}"),
            Self::Connection { descriptor, what } => write!(f, "has {what} open as descriptor {descriptor}"),
            Self::Mapping { what } => write!(f, "has {what} in its memory"),
            Self::Program => f.write_str("executes a program that has no file"),
            Self::Directory => f.write_str("works in a directory whose path is longer than 4095 bytes"),
            Self::Spawning => f.write_str("is just starting a program"),
            Self::Stopping => f.write_str("is just being stopped by a signal"),
            Self::Unread => f.write_str("has unread netlink messages"),
            Self::Traced => f.write_str("is being traced by a debugger"),
            Self::Namespace { kind } => write!(f, "is in its own {kind} namespace"),
            Self::EndedSession { leader } => {
                write!(f, "and the leader of its session, {leader}, are just ending")
            }
            Self::LostSession { leader } => {
                write!(
                    f,
                    "is in a session whose leader, {leader}, has ended, with a parent in another session"
                )
            }
        }
    }
}
