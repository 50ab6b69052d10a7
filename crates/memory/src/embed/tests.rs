//! The remote embedder against a test server whose responses the test determines.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

type Respond = Arc<dyn Fn(&Value) -> (u16, String) + Send + Sync>;

/// The requests that the server received: head and document.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

async fn serve(answer: Respond) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked: Requests = Arc::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut wire, _)) = listener.accept().await {
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
            tokio::spawn(async move {
                let mut read = Vec::new();
                let (head, length) = loop {
                    let mut part = [0; 4096];
                    let count = wire.read(&mut part).await.unwrap();
                    assert!(count > 0);
                    read.extend_from_slice(&part[..count]);
                    if let Some(at) = read.windows(4).position(|part| part == b"\r\n\r\n") {
                        let head = String::from_utf8(read[..at].to_vec()).unwrap();
                        let length = head.to_lowercase().lines().find_map(|line| {
                            line.strip_prefix("content-length: ").map(|n| n.trim().parse::<usize>().unwrap())
                        });
                        read.drain(..at + 4);
                        break (head, length.unwrap_or(0));
                    }
                };
                while read.len() < length {
                    let mut part = [0; 4096];
                    let count = wire.read(&mut part).await.unwrap();
                    read.extend_from_slice(&part[..count]);
                }
                let document: Value = serde_json::from_slice(&read).unwrap();
                let (status, body) = answer(&document);
                seen.lock().unwrap().push((head, document));
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = wire.write_all(head.as_bytes()).await;
                let _ = wire.write_all(body.as_bytes()).await;
            });
        }
    });
    (url, asked)
}

fn options(url: &str, dims: usize) -> RemoteOptions {
    let endpoint = EndpointOptions {
        url: url.to_owned(),
        key: Some("sekret".to_owned()),
        timeout: Duration::from_secs(10),
    };
    RemoteOptions { endpoint, model: "embed-small".to_owned(), dims }
}

async fn embed(options: RemoteOptions, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
    let remote = Remote::new(options, tokio::runtime::Handle::current())?;
    tokio::task::spawn_blocking(move || {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        remote.embed(&texts)
    })
    .await
    .unwrap()
}

/// Vectors of two numbers: the length of the text, and 1.
fn honest(document: &Value) -> (u16, String) {
    let texts = document["input"].as_array().unwrap();
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| json!({"index": index, "embedding": [text.as_str().unwrap().len(), 1]}))
        .collect();
    (200, json!({ "data": data }).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_are_normalised_and_in_the_order_of_the_texts() {
    let (url, asked) = serve(Arc::new(honest)).await;
    let texts: Vec<String> = (1..=100).map(|n| "x".repeat(n)).chain([String::new()]).collect();
    let vectors = embed(options(&format!("{url}/"), 2), texts).await.unwrap();
    assert_eq!(vectors.len(), 101);
    for (n, vector) in (1u8..=100).zip(&vectors) {
        assert!((vector[0] / vector[1] - f32::from(n)).abs() < 1e-2 * f32::from(n), "{n} {vector:?}");
        assert!((vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2, "101 texts are two requests");
    let (head, document) = &asked[0];
    assert!(head.starts_with("POST /v1/embeddings HTTP/1.1"), "{head}");
    assert!(head.to_lowercase().contains("authorization: bearer sekret"), "{head}");
    assert_eq!(document["model"], "embed-small");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_responses_are_reported() {
    let bodies: [(u16, &str, &str); 8] = [
        (200, r#"{"data": []}"#, "0 vectors for 1 texts"),
        (200, r#"{}"#, "it has no `data`"),
        (200, r#"{"data": [{"index": 5, "embedding": [1, 2]}]}"#, "out of range"),
        (200, r#"{"data": [{"embedding": [1, 2, 3]}]}"#, "3 dimensions, 2 are configured"),
        (200, r#"{"data": [{"embedding": [1, "x"]}]}"#, "not a number"),
        (200, "<html>", "is not JSON"),
        (401, r#"{"error": {"message": "bad\u001b[31m key"}}"#, "answered 401: bad [31m key"),
        (500, "oops", "answered 500: oops"),
    ];
    for (status, body, expected) in bodies {
        let (url, _) = serve(Arc::new(move |_: &Value| (status, body.to_owned()))).await;
        let error = embed(options(&url, 2), vec!["a".to_owned()]).await.unwrap_err();
        let message =
            if let EmbedError::Endpoint(inner) = &error { inner.to_string() } else { error.to_string() };
        assert!(message.contains(expected), "{body}: {message}");
        assert!(!format!("{error:?}").contains("sekret"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_and_silent_servers_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut silent = options(&url, 2);
    silent.endpoint.timeout = Duration::from_millis(50);
    let error = embed(silent, vec!["a".to_owned()]).await.unwrap_err();
    assert!(matches!(error, EmbedError::Endpoint(EndpointError::Late { .. })), "{error:?}");
    drop(listener);
    let error = embed(options(&url, 2), vec!["a".to_owned()]).await.unwrap_err();
    assert!(matches!(error, EmbedError::Endpoint(EndpointError::Reach { .. })), "{error:?}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn invalid_endpoint_urls_are_refused_at_once() {
    for url in ["", "host/v1", "ftp://host/v1", "https://", "http://host/v1?x=1", "http://ho st"] {
        let made = Remote::new(options(url, 2), tokio::runtime::Handle::current());
        assert!(matches!(made, Err(EmbedError::Endpoint(EndpointError::Address { .. }))), "{url}: {made:?}");
    }
    for dims in [0, 100_000] {
        assert!(
            Remote::new(options("http://127.0.0.1:1/v1", dims), tokio::runtime::Handle::current()).is_err()
        );
    }
    let debug = format!("{:?}", options("http://host/v1", 2));
    assert!(debug.contains("***") && !debug.contains("sekret"), "{debug}");
}

#[test]
fn an_error_names_the_missing_files_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let error = MiniLm::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("contains neither `model_quantized.onnx`"), "{error}");
    std::fs::write(folder.path().join("model.onnx"), b"not a model").unwrap();
    let error = MiniLm::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("vocab.txt"), "{error}");
    std::fs::write(folder.path().join("vocab.txt"), "[UNK]\n[CLS]\n[SEP]\nthe").unwrap();
    assert!(matches!(MiniLm::open(folder.path()), Err(EmbedError::Load { .. })));
    assert!(error.hint().is_some());
}
