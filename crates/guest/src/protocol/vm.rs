//! The protocol between the driver of a microVM and its first process, over a serial port of the machine.
//!
//! ```text
//!   driver                                      first process
//!    │ ── {"id":7,"op":"boot",…} ────────────────► │   once
//!    │ ◄──────────────── {"id":7,"kind":"ready"} ─ │   it listens
//!    │ ── {"id":8,"op":"hold"} ──────────────────► │   before the processors are stopped
//!    │ ── {"id":9,"op":"settle",…} ──────────────► │   when they run again, if time has passed or it is a copy
//!    │ ── {"id":10,"op":"release",…} ────────────► │
//! ```
//!
//! One JSON document per line. An answer has the id of its request: after a copy was made, an answer to a request to
//! the original may still be in transit. Everything else is requested over the network; see [`super::Request`].

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Boot, BootReport};

/// The name of the port inside.
pub const VM_PORT: &str = "burrow";

/// The argument with which a kernel starts this program as the first process of a machine.
pub const VM_ROLE: &str = "vm";

/// The argument for a machine that ends as soon as it has booted: a trial boot.
pub const VM_TRIAL_ROLE: &str = "vm-trial";

/// The argument for a machine that only reads disks; see [`ReaderRequest`].
pub const VM_READER_ROLE: &str = "vm-reader";

/// The longest boot document, and space for the message around it.
pub const VM_LINE_BYTES_MAX: usize = (4 << 20) + (64 << 10);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmMessage {
    pub id: u64,
    #[serde(flatten)]
    pub request: VmRequest,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmAnswer {
    pub id: u64,
    #[serde(flatten)]
    pub report: BootReport,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum VmRequest {
    Boot(Box<VmBoot>),
    /// Freezes every process except the first, until [`VmRequest::Release`], and syncs the disk. In a copy that is
    /// made meanwhile, no process can run before the copy knows that it is one.
    Hold,
    Settle(VmSettle),
    /// Thaws the processes, if they are frozen. Contains the time again: the first message after a machine was copied
    /// takes long, and the clock that it set is late by that time.
    Release {
        #[serde(default)]
        unix_ns: Option<u64>,
    },
    /// Syncs everything written so far to the disk.
    Sync,
    /// The disk has grown: grows the file system on it.
    Grow {
        bytes: u64,
    },
    /// Applies the changes in the stream that follows to the files (see `burrow_trees::carry`), while all other
    /// processes are frozen. The stream is sent in pieces: a length of four bytes, little endian, and that many
    /// bytes; [`STREAM_END`] at the end.
    Apply,
    /// Warms up: runs a command in the way in which the sandbox will run commands, because code runs faster the
    /// second time. Only before [`VmRequest::Boot`].
    #[serde(rename = "rehearse")]
    WarmUp,
    /// Never sent: a message that cannot be parsed is represented by this, so that it is answered.
    #[serde(skip)]
    Invalid {
        message: String,
    },
}

/// In place of a piece's length: the stream is complete.
pub const STREAM_END: u32 = 0;

/// In place of a piece's length: the rest will not follow.
pub const STREAM_BROKEN: u32 = u32::MAX;

/// The maximum length of a piece of a stream.
pub const STREAM_PIECE_BYTES_MAX: usize = 64 << 10;

/// Requests to a machine that only reads disks: one line of JSON each, one at a time. It answers with a stream in
/// pieces, as in [`VmRequest::Apply`], and one more piece: a [`BootReport`]. Disks are numbered in the order in which
/// they were attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum ReaderRequest {
    /// The time, and the number of disks; those in `writable` may be changed. Sent once, before all others.
    Open { unix_ns: u64, disks: u8, writable: Vec<u8> },
    /// The names at which two disks differ. Each is a letter (`+`, `~`, `-`) and the name, preceded by its length.
    /// The list ends with `m` if there are more than can be reported, otherwise with `e`.
    Changes { old: u8, new: u8 },
    /// The given names of a disk, as `burrow_trees::carry` sends them; `whole`: all names. A stream of names follows,
    /// each preceded by its length.
    Copy { disk: u8, whole: bool },
    /// Applies the changes in the stream that follows to a disk, and syncs it.
    Apply { disk: u8 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmBoot {
    pub settle: VmSettle,
    pub network: VmNetwork,
    pub boot: Boot,
}

/// What a machine cannot know after it was frozen.
#[derive(Clone, Serialize, Deserialize)]
pub struct VmSettle {
    /// The time.
    pub unix_ns: u64,
    /// Random bytes in hexadecimal digits: without them, two machines from one dump would generate the same numbers.
    pub entropy: String,
    /// Its name, if it is new.
    pub hostname: Option<String>,
    /// The limit of processes and threads, without those of the kernel.
    pub pids: u32,
    /// The gateway is a different one: connections that lead out are dead, and processes that wait for one must be
    /// notified.
    pub reset: bool,
}

/// The configuration of the machine's network interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmNetwork {
    pub address_v4: (Ipv4Addr, u8),
    pub gateway_v4: Ipv4Addr,
    pub address_v6: (Ipv6Addr, u8),
    pub gateway_v6: Ipv6Addr,
    pub gateway_hardware: [u8; 6],
}

impl std::fmt::Debug for VmSettle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmSettle")
            .field("unix_ns", &self.unix_ns)
            .field("entropy", &"***")
            .field("hostname", &self.hostname)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_form() {
        let hold = VmMessage { id: 8, request: VmRequest::Hold };
        assert_eq!(serde_json::to_string(&hold).unwrap(), r#"{"id":8,"op":"hold"}"#);
        let ready = VmAnswer { id: 7, report: BootReport::Ready };
        assert_eq!(serde_json::to_string(&ready).unwrap(), r#"{"id":7,"kind":"ready"}"#);
        let grow: VmMessage = serde_json::from_str(r#"{"id":1,"op":"grow","bytes":5}"#).unwrap();
        assert!(matches!(grow.request, VmRequest::Grow { bytes: 5 }));
        let changes: ReaderRequest = serde_json::from_str(r#"{"op":"changes","old":0,"new":1}"#).unwrap();
        assert_eq!(changes, ReaderRequest::Changes { old: 0, new: 1 });
    }

    #[test]
    fn the_boot_message_of_the_driver_is_parsed() {
        let text = r#"{"id":1,"op":"boot","settle":{"unix_ns":1,"entropy":"00","hostname":"box","pids":64,"reset":false},
            "network":{"address_v4":["10.88.0.2",30],"gateway_v4":"10.88.0.1","address_v6":["fd88::2",126],
            "gateway_v6":"fd88::1","gateway_hardware":[2,136,0,0,0,1]},
            "boot":{"generation":1,"token":"t","listen":"10.88.0.2:7711","accept_from":"10.88.0.1","ram_bytes":1,
            "services":[]}}"#;
        let message: VmMessage = serde_json::from_str(text).unwrap();
        let VmRequest::Boot(boot) = message.request else { panic!("{message:?}") };
        assert_eq!(boot.network.gateway_hardware, [2, 136, 0, 0, 0, 1]);
        assert_eq!(boot.boot.token, "t");
    }

    #[test]
    fn debug_output_hides_the_random_bytes() {
        let settle =
            VmSettle { unix_ns: 1, entropy: "feed".to_owned(), hostname: None, pids: 1, reset: false };
        assert!(!format!("{settle:?}").contains("feed"));
    }
}
