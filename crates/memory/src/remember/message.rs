//! A message of an agent loop, and the conversion of common model APIs' messages to plain text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `user`, `assistant`, `system`, `tool`, …
    pub role: String,
    pub content: String,
}

/// Parts of one message that are read: a message with more is a file.
const PARTS_MAX: usize = 1_000;

impl Message {
    /// Parses a message in the format of OpenAI's and Anthropic's APIs: content as a string or a list of parts, tool calls
    /// beside it or among the parts. Images and other blobs are named, not kept. `None` if it has no role.
    pub fn from_json(value: &Value) -> Option<Self> {
        let role = value.get("role")?.as_str()?.to_owned();
        let mut parts: Vec<String> = Vec::new();
        match value.get("content") {
            Some(Value::String(text)) => parts.push(text.clone()),
            Some(Value::Array(list)) => parts.extend(list.iter().take(PARTS_MAX).filter_map(part)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
        }
        if let Some(Value::Array(calls)) = value.get("tool_calls") {
            parts.extend(calls.iter().take(PARTS_MAX).filter_map(|call| {
                let function = call.get("function").unwrap_or(call);
                tool_call(function.get("name")?.as_str()?, function.get("arguments"))
            }));
        }
        parts.retain(|part| !part.trim().is_empty());
        Some(Self { role, content: parts.join("\n") })
    }
}

fn part(part: &Value) -> Option<String> {
    if let Value::String(text) = part {
        return Some(text.clone());
    }
    match part.get("type")?.as_str()? {
        "text" | "input_text" | "output_text" => Some(part.get("text")?.as_str()?.to_owned()),
        "tool_use" => tool_call(part.get("name")?.as_str()?, part.get("input")),
        "tool_result" => {
            let content = part.get("content")?;
            let text = match content {
                Value::String(text) => text.clone(),
                Value::Array(list) => {
                    list.iter().take(PARTS_MAX).filter_map(self::part).collect::<Vec<_>>().join("\n")
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
            };
            Some(format!("[tool result] {text}"))
        }
        // A model's reasoning is not part of the conversation.
        "thinking" | "reasoning" | "redacted_thinking" => None,
        other => Some(format!("[{}]", super::cut(other, 40))),
    }
}

fn tool_call(name: &str, arguments: Option<&Value>) -> Option<String> {
    let arguments = match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            value.to_string()
        }
    };
    Some(format!("[tool call] {name} {arguments}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, expected: Option<&str>) {
        assert_eq!(Message::from_json(&value).map(|message| message.content).as_deref(), expected);
    }

    #[test]
    fn messages_of_common_apis_become_text() {
        check(json!({"role": "user", "content": "hi"}), Some("hi"));
        check(
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}),
            Some("a\n[image_url]"),
        );
        check(
            json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "run", "arguments": "{\"x\":1}"}}]}),
            Some("[tool call] run {\"x\":1}"),
        );
        check(
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "name": "f", "input": {"y": 2}}]}),
            Some("[tool call] f {\"y\":2}"),
        );
        check(
            json!({"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "42"}]}]}),
            Some("[tool result] 42"),
        );
        check(json!({"content": "no role"}), None);
        check(json!({"role": "user", "content": 7}), Some(""));
    }
}
