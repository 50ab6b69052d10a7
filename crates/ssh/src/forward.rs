//! `ssh -L` and `ssh -W`: a connection to a port inside the sandbox.
//!
//! Only to the sandbox itself, whatever it is called there: the gateway is no way to anywhere else (`-D`, another host).

use bytes::BytesMut;
use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelMsg, ChannelOpenFailure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::visit::Visit;

/// The port, if the client means the sandbox itself.
pub(crate) fn inside(host: &str, port: u32) -> Option<u16> {
    let loopback = |ip: std::net::IpAddr| ip.to_canonical().is_loopback();
    let itself = host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(loopback);
    u16::try_from(port).ok().filter(|port| itself && *port > 0)
}

/// What is on its way in each direction while one side does not read. A channel whose input is not taken keeps the whole
/// connection waiting (see `output`), so there is room for more than the other side would be sent at once.
const BUFFER_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 64 << 10;

/// Connects, answers, and carries bytes both ways until both sides are done.
pub(crate) async fn carry(visit: &Visit, channel: Channel<Msg>, port: u16, reply: ChannelOpenHandle) {
    let Ok(found) = visit.sandbox().await else {
        return reply.reject(ChannelOpenFailure::ConnectFailed).await;
    };
    let connection = match visit.client().connect_port(&found.id, port).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::debug!(port, %error, "could not forward a port");
            return reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
    };
    reply.accept().await;
    visit.moved();
    let (near, far) = tokio::io::duplex(BUFFER_BYTES);
    let work = async {
        let between = async {
            shuttle(visit, channel, near).await;
            Ok(())
        };
        tokio::try_join!(connection.carry(far), between).map(drop)
    };
    if let Some(Err(error)) = visit.cut.run_until_cancelled(work).await {
        tracing::debug!(port, %error, "a forwarded connection broke");
    }
}

/// Between the channel and the buffer, until both directions have ended.
async fn shuttle(visit: &Visit, channel: Channel<Msg>, near: DuplexStream) {
    let (mut from_buffer, mut to_buffer) = tokio::io::split(near);
    let (mut reader, writer) = channel.split();
    let up = async {
        while let Some(message) = reader.wait().await {
            // Nothing else is for a forwarded connection.
            if let ChannelMsg::Data { data } = message {
                visit.moved();
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
                Ok(_) => visit.moved(),
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
    fn only_the_sandbox_itself_is_connected_to() {
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
            assert_eq!(inside(host, port), expected, "{host}:{port}");
        }
    }
}
