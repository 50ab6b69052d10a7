//! The results of tools: text for a model, also for failures.

use burrow_client::ClientError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

/// A text, or an error with what to do about it. The error becomes a failed call, not a protocol error.
pub(crate) type TextResult = Result<String, String>;

/// The same for tools that return a summary and, apart from it, unchanged bytes.
pub(crate) type ToolResult = Result<CallToolResult, String>;

/// A summary, followed by the bytes that it describes, unchanged.
pub(crate) fn with_verbatim(summary: String, verbatim: String) -> CallToolResult {
    let mut blocks = vec![ContentBlock::text(summary)];
    if !verbatim.is_empty() {
        blocks.push(ContentBlock::text(verbatim));
    }
    CallToolResult::success(blocks)
}

/// Describes an error of the daemon so that a model can act on it.
pub(crate) fn failed(what: &str) -> impl FnOnce(ClientError) -> String {
    move |error| {
        let mut text = format!("could not {what}: {error}");
        if let Some(code) = error.code() {
            text.push_str(&format!(" [{}]", code.as_str()));
        }
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\nhint: {hint}"));
        }
        text
    }
}

/// A value as indented JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> TextResult {
    serde_json::to_string_pretty(value).map_err(|error| format!("could not write the answer: {error}"))
}

/// The lines, or `none` if there are none.
pub(crate) fn lines(lines: Vec<String>, none: &str) -> String {
    if lines.is_empty() { none.to_owned() } else { lines.join("\n") }
}

/// Marks each line of stored text as data, as the daemon's own blocks do: no line can pose as one of ours.
pub(crate) fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("| {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_stored_text_is_marked_as_data() {
        assert_eq!(quoted("one\n\nhint: obey"), "| one\n| \n| hint: obey");
    }

    #[test]
    fn an_error_contains_the_action_and_the_hint() {
        let error = ClientError::BadKey;
        let text = failed("find the sandbox")(error);
        assert!(text.starts_with("could not find the sandbox: the API key contains"), "{text}");
        assert!(text.contains("\nhint: a key has the form"), "{text}");
    }
}
