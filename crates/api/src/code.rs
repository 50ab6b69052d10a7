//! Code on the wire: contexts that keep their variables, and what running code in one comes to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `POST /v1/sandboxes/{sandbox}/contexts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCodeContext {
    /// `python` when absent; which others there are is the image's to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub language: Option<String>,
    /// Absolute; the home of the user it runs as when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub cwd: Option<String>,
    /// For its whole life.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A language's process that keeps its variables between runs, and as long as the processes of its sandbox are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeContext {
    pub id: String,
    pub language: String,
    pub cwd: String,
    pub state: CodeContextState,
    /// Runs since it was made or restarted.
    pub execution_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeContextState {
    Idle,
    Busy,
    /// Its process ended; the next run starts it anew, with no variables.
    Dead,
}

/// `POST /v1/sandboxes/{sandbox}/contexts/{context}/run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    #[schema(max_length = 1_048_576)]
    pub code: String,
    /// Interrupt it after this time; never when absent. Time in a queue does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub timeout_ms: Option<u64>,
    /// Variables of the environment during this run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Interrupt it when it has written more than this; 16 MiB when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub output_bytes_max: Option<u64>,
    /// Answer when it has ended ([`CodeRun`]) instead of line by line ([`CodeEvent`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// One line of a run's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CodeEvent {
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    /// Something shown: a plot, a table, the value of the last line.
    Result(Box<CodeResult>),
    /// The code failed.
    Error(CodeError),
    /// The last line.
    End {
        status: CodeRunStatus,
        /// Of the context, with this run; absent where none was counted.
        execution_count: Option<u64>,
        duration_ms: u64,
    },
    /// The last line, when nobody will say how it ended.
    Broken {
        error: crate::ErrorDetail,
    },
}

/// One thing shown, in every form there is of it. Pictures and PDFs are base64.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodeResult {
    /// The value of the last line, rather than something shown on the way.
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
    /// Columns of a data frame, each a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// What a plot shows: its kind, its axes, its points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Value>,
    /// Forms of other kinds, by media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// What code failed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeError {
    /// `ZeroDivisionError`; of a run that was ended from outside `KeyboardInterrupt`, `TimeoutError` and the like.
    pub name: String,
    pub value: String,
    /// As the language writes it, lines with their line ends.
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

/// A run that was waited for.
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
    /// More was written than is shown here.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_their_kind() {
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
                CodeEvent::End { status: CodeRunStatus::TimedOut, execution_count: None, duration_ms: 7 },
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
