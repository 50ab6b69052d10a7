//! Translates the lines that a bridge sends about a run into events of the API.

use axum::body::BodyDataStream;
use axum::response::Response;
use burrow_api::{CodeError, CodeEvent, CodeResult, CodeRunStatus};
use bytes::{Buf as _, BytesMut};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;

use super::misbehaves;
use burrow_gateway::Slot;
use burrow_http::error::ApiError;

/// Maximum length of a line; our clients accept 8 MiB.
const LINE_BYTES_MAX: usize = (8 << 20) - (64 << 10);

/// Maximum size of the parsed values of one line, which may be a hundred times its length. The bridge leaves out
/// results that would exceed it.
const LINE_HELD_MAX: usize = 64 << 20;

/// Size of a parsed object, and of a value in a list.
const OBJECT_BYTES: usize = 700;
const VALUE_BYTES: usize = 64;

/// The events of one run.
#[derive(Debug)]
pub struct Lines {
    body: BodyDataStream,
    buffer: BytesMut,
    /// The part of the buffer that is known to contain no line end.
    searched: usize,
    /// A run counts as a connection to its sandbox.
    _slot: Slot,
}

/// A line of the bridge, in the format that E2B's clients expect.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Result(Box<ResultLine>),
    Error(CodeError),
    EndOfExecution {
        status: CodeRunStatus,
        execution_count: Option<u64>,
        duration_ms: u64,
    },
    /// Any other event, for example one of a newer bridge, or a count that the last line repeats. Ignored.
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct ResultLine {
    #[serde(default)]
    is_main_result: bool,
    text: Option<String>,
    html: Option<String>,
    markdown: Option<String>,
    svg: Option<String>,
    png: Option<String>,
    jpeg: Option<String>,
    pdf: Option<String>,
    latex: Option<String>,
    json: Option<Value>,
    javascript: Option<String>,
    data: Option<Value>,
    chart: Option<Value>,
    extra: Option<Value>,
}

impl From<ResultLine> for CodeResult {
    fn from(shown: ResultLine) -> Self {
        Self {
            main: shown.is_main_result,
            text: shown.text,
            html: shown.html,
            markdown: shown.markdown,
            svg: shown.svg,
            png: shown.png,
            jpeg: shown.jpeg,
            pdf: shown.pdf,
            latex: shown.latex,
            json: shown.json,
            javascript: shown.javascript,
            data: shown.data,
            chart: shown.chart,
            extra: shown.extra,
        }
    }
}

impl Lines {
    pub fn new(response: Response, slot: Slot) -> Self {
        let body = response.into_body().into_data_stream();
        Self { body, buffer: BytesMut::new(), searched: 0, _slot: slot }
    }

    /// The next event. A stream that ends without its last line was interrupted.
    pub async fn next(&mut self) -> Result<CodeEvent, ApiError> {
        loop {
            while let Some(line) = self.line() {
                if let Some(event) = event(&line)? {
                    return Ok(event);
                }
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(misbehaves());
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(error)) => return Err(misbehaves().cause(error)),
                None => return Err(misbehaves()),
            }
        }
    }

    fn line(&mut self) -> Option<BytesMut> {
        let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at);
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }
}

fn event(line: &[u8]) -> Result<Option<CodeEvent>, ApiError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if held(line) > LINE_HELD_MAX {
        return Err(misbehaves());
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| misbehaves().cause(error))?;
    Ok(match line {
        Line::Stdout { text } => Some(CodeEvent::Stdout { text }),
        Line::Stderr { text } => Some(CodeEvent::Stderr { text }),
        Line::Result(shown) => Some(CodeEvent::Result(Box::new(CodeResult::from(*shown)))),
        Line::Error(error) => Some(CodeEvent::Error(error)),
        Line::EndOfExecution { status, execution_count, duration_ms } => {
            Some(CodeEvent::End { status, execution_count, duration_ms, egress_denied: Vec::new() })
        }
        Line::Other => None,
    })
}

/// An estimate of the RAM that the parsed values of a JSON text take, besides the text itself.
pub fn held(json: &[u8]) -> usize {
    let (mut bytes, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (true, _) => {}
            (false, b'{') => bytes += OBJECT_BYTES,
            (false, b'[' | b',') => bytes += VALUE_BYTES,
            (false, _) => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_whose_values_would_be_too_large_is_rejected() {
        let many = "{\"\":0},".repeat(1 << 20);
        let line = format!(r#"{{"type":"result","json":[{many}0]}}"#);
        assert!(line.len() < LINE_BYTES_MAX);
        assert!(event(line.as_bytes()).is_err());
        let long = format!(r#"{{"type":"result","text":"{}"}}"#, r#"{[,\"]}"#.repeat(1 << 19));
        assert!(event(long.as_bytes()).is_ok(), "a string counts as one value, whatever it contains");
    }

    #[track_caller]
    fn check(line: &str, expected: Option<CodeEvent>) {
        assert_eq!(event(line.as_bytes()).unwrap(), expected, "{line}");
    }

    #[test]
    fn lines_become_events() {
        check("", None);
        check(r#"{"type":"number_of_executions","execution_count":3}"#, None);
        check(r#"{"type":"something_new","x":[1]}"#, None);
        let text = |text: &str| text.to_owned();
        check(
            r#"{"type":"stdout","text":"a\n","timestamp":17}"#,
            Some(CodeEvent::Stdout { text: text("a\n") }),
        );
        let shown = CodeResult { main: true, text: Some(text("2")), ..CodeResult::default() };
        check(
            r#"{"type":"result","text":"2","is_main_result":true,"chart":null}"#,
            Some(CodeEvent::Result(Box::new(shown))),
        );
        let error = CodeError { name: text("E"), value: text("v"), traceback: text("t") };
        check(r#"{"type":"error","name":"E","value":"v","traceback":"t"}"#, Some(CodeEvent::Error(error)));
        check(
            r#"{"type":"end_of_execution","status":"kernel_died","execution_count":null,"duration_ms":5}"#,
            Some(CodeEvent::End {
                status: CodeRunStatus::KernelDied,
                execution_count: None,
                duration_ms: 5,
                egress_denied: Vec::new(),
            }),
        );
    }

    #[test]
    fn malformed_lines_are_rejected() {
        for line in
            ["hello", "[]", r#"{"text":"a"}"#, r#"{"type":"stdout"}"#, r#"{"type":"stdout","text":7}"#]
        {
            assert!(event(line.as_bytes()).is_err(), "{line}");
        }
    }
}
