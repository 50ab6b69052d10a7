//! Chat completions and messages in the format of two known APIs, plain and streamed; and a host that returns what it
//! received.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};

use super::{Answer, RecordedRequest, reply, whole};

pub(super) async fn answer(seen: &RecordedRequest, request: Request<Incoming>) -> Answer {
    let body = whole(request).await;
    match (seen.host.as_str(), seen.path.as_str()) {
        ("openai", "/v1/chat/completions") => openai(seen, &body),
        ("anthropic", "/v1/messages") => anthropic(seen, &body),
        ("curl" | "java", path) => echo(seen, path, &body),
        _ => {
            reply(StatusCode::NOT_FOUND, "application/json", "{\"error\": {\"message\": \"no such thing\"}}")
        }
    }
}

/// Returns the request in headers and body; `/fail` as an error, `/events` as a stream of events.
fn echo(seen: &RecordedRequest, path: &str, body: &Bytes) -> Answer {
    let credential = seen.credential();
    let forms = forms(credential.strip_prefix("Bearer ").unwrap_or(&credential));
    let told = json!({ "version": format!("{:?}", seen.version), "credential": credential, "forms": forms,
        "path": seen.path, "body": String::from_utf8_lossy(body) });
    let mut answer = match path {
        "/events" => events(forms.iter().map(|form| format!("data: {form}\n\n"))),
        "/fail" => reply(StatusCode::INTERNAL_SERVER_ERROR, "application/json", told.to_string()),
        _ => reply(StatusCode::OK, "application/json", told.to_string()),
    };
    answer.headers_mut().insert("x-said", credential.parse().unwrap());
    answer
}

/// A secret in the usual quoted form of error messages.
pub(super) fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let escaped = secret.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    vec![
        secret.to_owned(),
        super::base64(secret),
        hex.to_uppercase(),
        hex,
        escaped,
        secret.replace('/', "\\/"),
    ]
}

/// Sends every event in two pieces, cut in the middle.
fn events(events: impl Iterator<Item = String>) -> Answer {
    let mut pieces = Vec::new();
    for event in events {
        let (front, back) = event.split_at(event.len() / 2);
        pieces.extend([Bytes::from(front.to_owned()), Bytes::from(back.to_owned())]);
    }
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    // A pause between them, so that they do not arrive in one frame.
    let stream = futures_util::stream::unfold(frames, |mut frames| async move {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        frames.next().map(|frame| (frame, frames))
    });
    let body = StreamBody::new(stream).boxed_unsync();
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

fn openai(seen: &RecordedRequest, body: &Bytes) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = format!(
        "echo {} by {}",
        asked["messages"][0]["content"].as_str().unwrap_or_default(),
        seen.credential()
    );
    let about =
        |object: &str| json!({ "id": "chatcmpl-1", "object": object, "created": 1, "model": asked["model"] });
    if asked["stream"] != json!(true) {
        let mut whole = about("chat.completion");
        let message = json!({ "role": "assistant", "content": said });
        whole["choices"] = json!([{ "index": 0, "message": message, "finish_reason": "stop" }]);
        whole["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
        return reply(StatusCode::OK, "application/json", whole.to_string());
    }
    let chunk = |delta: Value, finish: Value| {
        let mut chunk = about("chat.completion.chunk");
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        format!("data: {chunk}\n\n")
    };
    let words = said.split_inclusive(' ').map(|word| chunk(json!({ "content": word }), Value::Null));
    let mut all: Vec<String> = words.collect();
    all.insert(0, chunk(json!({ "role": "assistant", "content": "" }), Value::Null));
    all.extend([chunk(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()]);
    events(all.into_iter())
}

fn anthropic(seen: &RecordedRequest, body: &Bytes) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = format!(
        "echo {} by {}",
        asked["messages"][0]["content"].as_str().unwrap_or_default(),
        seen.credential()
    );
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let message = |content: Value, stop: Value| {
        json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage })
    };
    if asked["stream"] != json!(true) {
        let whole = message(json!([{ "type": "text", "text": said }]), json!("end_turn"));
        return reply(StatusCode::OK, "application/json", whole.to_string());
    }
    let mut all = vec![
        json!({ "type": "message_start", "message": message(json!([]), Value::Null) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    ];
    all.extend(said.split_inclusive(' ').map(|word| {
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": word } })
    }));
    all.extend([
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null }, "usage": usage }),
        json!({ "type": "message_stop" }),
    ]);
    events(
        all.into_iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())),
    )
}
