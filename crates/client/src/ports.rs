//! Ports: what listens in a sandbox, who may open it, and raw TCP to it.

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

/// Of what the local side says, per message.
const READ_BYTES: usize = 64 << 10;

/// A connection to a port of a sandbox, ready to carry bytes.
#[derive(Debug)]
pub struct PortConnection {
    socket: Socket,
    path: String,
}

fn port_path(sandbox: &str, port: u16) -> Path {
    sandbox_path(sandbox).fixed("ports").part(&port.to_string())
}

impl Client {
    /// What listens and what is published, by port.
    pub async fn ports(&self, sandbox: &str) -> Result<Vec<Port>, ClientError> {
        self.all_pages(sandbox_path(sandbox).fixed("ports")).await
    }

    /// Lets anybody open a port.
    pub async fn publish_port(&self, sandbox: &str, port: u16) -> Result<(), ClientError> {
        self.send_for_nothing(Call::new(Method::PUT, port_path(sandbox, port))).await
    }

    /// Makes it private again.
    pub async fn unpublish_port(&self, sandbox: &str, port: u16) -> Result<(), ClientError> {
        self.send_for_nothing(Call::new(Method::DELETE, port_path(sandbox, port))).await
    }

    /// A link that opens a port without a key.
    pub async fn port_url(
        &self,
        sandbox: &str,
        port: u16,
        request: &CreatePortUrl,
    ) -> Result<PortUrl, ClientError> {
        self.send_json(Method::POST, port_path(sandbox, port).fixed("url"), request).await
    }

    /// Connects to a port. Wakes the sandbox, and starts it if it is stopped.
    pub async fn connect_port(&self, sandbox: &str, port: u16) -> Result<PortConnection, ClientError> {
        let path = port_path(sandbox, port).fixed("connect");
        let shown = path.shown();
        Ok(PortConnection { socket: self.websocket(path).await?, path: shown })
    }
}

impl PortConnection {
    /// Carries bytes between the port and a local stream until both have ended; the end of one direction leaves the
    /// other open.
    pub async fn carry<S: AsyncRead + AsyncWrite>(self, local: S) -> Result<(), ClientError> {
        let (mut sink, mut messages) = self.socket.split();
        let (mut reader, mut writer) = tokio::io::split(local);
        let result = {
            let up = upward(&self.path, &mut reader, &mut sink);
            let down = downward(&self.path, &mut messages, &mut writer);
            tokio::try_join!(up, down).map(|_| ())
        };
        if result.is_ok() {
            // The daemon closes after both ends; a connection that is gone already is as good.
            let _ = sink.close().await;
        }
        result
    }
}

/// What the local side says, and its end.
async fn upward<R: AsyncRead + Unpin>(
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
            let end = serde_json::to_string(&PortMessage::End).expect("our own message is JSON");
            return sink.send(Message::text(end)).await.map_err(|error| broken(&error));
        }
        let message = Message::Binary(buffer.split().freeze());
        sink.send(message).await.map_err(|error| broken(&error))?;
    }
}

/// What the port says, and its end.
async fn downward<W: AsyncWrite + Unpin>(
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
                    // A local side that is gone needs no word of the end.
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
