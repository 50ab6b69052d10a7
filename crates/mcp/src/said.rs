//! What tools answer: text for a model, also where something failed.

use burrow_client::ClientError;
use serde::Serialize;

/// A text, or why there is none and what to do about it. The second is told as a failed call, not as a broken server.
pub(crate) type Said = Result<String, String>;

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
pub(crate) fn json<T: Serialize>(value: &T) -> Said {
    serde_json::to_string_pretty(value).map_err(|error| format!("could not write the answer: {error}"))
}
