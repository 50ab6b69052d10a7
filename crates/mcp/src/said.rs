//! What tools answer: text for a model, also where something failed.

use burrow_client::ClientError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

/// A text, or why there is none and what to do about it. The second is told as a failed call, not as a broken server.
pub(crate) type Said = Result<String, String>;

/// The same where what is told about an output is parted from the output itself.
pub(crate) type Told = Result<CallToolResult, String>;

/// What is told, and beside it the bytes it is about, to the letter.
pub(crate) fn beside(told: String, verbatim: String) -> CallToolResult {
    let mut blocks = vec![ContentBlock::text(told)];
    if !verbatim.is_empty() {
        blocks.push(ContentBlock::text(verbatim));
    }
    CallToolResult::success(blocks)
}

/// An error of the daemon's, in words a model can act on.
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

/// A value as a model reads it best.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Said {
    serde_json::to_string_pretty(value).map_err(|error| format!("could not write the answer: {error}"))
}

/// Lines, or a word that there are none.
pub(crate) fn lines(lines: Vec<String>, none: &str) -> String {
    if lines.is_empty() { none.to_owned() } else { lines.join("\n") }
}

/// Stored text as lines of data, marked as the daemon's own blocks mark them: none can pose as one of ours.
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
    fn an_error_says_what_was_tried_and_what_to_do() {
        let error = ClientError::BadKey;
        let text = failed("look up the sandbox")(error);
        assert!(text.starts_with("could not look up the sandbox: the API key holds"), "{text}");
        assert!(text.contains("\nhint: a key looks like"), "{text}");
    }
}
