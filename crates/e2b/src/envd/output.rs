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
use burrow_engine::{ExecEvent, ExecSession, OutputStream};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{ExecInfo, ExecOutcome};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::{RpcCode, RpcError};
use super::connect::{StreamCut, cuttable, end, enveloped, message};
use super::inside::EnvdRequest;
use burrow_gateway::e2b::reach;
use burrow_http::app::App;
use burrow_http::convert;

/// The guest kills a process that reached its time limit. The daemon waits this long for the guest's report.
const LAST_WORD: Duration = Duration::from_millis(250);

pub(super) struct Output {
    app: Arc<App>,
    session: ExecSession,
    keepalive: Duration,
    deadline: Option<Instant>,
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
    pub(super) fn of(app: &Arc<App>, inside: &EnvdRequest, session: ExecSession) -> Self {
        Self {
            app: app.clone(),
            session,
            keepalive: inside.keepalive,
            deadline: inside.timeout.map(|timeout| Instant::now() + timeout),
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
                Some(Ok(event(json!({ "start": { "pid": self.session.info().pid } }))))
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
        let next = tokio::select! {
            biased;
            next = self.app.draining.run_until_cancelled(self.session.next()) => next,
            () = until(deadline) => return Ok(self.fail(&out_of_time())),
            () = tokio::time::sleep(self.keepalive) => return Ok(event(json!({ "keepalive": {} }))),
        };
        match next {
            None => {
                let error = RpcError::new(
                    RpcCode::Unavailable,
                    "the daemon is shutting down; connect again in a moment",
                );
                Ok(self.fail(&error))
            }
            Some(Err(error)) => self.lose(error.into()).await,
            Some(Ok(ExecEvent::Output { stream, bytes, .. })) => {
                Ok(data(self.session.info().terminal, stream, &bytes))
            }
            // Only readers of old output get gaps: this reader continues from the current position.
            Some(Ok(ExecEvent::Gap { .. })) => Ok(event(json!({ "keepalive": {} }))),
            Some(Ok(ExecEvent::Drained { .. })) => {
                let error = self.session.guest().error(GuestError::HungUp);
                Ok(self.fail(&error.into()))
            }
            Some(Ok(ExecEvent::Exit(info))) => Ok(self.exit(info).await),
        }
    }

    async fn exit(&mut self, info: ExecInfo) -> Bytes {
        let Some(outcome) = self.session.ended(info).await.record.outcome() else {
            let error = self.session.guest().error(GuestError::OutOfTurn);
            return self.fail(&error.into());
        };
        self.stage = Stage::Ended;
        if outcome.timed_out {
            return self.fail(&out_of_time());
        }
        event(json!({ "end": ended(&outcome) }))
    }

    /// The connection to the guest is lost. When a stream is interrupted, clients ask whether the sandbox is running,
    /// and report that it was killed. After an error, the npm client does not ask.
    async fn lose(&mut self, error: RpcError) -> Result<Bytes, StreamCut> {
        if !reach::is_ended(&self.app, &self.session.guest().sandbox().id).await {
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
