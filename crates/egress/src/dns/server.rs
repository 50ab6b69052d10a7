//! Serves a sandbox's two DNS listeners.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message::QUESTION_BYTES_MAX;
use crate::clock::monotonic_ms;
use crate::policy::Denial;
use crate::sandbox::Sandbox;

/// Largest number of TCP connections of one sandbox to the resolver.
const CONNECTIONS_MAX: usize = 16;

/// A connection without questions is closed after this time.
const IDLE: Duration = Duration::from_secs(10);

/// Largest number of questions over one connection; the client must then open another.
const QUESTIONS_MAX: usize = 1_000;

/// Wait before retrying a listener that failed. When a listener is replaced, this task is aborted.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Answers questions over UDP until the task is aborted.
pub(crate) async fn serve_udp(sandbox: Arc<Sandbox>, listener: UdpSocket) {
    let mut buffer = vec![0; QUESTION_BYTES_MAX];
    loop {
        match listener.recv_from(&mut buffer).await {
            Ok((length, from)) => {
                // Questions beyond the rate limit get no answer, as from an overloaded resolver.
                if let Some(bytes) = answer(&sandbox, &buffer[..length]) {
                    // If the socket's buffer is full, the answer is lost, as it could be on any network.
                    let _ = listener.try_send_to(&bytes, from);
                }
            }
            Err(_) => tokio::time::sleep(FAILED_PAUSE).await,
        }
    }
}

/// Answers questions over TCP until the task is aborted.
pub(crate) async fn serve_tcp(sandbox: Arc<Sandbox>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let sandbox = Arc::clone(&sandbox);
                connections.spawn(async move {
                    let _place = place;
                    serve_connection(&sandbox, stream).await;
                });
            }
            Err(_) => tokio::time::sleep(FAILED_PAUSE).await,
        }
    }
}

async fn serve_connection(sandbox: &Arc<Sandbox>, mut stream: TcpStream) {
    for _ in 0..QUESTIONS_MAX {
        let mut question = Vec::new();
        let asked = timeout(IDLE, async {
            let length = usize::from(stream.read_u16().await.ok()?);
            if length > QUESTION_BYTES_MAX {
                return None;
            }
            question.resize(length, 0);
            stream.read_exact(&mut question).await.ok()
        });
        let Ok(Some(_)) = asked.await else { return };
        let Some(bytes) = answer(sandbox, &question) else { return };
        let mut framed = u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes().to_vec();
        framed.extend(bytes);
        if !matches!(timeout(IDLE, stream.write_all(&framed)).await, Ok(Ok(()))) {
            return;
        }
    }
}

fn answer(sandbox: &Arc<Sandbox>, question: &[u8]) -> Option<Vec<u8>> {
    if !sandbox.may_ask() {
        sandbox.question_denied("(too many questions)".to_owned(), &Denial::QuestionRate);
        return None;
    }
    let policy = sandbox.policy();
    let reply = sandbox.resolver().reply(question, &policy, monotonic_ms());
    if let Some((name, reason)) = &reply.denied {
        sandbox.question_denied(name.clone(), reason);
    }
    reply.bytes
}
