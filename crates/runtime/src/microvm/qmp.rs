//! A client of QMP, the emulator's control protocol: one command at a time, each reply limited in length and in time.
//!
//! Blocking, since everything that controls a machine runs off the async threads. Commands are few and written by hand;
//! events that the emulator sends are skipped.

use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

/// A reply is some hundred bytes long; the list of a machine's RAM blocks a thousand.
const LINE_BYTES_MAX: usize = 256 << 10;

/// Events skipped while waiting for one reply.
const LINES_MAX: usize = 10_000;

/// An emulator that does not answer for so long never will.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Qmp {
    stream: UnixStream,
    heard: Vec<u8>,
}

impl Qmp {
    /// Waits for the greeting; afterwards commands can be sent.
    pub(super) fn open(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut qmp = Self { stream, heard: Vec::new() };
        let greeting = qmp.line()?;
        if greeting.get("QMP").is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the emulator sent no QMP greeting"));
        }
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    pub(super) fn run(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        self.send(command, &arguments, None)
    }

    /// Passes a descriptor to the emulator, and returns the name by which commands refer to it.
    pub(super) fn give(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<PassedDescriptor> {
        let answer = self.send("add-fd", &json!({}), Some(descriptor))?;
        let set = answer.get("fdset-id").and_then(Value::as_u64).ok_or_else(invalid_message)?;
        Ok(PassedDescriptor { set })
    }

    /// Removes a passed descriptor.
    pub(super) fn take_back(&mut self, given: &PassedDescriptor) -> io::Result<()> {
        self.run("remove-fd", json!({ "fdset-id": given.set })).map(drop)
    }

    pub(super) fn is_running(&mut self) -> io::Result<bool> {
        let status = self.run("query-status", json!({}))?;
        status.get("running").and_then(Value::as_bool).ok_or_else(invalid_message)
    }

    /// The address of the machine's RAM in the emulator's address space.
    pub(super) fn ram_address(&mut self) -> io::Result<u64> {
        let text = self.run("human-monitor-command", json!({ "command-line": "info ramblock" }))?;
        ram_address(text.as_str().unwrap_or_default()).ok_or_else(invalid_message)
    }

    /// The end of the console output of the machine's kernel.
    pub(super) fn console(&mut self) -> io::Result<String> {
        let text = self.run("ringbuf-read", json!({ "device": "console", "size": 4096 }))?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    fn send(
        &mut self,
        command: &str,
        arguments: &Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<Value> {
        let mut line = serde_json::to_vec(&json!({ "execute": command, "arguments": arguments }))?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = sendmsg(self.stream.as_fd(), &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
        if sent != line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        for _ in 0..LINES_MAX {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                let said = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Err(io::Error::other(format!("the emulator refused `{command}`: {said}")));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
        Err(invalid_message())
    }

    fn line(&mut self) -> io::Result<Value> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(io::Error::from);
            }
            if self.heard.len() > LINE_BYTES_MAX {
                return Err(invalid_message());
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.heard.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the emulator does not answer"));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A descriptor that the emulator has.
#[derive(Debug)]
pub(super) struct PassedDescriptor {
    set: u64,
}

impl PassedDescriptor {
    pub(super) fn path(&self) -> String {
        format!("/dev/fdset/{}", self.set)
    }
}

fn invalid_message() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the emulator sent an invalid QMP message")
}

/// The sixth column (the last one with an address) of the line about `ram`.
fn ram_address(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some("ram"))?;
    let address = line.split_whitespace().rfind(|word| word.starts_with("0x"))?;
    u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::thread;

    use super::*;

    /// An emulator that sends a greeting and then answers each line with the next of `answers`.
    fn emulator(answers: &[&str]) -> (UnixStream, thread::JoinHandle<Vec<String>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let serve = thread::spawn(move || {
            use std::io::BufRead as _;
            theirs.write_all(b"{\"QMP\":{}}\r\n").unwrap();
            let mut lines = io::BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut heard = Vec::new();
            for answer in std::iter::once("{\"return\":{}}".to_owned()).chain(answers) {
                match lines.next() {
                    Some(Ok(line)) => heard.push(line),
                    Some(Err(_)) | None => break,
                }
                theirs.write_all(answer.as_bytes()).unwrap();
                theirs.write_all(b"\n").unwrap();
            }
            heard
        });
        (ours, serve)
    }

    #[test]
    fn events_are_skipped_and_refusals_are_reported() {
        let (stream, serve) = emulator(&[
            "{\"event\":\"STOP\"}\n{\"return\":{\"running\":false}}",
            "{\"error\":{\"class\":\"GenericError\",\"desc\":\"not now\"}}",
        ]);
        let mut qmp = Qmp::open(stream).unwrap();
        assert!(!qmp.is_running().unwrap());
        let refused = qmp.run("cont", json!({})).unwrap_err();
        assert_eq!(refused.to_string(), "the emulator refused `cont`: not now");
        drop(qmp);
        let heard = serve.join().unwrap();
        assert_eq!(heard.len(), 3);
        assert!(heard[1].contains("query-status"), "{heard:?}");
    }

    #[test]
    fn a_peer_without_a_greeting_or_that_disconnects_is_rejected() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"hello\":1}\n").unwrap();
        assert_eq!(Qmp::open(ours).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(Qmp::open(ours).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let flood = thread::spawn(move || {
            let _ = theirs.write_all(&vec![b'x'; 2 * LINE_BYTES_MAX]);
        });
        assert_eq!(Qmp::open(ours).unwrap_err().kind(), io::ErrorKind::InvalidData);
        flood.join().unwrap();
    }

    #[test]
    fn the_address_of_the_ram_is_found_among_others() {
        let text = "              Block Name    PSize              Offset               Used              Total                HVA  RO\r\n\
                    ram    4 KiB  0x0000000000000000 0x0000000008000000 0x0000000008000000 0x00007f71dfe00000  rw\r\n\
                    pc.bios    4 KiB  0x0000000008000000 0x0000000000010000 0x0000000000010000 0x00007f71f4800000  rw\r\n";
        assert_eq!(ram_address(text), Some(0x7f71_dfe0_0000));
        assert_eq!(ram_address("nothing"), None);
    }
}
