//! A small netlink client: a batch of messages is encoded into one buffer, sent in one call, and answered in order.
//!
//! ```text
//! message    length u32, kind u16, flags u16, sequence u32, port u32, the kind's own header, attributes
//! attribute  length u16, kind u16, value, padding to 4
//! ```
//!
//! The kernel processes a batch inside `sendmsg` and queues its answers in order. It always reports errors, and
//! successes only on request. So a request at the last message is enough: the first answer, an error or that one
//! acknowledgement, is the outcome. This needs one round trip per namespace instead of one per message, which is most
//! of the cost of a slot besides the namespaces themselves. Therefore no library is used.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;
/// Offset of the flags in it.
const FLAGS_OFFSET: usize = 6;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
/// Create the object; fail if it exists.
pub(super) const CREATE: u16 = 0x400 | 0x200;
/// Create the object, unless it exists.
pub(super) const ENSURE: u16 = 0x400;
/// Add it after the existing ones.
pub(super) const APPEND: u16 = 0x400 | 0x800;

const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 1 << 15;

/// The kernel answers within `sendmsg`. If there is no answer after this time, that is an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Room for any answer: an error contains the message that caused it, and ours are below 1 KiB.
const ANSWER_BYTES: usize = 8 * 1024;

/// A step of a batch that the kernel refused, or a system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {step}")]
pub struct SlotError {
    pub step: &'static str,
    #[source]
    pub source: io::Error,
}

/// Messages that are sent and answered together. Each is labelled with its step, for errors.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    steps: Vec<&'static str>,
    /// Offset and sequence number of the last message that is to be acknowledged.
    last: Option<(usize, usize)>,
}

impl Batch {
    /// Adds a request.
    pub(super) fn add(
        &mut self,
        step: &'static str,
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        self.last = Some((self.bytes.len(), self.steps.len()));
        self.push(step, kind, flags, header, attributes);
    }

    /// Adds a begin or end message of a batch, which the kernel never acknowledges.
    pub(super) fn bracket(&mut self, step: &'static str, kind: u16, header: &[u8]) {
        self.push(step, kind, 0, header, |_| ());
    }

