//! What a reader of an exec receives.

use burrow_guest::protocol::ExecInfo;
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What a reader of an exec receives.
#[derive(Clone, Debug)]
pub enum ExecEvent {
    Output {
        stream: OutputStream,
        offset: u64,
        bytes: Bytes,
    },
    /// This output is no longer available.
    Gap {
        from: u64,
        to: u64,
    },
    /// All output so far was sent, to a reader that does not wait for more.
    Drained {
        offset: u64,
    },
    /// It has ended, and all its output was sent. The reader passes this on to [`ExecSession::ended`].
    Exit(ExecInfo),
}
