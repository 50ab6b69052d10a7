//! Outgoing connections of Burrow's HTTP clients: TCP, and TLS that trusts the certificate authorities of the host.
//!
//! The SDK, the registry client, the object store and the endpoints of models connect through this crate. Connections of sandboxes
//! do not: their proxy checks every address (`egress`), and the gateway connects inside a sandbox's network.

mod tls;
mod wire;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use self::tls::{TlsSetupError, tls_connector};
pub use self::wire::Wire;

/// Connects to a host, with TLS if a connector is given. The caller limits the time; see [`within`].
pub async fn dial(host: &str, port: u16, tls: Option<&TlsConnector>) -> io::Result<Wire> {
    let tcp = TcpStream::connect((host, port)).await?;
    // Requests are small, and each is waited for.
    tcp.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    use_reno_on_loopback(&tcp);
    match tls {
        None => Ok(Wire::new(tcp)),
        Some(tls) => encrypt(tls, host, tcp).await,
    }
}

/// Starts TLS on a connection and verifies the certificate of the host.
pub async fn encrypt(tls: &TlsConnector, host: &str, tcp: TcpStream) -> io::Result<Wire> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(Wire::new(tls.connect(name, tcp).await?))
}

/// Limits the time of a connection attempt. TCP alone would try for two minutes.
pub async fn within<T>(timeout: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => {
            let message = format!("no answer within {} s", timeout.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        }
    }
}

/// The host without the brackets of IPv6, and the port.
pub fn host_and_port(uri: &Uri) -> Option<(&str, u16)> {
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some((host, uri.port_u16().unwrap_or(default)))
}

/// There is no congestion within a host: an algorithm that paces packets, such as BBR, would only slow uploads down.
/// Every kernel has reno; if setting it fails, the connection is merely slower.
#[cfg(target_os = "linux")]
fn use_reno_on_loopback(tcp: &TcpStream) {
    if tcp.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback()) {
        let _ = rustix::net::sockopt::set_tcp_congestion(tcp, "reno");
    }
}

/// Opens the connections of a connection pool: TLS for `https`, plain otherwise.
#[derive(Clone)]
pub struct Dialer {
    tls: TlsConnector,
    timeout: Duration,
}

impl Dialer {
    pub fn new(tls: TlsConnector, timeout: Duration) -> Self {
        Self { tls, timeout }
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, timeout } = self.clone();
        Box::pin(async move {
            let (host, port) = host_and_port(&uri).ok_or(io::ErrorKind::InvalidInput)?;
            let tls = (uri.scheme_str() == Some("https")).then_some(&tls);
            within(timeout, dial(host, port, tls)).await.map(TokioIo::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, expected: (&str, u16)) {
        assert_eq!(host_and_port(&uri.parse().unwrap()), Some(expected));
    }

    #[test]
    fn the_port_depends_on_the_scheme_unless_it_is_given() {
        check("http://host/path", ("host", 80));
        check("https://host", ("host", 443));
        check("https://host:8443", ("host", 8443));
        check("http://[::1]:7700/", ("::1", 7700));
    }

    #[tokio::test]
    async fn a_server_that_does_not_start_tls_in_time_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = tls_connector(None).unwrap();
        let limit = Duration::from_millis(50);
        let error = within(limit, dial("127.0.0.1", port, Some(&tls))).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
