//! A remote embedder against a server of this process that answers as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

type Answer = Arc<dyn Fn(&Value) -> (u16, String) + Send + Sync>;

/// What the server was asked: the head and the document of each request.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

async fn serve(answer: Answer) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked: Asked = Arc::default();
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

/// Vectors of two numbers: the length of the text, and one.
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
async fn vectors_come_back_in_the_order_of_the_texts_and_of_length_one() {
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
async fn what_is_wrong_with_an_answer_is_told() {
    let bodies: [(u16, &str, &str); 8] = [
        (200, r#"{"data": []}"#, "0 vectors for 1 texts"),
        (200, r#"{}"#, "it has no `data`"),
        (200, r#"{"data": [{"index": 5, "embedding": [1, 2]}]}"#, "out of range"),
        (200, r#"{"data": [{"embedding": [1, 2, 3]}]}"#, "3 numbers, 2 are configured"),
        (200, r#"{"data": [{"embedding": [1, "x"]}]}"#, "not a number"),
        (200, "<html>", "is not JSON"),
        (401, r#"{"error": {"message": "bad\u001b[31m key"}}"#, "answered 401: bad [31m key"),
        (500, "oops", "answered 500: oops"),
    ];
    for (status, body, expected) in bodies {
        let (url, _) = serve(Arc::new(move |_: &Value| (status, body.to_owned()))).await;
        let error = embed(options(&url, 2), vec!["a".to_owned()]).await.unwrap_err();
        let told =
            if let EmbedError::Endpoint(inner) = &error { inner.to_string() } else { error.to_string() };
        assert!(told.contains(expected), "{body}: {told}");
        assert!(!format!("{error:?}").contains("sekret"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_silent_is_told() {
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
async fn addresses_that_cannot_be_asked_are_refused_at_once() {
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
fn a_folder_without_a_model_is_refused_with_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let error = MiniLm::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("holds no `model_quantized.onnx`"), "{error}");
    std::fs::write(folder.path().join("model.onnx"), b"not a model").unwrap();
    let error = MiniLm::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("vocab.txt"), "{error}");
    std::fs::write(folder.path().join("vocab.txt"), "[UNK]\n[CLS]\n[SEP]\nthe").unwrap();
    assert!(matches!(MiniLm::open(folder.path()), Err(EmbedError::Load { .. })));
    assert!(error.hint().is_some());
}
