//! Forwards a WebSocket: messages of programs are searched for placeholders, messages of hosts are scrubbed of
//! secrets.
//!
//! Frames keep their lengths, so they are forwarded as they arrive. The fragments of a message are scanned as one
//! stream, regardless of control frames in between, and so are consecutive messages: if a message ends like the start
//! of a secret, all but its last bytes are held back until more arrives. Compression is not requested, so a
//! compressed frame ends the connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::exchange::Exchange;
use super::scrub::{Forms, Hits, Scrubber};

/// Size of one read.
const PIECE: usize = 16 * 1024;

/// RFC 6455: the longest control frame.
const CONTROL_MAX: u64 = 125;

/// The opcode of the close frame.
const CLOSE: u8 = 0x08;

/// Limit for bytes that wait behind a possible start of a secret: headers and control frames between the fragments of
/// a message.
const WAITING_MAX: usize = 64 * 1024;

/// Forwards in both directions until either side ends.
pub(super) async fn bridge(
    client: impl AsyncRead + AsyncWrite + Unpin,
    host: impl AsyncRead + AsyncWrite + Unpin,
    placeholders: Forms,
    secrets: Option<Forms>,
    exchange: &Exchange,
) -> io::Result<()> {
    let (mut client_read, mut client_write) = tokio::io::split(client);
    let (mut host_read, mut host_write) = tokio::io::split(host);
    let out = async {
        let mut frames = Frames::new(placeholders, Side::Program);
        loop {
            let Some(piece) = receive(&mut client_read).await? else { break };
            exchange.goes_out(piece.len())?;
            let (passed, found) = frames.push(piece)?;
            if found > 0 {
                return Err(exchange.alarm("a placeholder is in a WebSocket message"));
            }
            host_write.write_all(&passed).await?;
            host_write.flush().await?;
        }
        host_write.shutdown().await
    };
    let answers = async {
        let mut frames = secrets.map(|secrets| Frames::new(secrets, Side::Host));
        loop {
            let Some(piece) = receive(&mut host_read).await? else { break };
            exchange.comes_in(piece.len());
            let passed = match &mut frames {
                None => piece,
                Some(frames) => {
                    let (passed, _) = frames.push(piece)?;
                    exchange.scrubbed(&frames.take_hits());
                    passed
                }
            };
            client_write.write_all(&passed).await?;
            client_write.flush().await?;
        }
        client_write.shutdown().await
    };
    tokio::try_join!(out, answers)?;
    Ok(())
}

/// Runs `bridge`, and records its end.
pub(super) async fn run(
    client: impl AsyncRead + AsyncWrite + Unpin,
    host: impl AsyncRead + AsyncWrite + Unpin,
    placeholders: Forms,
    secrets: Option<Forms>,
    exchange: Arc<Exchange>,
) {
    let outcome = bridge(client, host, placeholders, secrets, &exchange).await;
    exchange.ended(outcome.is_ok());
}

async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut piece = BytesMut::with_capacity(PIECE);
    let count = from.read_buf(&mut piece).await?;
    Ok((count > 0).then(|| piece.freeze()))
}

/// The sender of the frames: programs mask them, hosts do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Program,
    Host,
}

/// Parses and scrubs the frames of one direction.
#[derive(Debug)]
pub(super) struct Frames {
    side: Side,
    forms: Forms,
    /// Scans all messages as one stream.
    messages: Scrubber,
    /// Forms found in control frames.
    control_hits: Hits,
    /// The side has sent a close frame: no message follows.
    closed: bool,
    header: Vec<u8>,
    /// The frame that is being read.
    frame: Option<Current>,
    /// How many message bytes have arrived, and how many were forwarded.
    came: u64,
    passed: u64,
    /// Bytes to insert between message bytes, by the number of message bytes before them.
    between: VecDeque<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Current {
    left: u64,
    mask: [u8; 4],
    at: usize,
    /// The last fragment of its message.
    last: bool,
    /// A close frame.
    closes: bool,
    /// The payload of a control frame, which is small and scanned once it is complete.
    control: Option<Vec<u8>>,
}

impl Frames {
    pub(super) fn new(forms: Forms, side: Side) -> Self {
        let messages = Scrubber::new(forms.clone());
        let (header, between) = (Vec::new(), VecDeque::new());
        let control_hits = Hits::default();
        Self {
            side,
            forms,
            messages,
            control_hits,
            closed: false,
            header,
            frame: None,
            came: 0,
            passed: 0,
            between,
        }
    }

    /// The forms found since the last call, by secret.
    pub(super) fn take_hits(&mut self) -> Hits {
        let mut hits = std::mem::take(&mut self.control_hits);
        hits.merge(&self.messages.take_hits());
        hits
    }

