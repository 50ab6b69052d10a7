//! The output of a process as a stream of events; the process waits for its reader, so nothing is lost.
//!
//! ```text
//!   start ─► data… keepalive… ─► end            the process ended
//!   start ─► data… keepalive… ─► end            the process ended
//!                            ├─► error          the client's time limit was reached (the process is killed too), or a failure
//!                            └─► cut            the sandbox no longer exists
//!
//! One frame of the guest is buffered at a time. If the client disconnects, the process continues.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::OutputStream;
use burrow_engine::{Guest, StartedExec};
use burrow_guest::protocol::{AttachNotice, ExecInfo, ExecOutcome, ExecState, Frame};
use burrow_model::ExecId;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::{RpcCode, RpcError};
use super::Inside;
use super::connect::{StreamCut, cuttable, end, enveloped, message};
use burrow_gateway::e2b::reach;
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::exec_trace::ExecTrace;
use burrow_http::remember::{Tails, remember_at_end, remembered};
use burrow_http::stream::{GuestReader, GuestWriter, hung_up, next_frame, notice};

/// The guest kills a process that reached its time limit. The daemon waits this long for the guest's report.
const LAST_WORD: Duration = Duration::from_millis(250);

pub(super) struct Output {
    app: Arc<App>,
    guest: Guest,
    exec: ExecId,
    reader: GuestReader,
    /// Kept open: a guest takes its closing for a disconnect of the reader.
    _writer: GuestWriter,
    pid: u32,
    terminal: bool,
    keepalive: Duration,
    deadline: Option<Instant>,
    /// `None` for readers that did not start the process.
    trace: Option<ExecTrace>,
    tails: Tails,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begins,
    Goes,
    /// The last event was sent; only the end of the stream is missing.
    Ended,
    Over,
}

impl Output {
    pub(super) fn started(app: &Arc<App>, inside: &Inside, started: StartedExec, trace: ExecTrace) -> Self {
        Self::new(app, inside, started, Some(trace))
    }

    pub(super) fn joined(app: &Arc<App>, inside: &Inside, joined: StartedExec) -> Self {
        Self::new(app, inside, joined, None)
    }

    fn new(app: &Arc<App>, inside: &Inside, exec: StartedExec, trace: Option<ExecTrace>) -> Self {
        let StartedExec { id, info, guest, connection } = exec;
        let (reader, writer) = connection.split();
        Self {
            app: app.clone(),
            guest,
            exec: id,
            reader,
            _writer: writer,
            pid: info.pid,
            terminal: info.terminal,
            keepalive: inside.keepalive,
            deadline: inside.timeout.map(|timeout| Instant::now() + timeout),
            trace,
            tails: Tails::default(),
            stage: Stage::Begins,
        }
    }

    pub(super) fn streamed(self) -> Response {
        cuttable(stream::unfold(self, |mut output| async move {
            let message = output.next().await?;
            Some((message, output))
        }))
    }

    async fn next(&mut self) -> Option<Result<Bytes, StreamCut>> {
        match self.stage {
            Stage::Begins => {
                self.stage = Stage::Goes;
                Some(Ok(event(json!({ "start": { "pid": self.pid } }))))
            }
            Stage::Goes => Some(self.go_on().await),
            Stage::Ended => {
                self.stage = Stage::Over;
                Some(Ok(end(None)))
            }
            Stage::Over => None,
        }
    }

    async fn go_on(&mut self) -> Result<Bytes, StreamCut> {
        let deadline = self.deadline.map(|deadline| deadline + LAST_WORD);
        let frame = tokio::select! {
            biased;
            frame = next_frame(&self.app, &self.guest, &mut self.reader) => frame,
            () = until(deadline) => return Ok(self.fail(&out_of_time())),
            () = tokio::time::sleep(self.keepalive) => return Ok(event(json!({ "keepalive": {} }))),
        };
        match frame {
            None => {
                let error = RpcError::new(
                    RpcCode::Unavailable,
                    "the daemon is shutting down; connect again in a moment",
                );
                Ok(self.fail(&error))
            }
            Some(Err(error)) => self.lose(error.into()).await,
            Some(Ok(None)) => self.lose(hung_up(&self.guest).into()).await,
            Some(Ok(Some(frame))) => Ok(self.pass_on(&frame).await),
        }
    }

