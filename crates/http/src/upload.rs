//! Bodies that are passed on to a guest: files, archives, standard input.
//!
//! The guest may respond before the body has ended (the disk is full, or the process no longer reads). Then the rest of the
//! body is not needed.

use std::time::Duration;

use axum::body::Body;
use burrow_engine::Guest;
use burrow_guest::protocol::{FRAME_BYTES_MAX, Frame, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::stream::GuestWriter;
use crate::error::ApiError;

/// How long a client may pause in the middle of a body.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// After the last byte, the guest may still have to sync gigabytes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(600);

/// If the response is ready while the client still sends, its body is read for this long: if the connection were closed
/// with unread input, the response would be lost.
const LINGER_BYTES: usize = 256 << 20;
const LINGER_TIME: Duration = Duration::from_secs(20);

/// Sends `request` and the body, and reads the guest's response.
pub async fn upload<T: DeserializeOwned>(
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

/// Sends the whole body and its end. It is no error if the guest closes the connection: it has responded, or reading its
/// response will fail.
async fn send(writer: &mut GuestWriter, body: &mut Body) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => return Err(ApiError::invalid("could not read the body: the client stopped sending")),
        };
        let sent = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => send_bytes(writer, bytes).await,
                // Trailers contain nothing that is used.
                Err(_) => continue,
            },
            // The guest receives no end, and so discards an incomplete body.
            Some(Err(error)) => {
                return Err(ApiError::invalid("could not read the body: it was interrupted").cause(error));
            }
            None => return writer.send(&Frame::End).await.or(Ok(())),
        };
        if sent.is_err() {
            return Ok(());
        }
    }
}

pub async fn send_bytes(
    writer: &mut GuestWriter,
    mut bytes: Bytes,
) -> Result<(), burrow_guest::client::GuestError> {
    while !bytes.is_empty() {
        let part = bytes.split_to(bytes.len().min(FRAME_BYTES_MAX));
        writer.send_bytes(&part).await?;
    }
    Ok(())
}

/// Reads and discards the rest of a body while the response is being sent.
pub fn linger(mut body: Body) {
    let drain = async move {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > LINGER_BYTES {
                break;
            }
        }
    };
    // Bounded in both ways: a client that keeps sending gets a closed connection.
    drop(tokio::spawn(timeout(LINGER_TIME, drain)));
}
