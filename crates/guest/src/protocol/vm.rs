//! What the driver of a microVM and its first process say to each other, over a serial port of the machine.
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
//! One JSON document per line. An answer bears the id of what it answers: after a copy was made, an answer to what its
//! origin was asked may still be on its way. Everything else the host wants goes over the network; see
//! [`super::Request`].

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Boot, BootReport};

/// What the port is called inside.
pub const VM_PORT: &str = "burrow";

/// The argument by which a kernel starts this program as the first process of a machine.
pub const VM_ROLE: &str = "vm";

/// The argument for a machine that ends as soon as it has come up: a trial whether it does.
pub const VM_TRIAL_ROLE: &str = "vm-trial";

/// The argument for a machine that only reads disks; see [`ReaderRequest`].
pub const VM_READER_ROLE: &str = "vm-reader";

/// As a boot document can be, with room for what is around it.
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
    /// Stops every process but the first, and keeps them so until [`VmRequest::Release`]; what they wrote goes to the disk.
    /// What is copied meanwhile wakes up with nobody running who could see that it is a copy.
    Hold,
    Settle(VmSettle),
    /// Lets them go on, if they are held. What time it is, is said once more: the first message after a machine was copied is
    /// slow, and the clock that it set is late by as much.
    Release {
        #[serde(default)]
        unix_ns: Option<u64>,
    },
    /// What was written so far goes to the disk.
    Sync,
    /// The disk has become larger: so does what is on it.
    Grow {
        bytes: u64,
    },
    /// Does to the files what the stream that follows says (see `burrow_trees::carry`), while all others are held. The
    /// stream comes in pieces: a length of four bytes, little endian, and that many; [`STREAM_END`] at last.
    Apply,
    /// Runs a command as it will be run when the machine is somebody's: what runs for the second time is faster. Only before
    /// [`VmRequest::Boot`].
    Rehearse,
    /// Never sent: what a message that cannot be read is taken for, so that it is answered.
    #[serde(skip)]
    Nonsense {
        message: String,
    },
}

/// In the place of a piece's length: all was said.
pub const STREAM_END: u32 = 0;

/// In the place of a piece's length: the rest will not come.
pub const STREAM_BROKEN: u32 = u32::MAX;

/// A piece of a stream is not longer.
pub const STREAM_PIECE_BYTES_MAX: usize = 64 << 10;

/// What a machine that only reads disks is asked, one line of JSON each, one at a time. It answers with a stream in pieces,
/// as in [`VmRequest::Apply`], and one more piece: a [`BootReport`]. Disks are numbered as they were attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum ReaderRequest {
    /// What time it is, and which disks there are; those in `writable` may be changed. Once, before all others.
    Open { unix_ns: u64, disks: u8, writable: Vec<u8> },
    /// Names at which two disks differ. Each is a letter (`+`, `~`, `-`) and the name with its length before it; more than
    /// can be told end with `m`, all others with `e`.
    Changes { old: u8, new: u8 },
    /// These names of a disk, as `burrow_trees::carry` sends them; `whole`: all. A stream of names follows, each with its
    /// length before it.
    Copy { disk: u8, whole: bool },
    /// Does to a disk what the stream that follows says, and has it on disk.
    Apply { disk: u8 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmBoot {
    pub settle: VmSettle,
    pub network: VmNetwork,
    pub boot: Boot,
}

/// What a machine cannot know after it stood still.
#[derive(Clone, Serialize, Deserialize)]
pub struct VmSettle {
    /// What time it is.
    pub unix_ns: u64,
    /// Random bytes in hexadecimal digits: two machines from one dump would draw the same numbers without.
    pub entropy: String,
    /// Its name, where that is new.
    pub hostname: Option<String>,
    /// How many processes and threads there may be, but for the kernel's own.
    pub pids: u32,
    /// The gateway is not the one it was: connections that lead out are dead, and whoever waits on one shall know.
    pub reset: bool,
}

/// The machine's end of its wire.
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
    fn messages_read_as_the_header_says() {
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
    fn a_boot_message_is_read_as_the_driver_writes_it() {
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
    fn what_is_random_is_not_shown() {
        let settle =
            VmSettle { unix_ns: 1, entropy: "feed".to_owned(), hostname: None, pids: 1, reset: false };
        assert!(!format!("{settle:?}").contains("feed"));
    }
}