    /// Takes bytes; returns those that may be forwarded, and how many forms were found.
    pub(super) fn push(&mut self, mut bytes: Bytes) -> io::Result<(Bytes, u64)> {
        let before = self.messages.found;
        let (mut clean, mut found) = (BytesMut::with_capacity(bytes.len()), 0);
        while !bytes.is_empty() {
            let frame = match self.frame.take() {
                None => {
                    self.header.push(bytes.get_u8());
                    let Some(frame) = self.begin()? else { continue };
                    let header = std::mem::take(&mut self.header);
                    self.put_between(header, &mut clean)?;
                    frame
                }
                Some(mut frame) => {
                    let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len());
                    let part = bytes.split_to(count);
                    frame.left -= count as u64;
                    self.look(&mut frame, &part, &mut clean);
                    frame
                }
            };
            if frame.left > 0 {
                self.frame = Some(frame);
            } else {
                found += self.end(frame, &mut clean)?;
            }
        }
        Ok((clean.freeze(), found + self.messages.found - before))
    }

    /// Ends a frame. Returns how many forms were found in it, if it is a control frame.
    fn end(&mut self, frame: Current, clean: &mut BytesMut) -> io::Result<u64> {
        let Some(content) = frame.control else {
            // Messages of programs were forwarded when they arrived.
            if frame.last && self.side == Side::Host {
                let free = self.messages.message_ended();
                self.put(&free, clean);
            }
            return Ok(0);
        };
        if frame.closes {
            self.closed = true;
            if self.side == Side::Host {
                let rest = self.messages.end();
                self.put(&rest, clean);
            }
        }
        let blotted = self.forms.blot_counted(&content, &mut self.control_hits);
        let found = u64::from(blotted.is_some());
        self.put_between(masked(blotted.unwrap_or(content), frame.mask), clean)?;
        Ok(found)
    }

    fn look(&mut self, frame: &mut Current, part: &Bytes, clean: &mut BytesMut) {
        let mut plain = part.to_vec();
        for b in &mut plain {
            *b ^= frame.mask[frame.at % 4];
            frame.at += 1;
        }
        if let Some(content) = &mut frame.control {
            content.extend_from_slice(&plain);
            return;
        }
        self.came += part.len() as u64;
        let decided = self.messages.push(Bytes::from(plain));
        match self.side {
            Side::Host => self.put(&decided, clean),
            // Forwarded unchanged. If the message contains a placeholder, the caller forwards nothing.
            Side::Program => {
                self.passed = self.came;
                clean.extend_from_slice(part);
            }
        }
    }

    /// Forwards message bytes, and the bytes to insert between them.
    fn put(&mut self, mut decided: &[u8], clean: &mut BytesMut) {
        while let Some((place, _)) = self.between.front() {
            let before = usize::try_from(place - self.passed).unwrap_or(usize::MAX);
            if before > decided.len() {
                break;
            }
            let (front, rest) = decided.split_at(before);
            clean.extend_from_slice(front);
            self.passed += front.len() as u64;
            decided = rest;
            if let Some((_, bytes)) = self.between.pop_front() {
                clean.extend_from_slice(&bytes);
            }
        }
        clean.extend_from_slice(decided);
        // For programs, these bytes were counted on arrival.
        if self.side == Side::Host {
            self.passed += decided.len() as u64;
        }
    }

    /// Forwards `bytes` after all message bytes that have arrived, as soon as those are forwarded.
    fn put_between(&mut self, bytes: Vec<u8>, clean: &mut BytesMut) -> io::Result<()> {
        if self.passed == self.came {
            clean.extend_from_slice(&bytes);
            return Ok(());
        }
        let waiting: usize = self.between.iter().map(|(_, bytes)| bytes.len()).sum();
        if waiting + bytes.len() > WAITING_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "too many bytes between two fragments of a message",
            ));
        }
        self.between.push_back((self.came, bytes));
        Ok(())
    }

    /// Parses a frame once its header is complete.
    fn begin(&self) -> io::Result<Option<Current>> {
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let [first, second, rest @ ..] = self.header.as_slice() else { return Ok(None) };
        let is_masked = second & 0x80 != 0;
        if is_masked != (self.side == Side::Program) {
            return Err(bad("a frame with masking of the wrong side"));
        }
        if first & 0x70 != 0 {
            return Err(bad("a compressed frame, although compression was not negotiated"));
        }
        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [a, b, c, d, e, f, g, h, rest @ ..]) => {
                (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest)
            }
            (126 | 127, _) => return Ok(None),
            (length, rest) => (u64::from(length), rest),
        };
        let mask = match (is_masked, rest) {
            (false, _) => [0; 4],
            (true, [a, b, c, d, ..]) => [*a, *b, *c, *d],
            (true, _) => return Ok(None),
        };
        let control = first & 0x08 != 0;
        if control && length > CONTROL_MAX {
            return Err(bad("a control frame that is too long"));
        }
        if self.closed && !control {
            return Err(bad("a message after a close frame"));
        }
        let (last, closes) = (first & 0x80 != 0, first & 0x0f == CLOSE);
        Ok(Some(Current { left: length, mask, at: 0, last, closes, control: control.then(Vec::new) }))
    }
}

