//! Bodies that go straight to a guest: files, archives, standard input.
//!
//! The guest may answer before the body has ended (the disk is full, the process does not read any more): then the
//! rest of the body is not wanted.

use std::time::Duration;

use axum::body::Body;
use burrow_engine::Guest;
use burrow_guest::protocol::{FRAME_BYTES_MAX, Frame, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::ApiError;
use super::stream::GuestWriter;

/// Longest silence of a client in the middle of a body.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// After the last byte the guest may still have gigabytes to sync.
const REPLY_TIMEOUT: Duration = Duration::from_secs(600);

/// A client that is answered while it still sends is listened to for so long: a connection closed on what it sends
/// would take the answer with it.
const LINGER_BYTES: usize = 256 << 20;
const LINGER_TIME: Duration = Duration::from_secs(20);

/// Sends `request` and the body, and reads the guest's answer.
pub(crate) async fn upload<T: DeserializeOwned>(
    guest: &Guest,
    request: &Request,
    mut body: Body,
) -> Result<T, ApiError> {
    let (mut reader, mut writer) = guest.open(request).await?.split();
    let reply = reader.reply::<T>();
    tokio::pin!(reply);
    let early = tokio::select! {
        reply = &mut reply => Some(reply),
        sent = send(&mut writer, &mut body) => {
            sent?;
            None
        }
    };
    let reply = match early {
        Some(reply) => {
            linger(body);
            reply
        }
        None => match timeout(REPLY_TIMEOUT, reply).await {
            Ok(reply) => reply,
            Err(_) => {
                let seconds = REPLY_TIMEOUT.as_secs();
                let id = guest.sandbox().id.clone();
                return Err(burrow_engine::EngineError::GuestTimeout { id, seconds }.into());
            }
        },
    };
    reply.map_err(|error| guest.error(error).into())
}

/// Sends the whole body and its end. A guest that hangs up ends this without an error: it has answered, or its reader
/// will find out.
async fn send(writer: &mut GuestWriter, body: &mut Body) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => return Err(ApiError::invalid("could not read the body: the client fell silent")),
        };
        let sent = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => send_bytes(writer, bytes).await,
                // Trailers carry nothing we know.
                Err(_) => continue,
            },
            // The guest sees no end, and so keeps nothing of a body that broke off.
            Some(Err(error)) => {
                return Err(ApiError::invalid("could not read the body: it broke off").cause(error));
            }
            None => return writer.send(&Frame::End).await.or(Ok(())),
        };
        if sent.is_err() {
            return Ok(());
        }
    }
}

pub(super) async fn send_bytes(
    writer: &mut GuestWriter,
    mut bytes: Bytes,
) -> Result<(), burrow_guest::client::GuestError> {
    while !bytes.is_empty() {
        let part = bytes.split_to(bytes.len().min(FRAME_BYTES_MAX));
        writer.send_bytes(&part).await?;
    }
    Ok(())
}

/// Listens to the rest of a body that nobody wants, while the answer is on its way.
pub(crate) fn linger(mut body: Body) {
    let drain = async move {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > LINGER_BYTES {
                break;
            }
        }
    };
    // Bounded either way: whoever goes on sending gets a closed connection.
    tokio::spawn(timeout(LINGER_TIME, drain));
}
