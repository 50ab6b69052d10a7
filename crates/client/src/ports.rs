//! Ports of a sandbox: list, publish, signed links, and raw TCP connections.

use std::io;

use burrow_api::{CreatePortUrl, Port, PortMessage, PortUrl};
use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::Method;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Call, innermost};
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::websocket::Socket;
use crate::{Client, ClientError};

/// Size of reads from the local stream.
const READ_BYTES: usize = 64 << 10;

/// A connection to a port of a sandbox.
#[derive(Debug)]
pub struct PortConnection {
    socket: Socket,
    path: String,
}

fn port_path(sandbox: &str, port: u16) -> Path {
    sandbox_path(sandbox).fixed("ports").part(&port.to_string())
}

impl Client {
    /// Listening and published ports.
    pub async fn ports(&self, sandbox: &str) -> Result<Vec<Port>, ClientError> {
        self.all_pages(sandbox_path(sandbox).fixed("ports")).await
    }

    /// Makes a port public.
    pub async fn publish_port(&self, sandbox: &str, port: u16) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::PUT, port_path(sandbox, port))).await
    }

    /// Makes a port private again.
    pub async fn unpublish_port(&self, sandbox: &str, port: u16) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, port_path(sandbox, port))).await
    }

    /// Creates a link that gives access to a port without a key.
    pub async fn port_url(
        &self,
        sandbox: &str,
        port: u16,
        request: &CreatePortUrl,
    ) -> Result<PortUrl, ClientError> {
        self.send_json(Method::POST, port_path(sandbox, port).fixed("url"), request).await
    }

    /// Connects to a port. Wakes or starts the sandbox.
    pub async fn connect_port(&self, sandbox: &str, port: u16) -> Result<PortConnection, ClientError> {
        let path = port_path(sandbox, port).fixed("connect");
        let shown = path.shown();
        Ok(PortConnection { socket: self.websocket(path).await?, path: shown })
    }
}

impl PortConnection {
    /// Copies bytes between the port and a local stream until both directions have ended. One direction can end before the
    /// other.
    pub async fn carry<S: AsyncRead + AsyncWrite>(self, local: S) -> Result<(), ClientError> {
        let (mut sink, mut messages) = self.socket.split();
        let (mut reader, mut writer) = tokio::io::split(local);
        let result = {
            let up = to_port(&self.path, &mut reader, &mut sink);
            let down = from_port(&self.path, &mut messages, &mut writer);
            tokio::try_join!(up, down).map(|_| ())
        };
        if result.is_ok() {
            // The daemon closes the connection after both ends; it may be closed already.
            let _ = sink.close().await;
        }
        result
    }
}

/// Copies from the local stream to the port, including its end.
async fn to_port<R: AsyncRead + Unpin>(
    path: &str,
    reader: &mut R,
    sink: &mut SplitSink<Socket, Message>,
) -> Result<(), ClientError> {
    let broken = |error: &(dyn std::error::Error + 'static)| stream_error(path, innermost(error));
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES);
        let count = reader.read_buf(&mut buffer).await.map_err(|source| ClientError::Local { source })?;
        if count == 0 {
            let end = serde_json::to_string(&PortMessage::End).expect("the message can be encoded");
            return sink.send(Message::text(end)).await.map_err(|error| broken(&error));
        }
        let message = Message::Binary(buffer.split().freeze());
        sink.send(message).await.map_err(|error| broken(&error))?;
    }
}

/// Copies from the port to the local stream, including its end.
async fn from_port<W: AsyncWrite + Unpin>(
    path: &str,
    messages: &mut SplitStream<Socket>,
    writer: &mut W,
) -> Result<(), ClientError> {
    loop {
        let message = match messages.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(stream_error(path, innermost(&error))),
            None => return Err(stream_error(path, "the daemon closed the connection".into())),
        };
        match message {
            Message::Binary(bytes) => write(writer, &bytes).await?,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(PortMessage::End) => {
                    // If the local stream is closed already, it needs no shutdown.
                    let _ = writer.shutdown().await;
                    return Ok(());
                }
                Ok(PortMessage::Error { error }) => return Err(ClientError::refused(error)),
                Err(source) => {
                    return Err(ClientError::Decode { method: Method::GET, path: path.to_owned(), source });
                }
            },
            Message::Close(_) => return Err(stream_error(path, "the daemon closed the connection".into())),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &[u8]) -> Result<(), ClientError> {
    let written: io::Result<()> = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    }
    .await;
    written.map_err(|source| ClientError::Local { source })
}

fn stream_error(path: &str, source: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
    ClientError::Stream { path: path.to_owned(), source }
}
