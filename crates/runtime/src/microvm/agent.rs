//! The driver's end of the serial port to a machine's first process.
//!
//! One JSON document per line; the guest protocol, on which this crate does not depend, defines their meaning. The
//! machine is hostile: a reply is limited in length and time, and replies to other requests are ignored.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use burrow_network::{
    GATEWAY_HARDWARE, GATEWAY_V4, GATEWAY_V6, PREFIX_V4, PREFIX_V6, SANDBOX_V4, SANDBOX_V6,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::stream::{self, TimedSocket};
use crate::disks::SendFn;
use crate::report::Report;

const LINE_BYTES_MAX: usize = 64 << 10;

/// Random bytes for a machine: as many as its generator accepts at once.
const ENTROPY_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Agent {
    stream: UnixStream,
    heard: Vec<u8>,
}

#[derive(Deserialize)]
struct AgentReply {
    id: u64,
    #[serde(flatten)]
    report: Report,
}

/// The values that a machine receives when it resumes.
#[derive(Clone, Debug)]
pub(super) struct SettleRequest {
    pub(super) hostname: Option<String>,
    pub(super) pids: u32,
    /// Its gateway has changed.
    pub(super) reset: bool,
}

impl Agent {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, heard: Vec::new() }
    }

    pub(super) fn boot(
        &mut self,
        settle: &SettleRequest,
        document: &[u8],
        timeout: Duration,
    ) -> io::Result<()> {
        let document: Value = serde_json::from_slice(document)?;
        let message = json!({
            "op": "boot",
            "settle": settle.message()?,
            "network": {
                "address_v4": (SANDBOX_V4, PREFIX_V4),
                "gateway_v4": GATEWAY_V4,
                "address_v6": (SANDBOX_V6, PREFIX_V6),
                "gateway_v6": GATEWAY_V6,
                "gateway_hardware": GATEWAY_HARDWARE,
            },
            "boot": document,
        });
        self.ask(message, timeout)?;
        // No process is frozen, but the clock is late by the time that this took.
        self.release(timeout)
    }

    pub(super) fn settle(&mut self, settle: &SettleRequest, timeout: Duration) -> io::Result<()> {
        let mut message = settle.message()?;
        if let Value::Object(fields) = &mut message {
            fields.insert("op".to_owned(), "settle".into());
        }
        self.ask(message, timeout)
    }

    pub(super) fn hold(&mut self, timeout: Duration) -> io::Result<()> {
        self.ask(json!({ "op": "hold" }), timeout)
    }

    pub(super) fn release(&mut self, timeout: Duration) -> io::Result<()> {
        self.ask(json!({ "op": "release", "unix_ns": unix_ns() }), timeout)
    }

    pub(super) fn sync(&mut self, timeout: Duration) -> io::Result<()> {
        self.ask(json!({ "op": "sync" }), timeout)
    }

    pub(super) fn grow(&mut self, bytes: u64, timeout: Duration) -> io::Result<()> {
        self.ask(json!({ "op": "grow", "bytes": bytes }), timeout)
    }

    pub(super) fn rehearse(&mut self, timeout: Duration) -> io::Result<()> {
        self.ask(json!({ "op": "rehearse" }), timeout)
    }

    /// Makes it change files as `give` says.
    pub(super) fn apply(&mut self, give: SendFn, timeout: Duration) -> io::Result<()> {
        self.ask_with(json!({ "op": "apply" }), Some(give), timeout)
    }

    fn ask(&mut self, message: Value, timeout: Duration) -> io::Result<()> {
        self.ask_with(message, None, timeout)
    }

    /// Sends a request, followed by a stream.
    fn ask_with(&mut self, mut message: Value, give: Option<SendFn>, timeout: Duration) -> io::Result<()> {
        let id = u64::from_ne_bytes(random()?);
        if let Value::Object(fields) = &mut message {
            fields.insert("id".to_owned(), id.into());
        }
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        let until = Instant::now() + timeout;
        self.stream.set_write_timeout(Some(timeout))?;
        self.stream.write_all(&line).map_err(silent)?;
        // The agent replies even if the stream was aborted.
        let given =
            give.map(|give| stream::give(&mut TimedSocket::new(&self.stream, timeout), give)).transpose();
        loop {
            let line = self.line(until)?;
            // The guest may send invalid lines and replies to requests that were not sent; both are ignored.
            match serde_json::from_slice::<AgentReply>(&line) {
                Ok(AgentReply { id: answered, report }) if answered == id => {
                    return match report {
                        Report::Ready => given.map(drop),
                        Report::Failed { step, message } => {
                            given.and(Err(io::Error::other(FailedStep { step, message })))
                        }
                    };
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn line(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                return Ok(self.heard.drain(..=end).collect());
            }
            if self.heard.len() > LINE_BYTES_MAX {
                self.heard.clear();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(io::ErrorKind::WouldBlock.into()));
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.heard.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(silent(error)),
            }
        }
    }
}