    fn push(
        &mut self,
        step: &'static str,
        kind: u16,
        flags: u16,
        header: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.bytes.len();
        let sequence = u32::try_from(self.steps.len()).expect("a batch is a few dozen messages");
        self.steps.push(step);
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        self.bytes.extend(sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(header);
        attributes(&mut Attributes { bytes: &mut self.bytes });
        let length = u32::try_from(self.bytes.len() - start).expect("a message is below 1 KiB");
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes to send, and the sequence number whose acknowledgement ends the exchange.
    fn finished(&self) -> Option<(Vec<u8>, usize)> {
        let (start, sequence) = self.last?;
        let mut bytes = self.bytes.clone();
        let flags = start + FLAGS_OFFSET..start + FLAGS_OFFSET + 2;
        let asked = u16::from_ne_bytes([bytes[flags.start], bytes[flags.start + 1]]) | NLM_F_ACK;
        bytes[flags].copy_from_slice(&asked.to_ne_bytes());
        Some((bytes, sequence))
    }
}

/// The attributes of the message that is being built.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Attributes<'_> {
    pub(super) fn put(&mut self, kind: u16, value: &[u8]) {
        self.attribute(kind, |bytes| bytes.extend(value));
    }

    /// A number in network byte order, as all of netfilter's numbers are.
    pub(super) fn put_be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    pub(super) fn put_text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, |bytes| {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        });
    }

    pub(super) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes<'_>)) {
        self.attribute(kind | NLA_F_NESTED, |bytes| inner(&mut Attributes { bytes }));
    }

    /// A nested attribute that starts with its own header, such as a veth's peer.
    pub(super) fn nest_with_header(
        &mut self,
        kind: u16,
        header: &[u8],
        inner: impl FnOnce(&mut Attributes<'_>),
    ) {
        self.attribute(kind | NLA_F_NESTED, |bytes| {
            bytes.extend(header);
            inner(&mut Attributes { bytes });
        });
    }

    fn attribute(&mut self, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        value(self.bytes);
        let length = u16::try_from(self.bytes.len() - start).expect("an attribute is below 1 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The kernel subsystem that a socket communicates with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    /// Interfaces, addresses, routes.
    Route,
    /// Packet filter rules.
    Netfilter,
    /// Sockets of the namespace, of any process.
    SocketDiagnosis,
}

/// A netlink socket. It acts on the network namespace in which it was opened, wherever it is used.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open(protocol: Protocol) -> io::Result<Self> {
        let number = match protocol {
            // NETLINK_ROUTE is number 0, which is the value for "no protocol".
            Protocol::Route => None,
            Protocol::Netfilter => Some(rustix::net::netlink::NETFILTER),
            Protocol::SocketDiagnosis => Some(rustix::net::netlink::SOCK_DIAG),
        };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, number)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self(socket))
    }

    /// Sends `batch`. Returns when the kernel has completed all of it, or the first step that it refused.
    pub(super) fn run(&self, batch: &Batch) -> Result<(), SlotError> {
        let Some((bytes, last)) = batch.finished() else { return Ok(()) };
        let sent = rustix::net::send(&self.0, &bytes, SendFlags::empty());
        sent.map_err(|error| SlotError { step: "send to netlink", source: error.into() })?;
        // At most one answer per message, whatever the kernel does.
        for _ in 0..=batch.steps.len() {
            let (sequence, outcome) =
                self.answer().map_err(|source| SlotError { step: "receive from netlink", source })?;
            let step = batch.steps.get(sequence).copied().unwrap_or("match netlink's sequence number");
            outcome.map_err(|source| SlotError { step, source })?;
            if sequence == last {
                return Ok(());
            }
        }
        Err(SlotError { step: "find netlink's acknowledgement", source: io::ErrorKind::InvalidData.into() })
    }

    /// Sends one request, and returns the complete answer, including its header.
    pub(super) fn ask(&self, step: &'static str, kind: u16, header: &[u8]) -> Result<Vec<u8>, SlotError> {
        let failed = |source: io::Error| SlotError { step, source };
        let mut batch = Batch::default();
        batch.push(step, kind, 0, header, |_| ());
        rustix::net::send(&self.0, &batch.bytes, SendFlags::empty()).map_err(|error| failed(error.into()))?;
        let mut buffer = vec![0; ANSWER_BYTES];
        let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())
            .map_err(|error| failed(error.into()))?;
        buffer.truncate(length);
        match parse_answer(&buffer) {
            Some((_, Err(source))) => Err(failed(source)),
            Some((_, Ok(()))) => Err(failed(io::ErrorKind::InvalidData.into())),
            None => Ok(buffer),
        }
    }

    /// One answer: the sequence number that it refers to, and the outcome.
    fn answer(&self) -> io::Result<(usize, io::Result<()>)> {
        let mut buffer = [0; ANSWER_BYTES];
        let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        parse_answer(&buffer[..length]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The value of an attribute after a message's own header of `header` bytes.
pub(super) fn find_attribute(message: &[u8], header: usize, kind: u16) -> Option<&[u8]> {
    let mut rest = message.get(MESSAGE_HEADER + header..)?;
    while let [low, high, kind_low, kind_high, ..] = *rest {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([kind_low, kind_high]) == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn parse_answer(bytes: &[u8]) -> Option<(usize, io::Result<()>)> {
    let word = |offset: usize| Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    if kind != NLMSG_ERROR {
        return None;
    }
    let sequence = usize::try_from(word(8)?).ok()?;
    // The error is a negated errno; 0 acknowledges.
    let errno = i32::from_ne_bytes(word(MESSAGE_HEADER)?.to_ne_bytes()).checked_neg()?;
    Some((sequence, if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_to_four_bytes_but_state_their_own_length() {
        let mut batch = Batch::default();
        batch.add("test", 7, 0, &[9; 4], |attributes| attributes.nest(3, |inner| inner.put_text(1, "gw0ab")));
        let (bytes, last) = batch.finished().unwrap();
        assert_eq!(last, 0);
        assert_eq!(bytes.len(), 16 + 4 + 4 + 12);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 36);
        assert_eq!(u16::from_ne_bytes([bytes[6], bytes[7]]), NLM_F_REQUEST | NLM_F_ACK);
        assert_eq!(u16::from_ne_bytes([bytes[20], bytes[21]]), 16, "the nest holds its padded content");
        assert_eq!(u16::from_ne_bytes([bytes[24], bytes[25]]), 10, "the text's own length is unpadded");
        assert_eq!(&bytes[28..36], b"gw0ab\0\0\0");
    }

    #[test]
    fn only_the_last_request_is_acknowledged_and_a_batch_boundary_never_is() {
        let mut batch = Batch::default();
        batch.add("first", 1, CREATE, &[], |_| ());
        batch.add("second", 1, 0, &[], |_| ());
        batch.bracket("end", 2, &[]);
        let (bytes, last) = batch.finished().unwrap();
        let flags = |message: usize| u16::from_ne_bytes([bytes[message * 16 + 6], bytes[message * 16 + 7]]);
        assert_eq!(last, 1);
        assert_eq!(
            [flags(0), flags(1), flags(2)],
            [NLM_F_REQUEST | CREATE, NLM_F_REQUEST | NLM_F_ACK, NLM_F_REQUEST]
        );
    }

    #[test]
    fn an_attribute_is_found_among_others_but_not_in_a_truncated_message() {
        let mut batch = Batch::default();
        batch.add("test", 7, 0, &[9; 8], |attributes| {
            attributes.put_text(3, "gw0ab");
            attributes.put(16, &[6]);
        });
        let bytes = batch.bytes();
        assert_eq!(find_attribute(bytes, 8, 16), Some(&[6][..]));
        assert_eq!(find_attribute(bytes, 8, 3), Some(&b"gw0ab\0"[..]));
        assert_eq!(find_attribute(bytes, 8, 4), None);
        for length in 0..bytes.len() - 3 {
            assert_eq!(find_attribute(&bytes[..length], 8, 16), None);
        }
        // An attribute whose length is shorter than its own header must not cause an endless loop.
        assert_eq!(find_attribute(&[&bytes[..24], &[0; 8][..]].concat(), 8, 16), None);
    }

    #[test]
    fn a_truncated_answer_or_one_of_another_kind_is_rejected() {
        let mut answer = vec![0; 20];
        answer[4] = 2;
        answer[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        let (sequence, outcome) = parse_answer(&answer).unwrap();
        assert_eq!((sequence, outcome.unwrap_err().raw_os_error()), (0, Some(17)));
        for length in 0..20 {
            assert!(parse_answer(&answer[..length]).is_none());
        }
        answer[4] = 3;
        assert!(parse_answer(&answer).is_none());
    }
}
