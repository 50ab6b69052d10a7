//! Serves a sandbox's two resolver doors.

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

/// Connections to the resolver that one sandbox may have open.
const CONNECTIONS_MAX: usize = 16;

/// A connection that asks nothing for this long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// Questions over one connection, after which a new one is to be made.
const QUESTIONS_MAX: usize = 1_000;

/// A door that fails is tried again after this long; when it is replaced, this task is ended from outside.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Answers questions over UDP, until ended from outside.
pub(crate) async fn serve_udp(sandbox: Arc<Sandbox>, door: UdpSocket) {
    let mut buffer = vec![0; QUESTION_BYTES_MAX];
    loop {
        match door.recv_from(&mut buffer).await {
            Ok((length, from)) => {
                // Whoever asks too fast gets no answer at all, as from a resolver that is overrun.
                if let Some(bytes) = answer(&sandbox, &buffer[..length]) {
                    // A full socket loses the answer, as any network might.
                    let _ = door.try_send_to(&bytes, from);
                }
            }
            Err(_) => tokio::time::sleep(FAILED_PAUSE).await,
        }
    }
}

/// Answers questions over TCP, until ended from outside.
pub(crate) async fn serve_tcp(sandbox: Arc<Sandbox>, door: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match door.accept().await {
            Ok((stream, _)) => {
                let sandbox = Arc::clone(&sandbox);
                connections.spawn(async move {
                    let _place = place;
                    converse(&sandbox, stream).await;
                });
            }
            Err(_) => tokio::time::sleep(FAILED_PAUSE).await,
        }
    }
}

async fn converse(sandbox: &Arc<Sandbox>, mut stream: TcpStream) {
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
