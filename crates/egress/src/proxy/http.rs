//! Forwards plaintext HTTP: every request is checked before it is forwarded; responses are spliced.
//!
//! ```text
//! requests ──► framer ──► check ───► host          a refused request ends the connection: earlier requests are
//! answers  ◄────────── spliced ◄──── host          still answered, then the refusal follows
//! ```

use std::io;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::flow::Flow;
use super::{Pipes, refuse};
use crate::account::Account;
use crate::http_head::{Framer, FramerStep, Head};
use crate::policy::{Denial, Host};

/// Size of one read.
const PIECE: usize = 16 * 1024;

/// How long a host may take to answer the requests before a refused one.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest head of the response to an upgrade.
const ANSWER_HEAD_MAX: usize = 32 * 1024;

pub(super) async fn run(flow: &Flow, pipes: &Pipes, sandbox: &Account, first: Vec<u8>) -> io::Result<()> {
    let mut requests = Requests { flow, sandbox, framer: Framer::new(), buffer: first, passed: 0 };
    if requests.upgrade().await? {
        let rest = std::mem::take(&mut requests.buffer);
        return flow.run_bytes(pipes, sandbox, rest).await;
    }
    let answers = flow.answers(pipes, sandbox);
    tokio::pin!(answers);
    let end = tokio::select! {
        end = requests.pass() => end?,
        answered = &mut answers => {
            answered?;
            // The host has closed. Further bytes of the client are discarded.
            refuse::close_gracefully(&flow.client, &[]).await;
            return Ok(());
        }
    };
    shutdown(&flow.upstream, Shutdown::Write)?;
    match end {
        RequestsEnd::Closed => {
            answers.await?;
            Ok(shutdown(&flow.client, Shutdown::Write)?)
        }
        RequestsEnd::Refused(refusal) => {
            flow.set_trouble(refusal.reason.to_string());
            sandbox.denied(&flow.destination, flow.protocol, &refusal.reason);
            if requests.passed > 0 {
                // A host that does not answer must not prevent the refusal from being sent.
                let _ = timeout(ANSWERS_TIMEOUT, answers).await;
            }
            let words = refuse::denied_response(&flow.destination, &refusal.reason, refusal.status);
            refuse::close_gracefully(&flow.client, &words).await;
            Ok(())
        }
    }
}

/// How the requests of a connection ended.
#[derive(Debug)]
enum RequestsEnd {
    /// The client has closed its side.
    Closed,
    Refused(Refusal),
}

#[derive(Debug)]
struct Refusal {
    reason: Denial,
    status: Option<u16>,
}

/// The requests of one connection.
struct Requests<'a> {
    flow: &'a Flow,
    sandbox: &'a Account,
    framer: Framer,
    /// Received bytes that were not forwarded yet.
    buffer: Vec<u8>,
    /// The number of forwarded requests.
    passed: u64,
}

impl Requests<'_> {
    /// Forwards requests until the client closes its side or one is refused.
    async fn pass(&mut self) -> io::Result<RequestsEnd> {
        loop {
            match self.framer.next(&self.buffer) {
                Ok(FramerStep::Head(head, length)) => {
                    if let Err(refusal) = self.judge(&head) {
                        return Ok(RequestsEnd::Refused(refusal));
                    }
                    self.passed += 1;
                    self.forward(length).await?;
                }
                Ok(FramerStep::Pass(count)) => self.forward(count).await?,
                Ok(FramerStep::NeedMore) => {
                    if !receive(&self.flow.client, &mut self.buffer).await? {
                        return Ok(RequestsEnd::Closed);
                    }
                }
                Err(error) => {
                    let reason = Denial::Malformed { what: error.to_string() };
                    return Ok(RequestsEnd::Refused(Refusal { reason, status: Some(error.status()) }));
                }
            }
        }
    }

    /// Checks that a request is for the host of its connection.
    fn judge(&self, head: &Head) -> Result<(), Refusal> {
        let refuse = |reason, status| Err(Refusal { reason, status });
        let destination = &self.flow.destination;
        // A rule about an address allows every host name on it.
        if matches!(destination.host, Host::Name(_)) && head.host != destination.host {
            let (opened, asked) = (destination.host.clone(), head.host.clone());
            return refuse(Denial::NameMismatch { opened, asked }, None);
        }
        if head.port.is_some_and(|port| port != destination.port) {
            let what = "the port in Host differs from the connection's".to_owned();
            return refuse(Denial::Malformed { what }, Some(421));
        }
        // The response that belongs to the upgrade could not be identified.
        if head.upgrade.is_some() && self.passed > 0 {
            let what = "an upgrade on a connection with earlier requests".to_owned();
            return refuse(Denial::Unsupported { what }, None);
        }
        Ok(())
    }

    /// If the first request is an upgrade, waits for the host's response (E-T8); `true` if the host agreed, so that
    /// the following data is not HTTP.
    async fn upgrade(&mut self) -> io::Result<bool> {
        let mut ahead = Framer::new();
        let length = match ahead.next(&self.buffer) {
            Ok(FramerStep::Head(head, length)) if head.upgrade.is_some() && self.judge(&head).is_ok() => {
                length
            }
            // An invalid request is detected again when it is to be forwarded.
            Ok(_) | Err(_) => return Ok(false),
        };
        self.framer = ahead;
        self.passed += 1;
        self.forward(length).await?;
        let mut answer = Vec::new();
        loop {
            if !receive(&self.flow.upstream, &mut answer).await? {
                self.flow.send_client(self.sandbox, &answer).await?;
                return Ok(false);
            }
            while let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let informational = answer.starts_with(b"HTTP/1.1 1");
                let switching = answer.starts_with(b"HTTP/1.1 101");
                let upto = if informational && !switching { end + 4 } else { answer.len() };
                self.flow.send_client(self.sandbox, &answer[..upto]).await?;
                answer.drain(..upto);
                if !informational || switching {
                    return Ok(switching);
                }
            }
            if answer.len() > ANSWER_HEAD_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the head of the response is too long",
                ));
            }
        }
    }

    async fn forward(&mut self, count: usize) -> io::Result<()> {
        self.flow.send_upstream(self.sandbox, &self.buffer[..count]).await?;
        self.buffer.drain(..count);
        if self.buffer.is_empty() {
            // An idle connection keeps no buffer.
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// Waits for more bytes; `false` at the end of the stream. The framer refuses input that would make the buffer exceed
/// the size of a head.
async fn receive(from: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        from.readable().await?;
        buffer.reserve(PIECE);
        match from.try_read_buf(buffer) {
            Ok(count) => return Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
