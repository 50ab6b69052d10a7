//! A minimal HTTP/1.1 server to proxy: one thread, kept-alive connections, one fixed answer.
//!
//! It is a role of this program (`burrow-bench serve-http ADDRESS`), so that the same server can be copied into a
//! sandbox. It accepts any request without a body.

use std::process::ExitCode;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The argument that selects this role.
pub(crate) const ROLE: &str = "serve-http";

/// Maximum length of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A hundred bytes: the path is measured, not the load.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

pub(crate) fn main(address: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.and_then(|runtime| runtime.block_on(serve(address)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("burrow-bench: could not serve on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A client that disconnects ends its connection and nothing else.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = BytesMut::with_capacity(4096);
    loop {
        while let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            buffer.advance(end + 4);
            stream.write_all(ANSWER).await?;
        }
        buffer.reserve(4096);
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}
