//! Servers in place of the internet, which count their connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A listener that counts its connections. Its thread ends with the test's process.
#[derive(Clone)]
pub(crate) struct Upstream {
    hits: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

fn serve(address: &str, port: u16, answer: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> Upstream {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    let hits = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream { hits: Arc::clone(&hits) };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            hits.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
    upstream
}

/// Echoes what it receives, and closes when the peer has closed.
pub(crate) fn echo(address: &str, port: u16) -> Upstream {
    serve(address, port, |mut stream| {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
    })
}

/// Sends first, as SSH and mail servers do, then echoes a line.
pub(crate) fn banner(address: &str, port: u16) -> Upstream {
    serve(address, port, |mut stream| {
        let _ = stream.write_all(b"220 welcome\r\n");
        let mut buffer = [0; 1024];
        if let Ok(count @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..count]);
        }
    })
}

/// The host's resolver: knows only `name`, with an IPv4 address.
pub(crate) fn resolver(name: &'static str, address: Ipv4Addr) {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let mut wanted = Vec::new();
    for label in name.split('.') {
        wanted.push(u8::try_from(label.len()).unwrap());
        wanted.extend(label.as_bytes());
    }
    thread::spawn(move || {
        let mut bytes = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let Some(end) = bytes[12..length].iter().position(|b| *b == 0) else { continue };
            let question = &bytes[12..12 + end + 5];
            let known = question[..end] == wanted[..];
            let answers = u8::from(known && question[end + 1..end + 3] == [0, 1]);
            let mut answer =
                vec![bytes[0], bytes[1], 0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, answers];
            answer.extend([0, 0, 0, 0]);
            answer.extend(question);
            if answers == 1 {
                answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend(address.octets());
            }
            let _ = socket.send_to(&answer, from);
        }
    });
}

/// A small HTTP/1.1 server: reports the requested host and path, keeps connections open, and accepts a WebSocket-like
/// upgrade, after which it echoes.
pub(crate) fn http(address: &str, port: u16) -> Upstream {
    serve(address, port, |mut stream| {
        let mut buffer = Vec::new();
        loop {
            let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                let mut piece = [0; 4096];
                match stream.read(&mut piece) {
                    Ok(count @ 1..) => buffer.extend_from_slice(&piece[..count]),
                    Ok(_) | Err(_) => return,
                }
                continue;
            };
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            if head.contains("Upgrade: websocket") {
                let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n");
                let mut piece = [0; 1024];
                let _ = stream.write_all(&buffer);
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    let _ = stream.write_all(&piece[..count]);
                }
                return;
            }
            let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or("-").to_owned();
            let body = format!("{} for {host}", head.lines().next().unwrap_or_default());
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}
