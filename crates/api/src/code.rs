//! Code on the wire: contexts that keep their variables, and the results of running code in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `POST /v1/sandboxes/{sandbox}/contexts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCodeContext {
    /// `python` when absent; the image determines which other languages exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub language: Option<String>,
    /// Absolute; the home directory of its user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub cwd: Option<String>,
    /// Environment variables, set for the lifetime of the context.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A process of a language that keeps its variables between runs. It lives as long as the processes of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeContext {
    pub id: String,
    pub language: String,
    pub cwd: String,
    pub state: CodeContextState,
    /// Runs since it was created or restarted.
    pub execution_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeContextState {
    Idle,
    Busy,
    /// Its process ended; the next run starts it again, without variables.
    Dead,
}

/// `POST /v1/sandboxes/{sandbox}/contexts/{context}/run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    #[schema(max_length = 1_048_576)]
    pub code: String,
    /// Interrupt the run after this time; no limit when absent. Time in a queue does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub timeout_ms: Option<u64>,
    /// Environment variables for this run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Interrupt the run when it has written more than this; 16 MiB when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub output_bytes_max: Option<u64>,
    /// Return one response when the run has ended ([`CodeRun`]) instead of streaming lines ([`CodeEvent`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// One line of the response to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CodeEvent {
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    /// Displayed output: a plot, a table, the value of the last line.
    Result(Box<CodeResult>),
    /// The code failed.
    Error(CodeError),
    /// The last line.
    End {
        status: CodeRunStatus,
        /// Of the context, including this run; absent if the run was not counted.
        execution_count: Option<u64>,
        duration_ms: u64,
        /// Connections of the sandbox that were denied during the run, each host and port once, at most 16.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        egress_denied: Vec<crate::EgressDenied>,
    },
    /// The last line, when it is unknown how the run ended.
    Broken {
        error: crate::ErrorDetail,
    },
}

/// One displayed object, in every format available. Pictures and PDFs are base64.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodeResult {
    /// Whether it is the value of the last line, rather than something displayed by the code.
    pub main: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub svg: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub png: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdf: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latex: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub javascript: Option<String>,
    /// The columns of a data frame, each a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The data of a plot: its kind, its axes, its points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Value>,
    /// Other formats, by media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// The error that the code raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeError {
    /// `ZeroDivisionError`; for a run that was ended from outside, `KeyboardInterrupt`, `TimeoutError` and the like.
    pub name: String,
    pub value: String,
    /// In the format of the language; lines include their line ends.
    pub traceback: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeRunStatus {
    Ok,
    Error,
    Interrupted,
    TimedOut,
    OutputLimit,
    KernelDied,
}

impl CodeRunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::KernelDied => "kernel_died",
        }
    }
}

/// A run whose client waited for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodeRun {
    pub status: CodeRunStatus,
    pub execution_count: Option<u64>,
    pub duration_ms: u64,
    pub stdout: String,
    pub stderr: String,
    pub results: Vec<CodeResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CodeError>,
    /// The run wrote more than is included here.
    pub truncated: bool,
    /// Connections of the sandbox that were denied during the run, each host and port once, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_denied: Vec<crate::EgressDenied>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_distinguished_by_their_kind() {
        let lines = [
            (r#"{"kind":"stdout","text":"a"}"#, CodeEvent::Stdout { text: "a".to_owned() }),
            (
                r#"{"kind":"result","main":true,"text":"2"}"#,
                CodeEvent::Result(Box::new(CodeResult {
                    main: true,
                    text: Some("2".to_owned()),
                    ..CodeResult::default()
                })),
            ),
            (
                r#"{"kind":"end","status":"timed_out","execution_count":null,"duration_ms":7}"#,
                CodeEvent::End {
                    status: CodeRunStatus::TimedOut,
                    execution_count: None,
                    duration_ms: 7,
                    egress_denied: Vec::new(),
                },
            ),
        ];
        for (text, event) in lines {
            assert_eq!(serde_json::to_string(&event).unwrap(), text);
            assert_eq!(serde_json::from_str::<CodeEvent>(text).unwrap(), event);
        }
        assert_eq!(
            serde_json::to_value(CodeRunStatus::KernelDied).unwrap(),
            CodeRunStatus::KernelDied.as_str()
        );
    }
}