fn masked(mut content: Vec<u8>, mask: [u8; 4]) -> Vec<u8> {
    content.iter_mut().enumerate().for_each(|(at, b)| *b ^= mask[at % 4]);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"token-12345";

    fn frame(first: u8, content: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
        let flag = if mask.is_some() { 0x80 } else { 0 };
        let mut frame = vec![first];
        match u8::try_from(content.len()) {
            Ok(length @ ..126) => frame.push(flag | length),
            _ => {
                frame.push(flag | 126);
                frame.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        frame.extend(mask.unwrap_or_default().iter().take(if mask.is_some() { 4 } else { 0 }));
        frame.extend(masked(content.to_vec(), mask.unwrap_or_default()));
        frame
    }

    fn pushed(side: Side, bytes: &[u8], step: usize) -> io::Result<(Vec<u8>, u64)> {
        let mut frames = Frames::new(Forms::exact([SECRET]), side);
        let (mut clean, mut found) = (Vec::new(), 0);
        for piece in bytes.chunks(step) {
            let (passed, hits) = frames.push(Bytes::copy_from_slice(piece))?;
            clean.extend_from_slice(&passed);
            found += hits;
        }
        Ok((clean, found))
    }

    #[test]
    fn e_s2_a_secret_in_a_message_is_replaced_and_frames_stay_valid() {
        let sent = [
            frame(0x81, b"hello t", None),
            frame(0x01, b"a token", None),
            frame(0x89, b"ping token-12345", None),
            frame(0x80, b"-12345 b", None),
            frame(0x82, &[&[b'x'; 300][..], SECRET].concat(), None),
        ]
        .concat();
        for step in [1, 2, 3, 7, 1_000] {
            let (seen, found) = pushed(Side::Host, &sent, step).unwrap();
            assert_eq!(seen.len(), sent.len());
            assert!(!seen.windows(SECRET.len()).any(|window| window == SECRET));
            assert!(!String::from_utf8_lossy(&seen).contains("12345"), "{step}");
            assert_eq!(found, 3, "{step}");
            assert!(seen.starts_with(&frame(0x81, b"hello t", None)));
        }
    }

    #[test]
    fn e_s2_a_secret_split_across_two_messages_is_replaced_in_both() {
        let halves =
            [frame(0x81, b"a token-", None), frame(0x89, b"", None), frame(0x81, b"12345 b", None)].concat();
        let clean =
            [frame(0x81, b"a ******", None), frame(0x89, b"", None), frame(0x81, b"***** b", None)].concat();
        // One message reveals at most three bytes of a form's start.
        let bytes = SECRET.chunks(1).flat_map(|byte| frame(0x81, byte, None)).collect::<Vec<_>>();
        let shown = b"tok********".chunks(1).flat_map(|byte| frame(0x81, byte, None)).collect::<Vec<_>>();
        // No message follows a close frame, so the bytes held back are not a secret.
        let last = [frame(0x81, b"a token-", None), frame(0x88, b"", None)].concat();
        for step in [1, 2, 5, 1_000] {
            assert_eq!(pushed(Side::Host, &halves, step).unwrap(), (clean.clone(), 1), "{step}");
            assert_eq!(pushed(Side::Host, &bytes, step).unwrap(), (shown.clone(), 1), "{step}");
            assert_eq!(pushed(Side::Host, &last, step).unwrap(), (last.clone(), 0), "{step}");
        }
        let after = [last, frame(0x81, b"12345", None)].concat();
        assert!(pushed(Side::Host, &after, 1_000).is_err(), "a message after a close frame");
    }

    #[test]
    fn a_programs_message_is_forwarded_unchanged() {
        let mask = Some([1, 2, 3, 4]);
        let sent = [frame(0x81, b"what is it", mask), frame(0x81, b"a token-", mask), frame(0x88, b"", mask)]
            .concat();
        for step in [1, 3, 1_000] {
            assert_eq!(pushed(Side::Program, &sent, step).unwrap(), (sent.clone(), 0), "{step}");
        }
        let cut = [frame(0x81, b"a token-", mask), frame(0x81, b"12345", mask)].concat();
        assert_eq!(pushed(Side::Program, &cut, 3).unwrap().1, 1);
    }

    #[test]
    fn e_s6_a_placeholder_in_a_masked_message_is_detected() {
        let mask = Some([1, 2, 3, 4]);
        let sent = [frame(0x01, b"a token", mask), frame(0x80, b"-12345 b", mask)].concat();
        assert_eq!(pushed(Side::Program, &sent, 3).unwrap().1, 1);
        let fine = frame(0x81, b"a token-1234 b", mask);
        assert_eq!(pushed(Side::Program, &fine, 3).unwrap(), (fine, 0));
    }

    #[test]
    fn an_invalid_frame_ends_the_connection() {
        assert!(pushed(Side::Host, &frame(0x81, b"x", Some([1; 4])), 1).is_err());
        assert!(pushed(Side::Program, &frame(0x81, b"x", None), 1).is_err());
        assert!(pushed(Side::Host, &frame(0xc1, b"x", None), 1).is_err());
        assert!(pushed(Side::Host, &[0x89, 126, 1, 0], 1).is_err());
    }
}
