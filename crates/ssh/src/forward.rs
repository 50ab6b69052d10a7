//! `ssh -L` and `ssh -W`: a connection to a port inside the sandbox.
//!
//! Only the sandbox's own loopback addresses are accepted: the gateway forwards to no other host (`-D` is refused).

use bytes::BytesMut;
use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelMsg, ChannelOpenFailure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::connection::Connection;

/// The port, if the host is a loopback name or address of the sandbox.
pub(crate) fn sandbox_port(host: &str, port: u32) -> Option<u16> {
    let loopback = |ip: std::net::IpAddr| ip.to_canonical().is_loopback();
    let itself = host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(loopback);
    u16::try_from(port).ok().filter(|port| itself && *port > 0)
}

/// Bytes buffered in each direction while one side does not read. A channel whose input is not read blocks the whole
/// connection (see `output`), so the buffer is larger than what the other side is sent at once.
const BUFFER_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 64 << 10;

/// Connects, answers the request, and copies bytes both ways until both sides are done.
pub(crate) async fn serve(
    connection: &Connection,
    channel: Channel<Msg>,
    port: u16,
    reply: ChannelOpenHandle,
) {
    let Ok(found) = connection.sandbox().await else {
        return reply.reject(ChannelOpenFailure::ConnectFailed).await;
    };
    let stream = match connection.client().connect_port(&found.id, port).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(port, %error, "could not forward a port");
            return reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
    };
    reply.accept().await;
    connection.record_activity();
    let (near, far) = tokio::io::duplex(BUFFER_BYTES);
    let work = async {
        let between = async {
            copy_both_ways(connection, channel, near).await;
            Ok(())
        };
        tokio::try_join!(stream.carry(far), between).map(drop)
    };
    if let Some(Err(error)) = connection.cancel.run_until_cancelled(work).await {
        tracing::debug!(port, %error, "a forwarded connection failed");
    }
}

/// Copies between the channel and the buffer until both directions have ended.
async fn copy_both_ways(connection: &Connection, channel: Channel<Msg>, near: DuplexStream) {
    let (mut from_buffer, mut to_buffer) = tokio::io::split(near);
    let (mut reader, writer) = channel.split();
    let up = async {
        while let Some(message) = reader.wait().await {
            // Other messages do not apply to a forwarded connection.
            if let ChannelMsg::Data { data } = message {
                connection.record_activity();
                if to_buffer.write_all(&data).await.is_err() {
                    break;
                }
            } else if matches!(message, ChannelMsg::Eof | ChannelMsg::Close) {
                break;
            }
        }
        let _ = to_buffer.shutdown().await;
    };
    let down = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            match from_buffer.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => connection.record_activity(),
            }
            if writer.data_bytes(buffer.split().freeze()).await.is_err() {
                break;
            }
        }
        let _ = writer.eof().await;
    };
    tokio::join!(up, down);
    let _ = writer.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_forwarded() {
        for (host, port, expected) in [
            ("localhost", 8080, Some(8080)),
            ("LOCALHOST", 80, Some(80)),
            ("127.0.0.1", 5432, Some(5432)),
            ("127.9.9.9", 5432, Some(5432)),
            ("::1", 22, Some(22)),
            ("::ffff:127.0.0.1", 22, Some(22)),
            ("10.0.0.1", 80, None),
            ("169.254.169.254", 80, None),
            ("example.com", 443, None),
            ("localhost.example.com", 443, None),
            ("0.0.0.0", 80, None),
            ("", 80, None),
            ("localhost", 0, None),
            ("localhost", 65_536, None),
        ] {
            assert_eq!(sandbox_port(host, port), expected, "{host}:{port}");
        }
    }
}