impl SettleRequest {
    fn message(&self) -> io::Result<Value> {
        let entropy: String = random::<ENTROPY_BYTES>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(json!({
            "unix_ns": unix_ns(),
            "entropy": entropy,
            "hostname": self.hostname,
            "pids": self.pids,
            "reset": self.reset,
        }))
    }
}

/// The current time.
pub(super) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The step that the machine's first process could not perform.
#[derive(Clone, Debug, thiserror::Error)]
#[error("could not {step}: {message}")]
pub(super) struct FailedStep {
    pub(super) step: String,
    pub(super) message: String,
}

/// Gives the timeout of a socket its proper error kind.
fn silent(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(io::ErrorKind::TimedOut, "the machine's agent does not answer");
    }
    error
}

fn random<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A guest that answers this many messages with the result of `answer` for their ids, and then closes the
    /// connection.
    fn guest(count: usize, answer: fn(u64) -> String) -> (Agent, thread::JoinHandle<Vec<Value>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let serve = thread::spawn(move || {
            let lines = io::BufReader::new(theirs.try_clone().unwrap()).lines();
            let hear = |line: io::Result<String>| {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let _ = theirs.write_all(answer(message["id"].as_u64().unwrap()).as_bytes());
                message
            };
            lines.take(count).map(hear).collect()
        });
        (Agent::new(ours), serve)
    }

    #[test]
    fn a_booting_machine_receives_the_time_again_after_its_boot() {
        let (mut agent, serve) = guest(2, |id| format!("{{\"id\":{id},\"kind\":\"ready\"}}\n"));
        let settle = SettleRequest { hostname: None, pids: 7, reset: false };
        agent.boot(&settle, b"{}", SOON).unwrap();
        let heard = serve.join().unwrap();
        let ops: Vec<_> = heard.iter().map(|message| message["op"].as_str().unwrap()).collect();
        assert_eq!(ops, ["boot", "release"]);
        let (first, second) = (heard[0]["settle"]["unix_ns"].as_u64(), heard[1]["unix_ns"].as_u64());
        assert!(first.is_some() && first < second, "{first:?} {second:?}");
    }

    #[test]
    fn replies_to_other_requests_are_ignored() {
        let (mut agent, serve) = guest(1, |id| {
            format!(
                "rubbish\n{{\"id\":{},\"kind\":\"failed\",\"step\":\"a\",\"message\":\"b\"}}\n{{\"id\":{id},\"kind\":\"ready\"}}\n",
                id.wrapping_add(1)
            )
        });
        let settle = SettleRequest { hostname: Some("box".to_owned()), pids: 7, reset: true };
        agent.settle(&settle, SOON).unwrap();
        let message = &serve.join().unwrap()[0];
        assert_eq!(
            (&message["op"], &message["pids"], &message["reset"]),
            (&"settle".into(), &7.into(), &true.into())
        );
        assert_eq!(message["entropy"].as_str().unwrap().len(), 2 * ENTROPY_BYTES);
    }

    #[test]
    fn a_refusal_is_reported_and_a_guest_that_disconnects_or_floods_fails() {
        let (mut agent, serve) = guest(1, |id| {
            format!("{{\"id\":{id},\"kind\":\"failed\",\"step\":\"stop\",\"message\":\"busy\"}}\n")
        });
        assert_eq!(agent.hold(SOON).unwrap_err().to_string(), "could not stop: busy");
        serve.join().unwrap();
        let (mut agent, serve) = guest(1, |_| "x".repeat(3 * LINE_BYTES_MAX));
        assert!(agent.release(SOON).is_err());
        serve.join().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let silent = Agent::new(ours).hold(Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    }
}