    async fn pass_on(&mut self, frame: &Frame) -> Bytes {
        if let Some((stream, _, bytes)) = convert::stream_of(frame) {
            self.tails.push(stream, bytes);
            return data(self.terminal, stream, bytes);
        }
        match notice(&self.guest, frame) {
            Ok(AttachNotice::Exit(info)) => self.exit(info).await,
            // Only readers of old output get gaps: this reader continues from the current position.
            Ok(AttachNotice::Gap { .. }) => event(json!({ "keepalive": {} })),
            Ok(AttachNotice::Drained { .. }) => self.fail(&hung_up(&self.guest).into()),
            Err(error) => self.fail(&error.into()),
        }
    }

    async fn exit(&mut self, info: ExecInfo) -> Bytes {
        let outcome = match &info.state {
            ExecState::Ended(outcome) => outcome.clone(),
            ExecState::Running => return self.fail(&hung_up(&self.guest).into()),
        };
        let exec = convert::exec_started(&self.guest.sandbox().id, info);
        if let Some(trace) = &self.trace {
            trace.ended(&exec);
        }
        self.stage = Stage::Ended;
        remembered(&self.app, &self.guest, exec, &self.tails).await;
        if outcome.timed_out {
            return self.fail(&out_of_time());
        }
        event(json!({ "end": ended(&outcome) }))
    }

    /// The connection to the guest is lost. When a stream is interrupted, clients ask whether the sandbox is running,
    /// and report that it was killed. After an error, the npm client does not ask.
    async fn lose(&mut self, error: RpcError) -> Result<Bytes, StreamCut> {
        if !reach::is_ended(&self.app, &self.guest.sandbox().id).await {
            return Ok(self.fail(&error));
        }
        self.stage = Stage::Over;
        Err(StreamCut)
    }

    fn fail(&mut self, error: &RpcError) -> Bytes {
        self.stage = Stage::Over;
        end(Some(error))
    }
}

impl Drop for Output {
    /// The client disconnected; the process continues, and is recorded when it ends.
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Begins | Stage::Goes) {
            remember_at_end(&self.app, &self.guest, &self.exec, None);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn out_of_time() -> RpcError {
    RpcError::new(RpcCode::DeadlineExceeded, "the command reached its time limit and was killed")
}

fn event(event: Value) -> Bytes {
    message(&json!({ "event": event }))
}

/// The most frequent message, serialised without an intermediate value.
fn data(terminal: bool, stream: OutputStream, bytes: &[u8]) -> Bytes {
    let field = match (terminal, stream) {
        (true, _) => "pty",
        (false, OutputStream::Stdout) => "stdout",
        (false, OutputStream::Stderr) => "stderr",
    };
    let mut json = String::with_capacity(bytes.len().div_ceil(3) * 4 + 48);
    json.push_str(r#"{"event":{"data":{""#);
    json.push_str(field);
    json.push_str(r#"":""#);
    STANDARD.encode_string(bytes, &mut json);
    json.push_str(r#""}}}"#);
    enveloped(0, json.as_bytes())
}

fn ended(outcome: &ExecOutcome) -> Value {
    match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => {
            json!({ "exitCode": code, "exited": true, "status": format!("exit status {code}") })
        }
        (None, signal) => {
            let signal = signal.map_or_else(|| "unknown".to_owned(), convert::signal_name);
            let status = format!("signal: {signal}");
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_base64_in_json_in_an_envelope() {
        let bytes = data(false, OutputStream::Stdout, b"hi\n");
        assert_eq!(&bytes[5..], br#"{"event":{"data":{"stdout":"aGkK"}}}"#);
        assert_eq!(u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize, bytes.len() - 5);
        assert!(String::from_utf8_lossy(&data(true, OutputStream::Stdout, b"x")).contains("pty"));
    }

    #[test]
    fn the_end_event_distinguishes_exits_from_signals() {
        let outcome = |exit_code, signal| ExecOutcome {
            exit_code,
            signal,
            timed_out: false,
            killed_from_outside: false,
            cpu_us: 0,
            ram_max_bytes: 0,
            wall_us: 0,
            ended_ms: 0,
        };
        assert_eq!(ended(&outcome(Some(3), None))["exitCode"], 3);
        let killed = ended(&outcome(None, Some(9)));
        assert_eq!((&killed["exitCode"], &killed["exited"]), (&json!(-1), &json!(false)));
        assert_eq!(killed["status"], "signal: SIGKILL");
    }
}
