//! Clients as programs in a sandbox use them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use burrow_network::GATEWAY_V4;

use crate::world::{PATIENCE, Sandbox};

pub(crate) const A: u16 = 1;
pub(crate) const AAAA: u16 = 28;
pub(crate) const TXT: u16 = 16;

/// A resolver's answer.
#[derive(Debug)]
pub(crate) struct DnsAnswer {
    pub(crate) code: u8,
    pub(crate) address: Option<IpAddr>,
    /// The complete answer, to check texts in it.
    pub(crate) bytes: Vec<u8>,
}

/// A question with an EDNS record.
pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

pub(crate) fn parse_answer(question: &[u8], bytes: Vec<u8>) -> DnsAnswer {
    assert_eq!(bytes[..2], question[..2], "an answer to this question");
    let answer = question.len() - 11;
    let address = (bytes[7] == 1).then(|| match bytes[answer + 10..answer + 12] {
        [0, 4] => Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[answer + 12..answer + 16]).unwrap()).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[answer + 12..answer + 28]).unwrap()).into(),
    });
    DnsAnswer { code: bytes[3] & 0xf, address, bytes }
}

/// Sends a DNS question over UDP; `None` if there is no answer.
pub(crate) async fn ask(sandbox: &Sandbox, name: &str, kind: u16) -> Option<DnsAnswer> {
    let question = question(name, kind);
    sandbox
        .inside(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
            socket.send_to(&question, (GATEWAY_V4, 53)).ok()?;
            let mut bytes = vec![0; 4096];
            let length = socket.recv(&mut bytes).ok()?;
            bytes.truncate(length);
            Some(parse_answer(&question, bytes))
        })
        .await
}

/// The synthetic address of an allowed name.
pub(crate) async fn resolve(sandbox: &Sandbox, name: &str) -> IpAddr {
    let resolved = ask(sandbox, name, A).await.expect("the resolver answers");
    resolved.address.unwrap_or_else(|| panic!("{name}: {resolved:?}"))
}

/// Connects like a program in the sandbox that has resolved `host`; an address is used directly.
pub(crate) async fn connect(sandbox: &Sandbox, host: &str, port: u16) -> std::io::Result<TcpStream> {
    let address = match host.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => resolve(sandbox, host).await,
    };
    connect_to(sandbox, SocketAddr::new(address, port)).await
}

pub(crate) async fn connect_to(sandbox: &Sandbox, to: SocketAddr) -> std::io::Result<TcpStream> {
    sandbox
        .inside(move || {
            let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .await
}

/// Sends `sent`, closes its side, and reads to the end. A reset counts as an empty answer.
pub(crate) async fn exchange(stream: TcpStream, sent: &[u8]) -> Vec<u8> {
    let sent = sent.to_vec();
    let exchange = move || {
        let mut stream = stream;
        if stream.write_all(&sent).is_err() {
            return Vec::new();
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

/// Connects, sends bytes, and returns everything that comes back.
pub(crate) async fn send(sandbox: &Sandbox, host: &str, port: u16, sent: &[u8]) -> Vec<u8> {
    match connect(sandbox, host, port).await {
        Ok(stream) => exchange(stream, sent).await,
        Err(_) => Vec::new(),
    }
}

pub(crate) fn get(host: &str) -> Vec<u8> {
    format!("GET /path HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The TLS hello of a client for `name`.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Whether an answer is a fatal TLS alert.
pub(crate) fn is_alert(answer: &[u8]) -> bool {
    matches!(answer, [21, 3, 3, 0, 2, 2, _])
}

/// Reads exactly this many bytes.
pub(crate) async fn read(stream: &TcpStream, count: usize) -> std::io::Result<Vec<u8>> {
    let mut stream = stream.try_clone()?;
    let read = move || {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).map(|()| bytes)
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}
