//! Opens connections: name resolution, the check of addresses, TCP, TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use burrow_dial::{Wire, encrypt, host_and_port, within};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A host that does not answer a SYN for this long counts as unreachable; TCP alone would try for two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The limit for one address of several: a network that drops IPv6 must not prevent the use of IPv4.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;

/// The allowed targets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetPolicy {
    /// Any host that the user named.
    Named,
    /// The targets to which a registry in a private network may refer: all except link-local addresses, where clouds
    /// provide their metadata.
    Private,
    /// The targets to which a public registry may refer. Without this limit, it could make the daemon send requests
    /// to private servers.
    Public,
}

impl TargetPolicy {
    fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Named => true,
            Self::Private => !is_link_local(address),
            Self::Public => is_public(address),
        }
    }
}

/// Opens connections for the connection pool.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsConnector,
    pub(super) reach: TargetPolicy,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.dial(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    async fn dial(&self, uri: &Uri) -> io::Result<Wire> {
        let dialling = async {
            let (host, port) = host_and_port(uri).ok_or(io::ErrorKind::InvalidInput)?;
            let tcp = connect(host, port, self.reach).await?;
            match uri.scheme_str() == Some("https") {
                true => encrypt(&self.tls, host, tcp).await,
                false => Ok(Wire::new(tcp)),
            }
        };
        within(CONNECT_TIMEOUT, dialling).await
    }
}

async fn connect(host: &str, port: u16, reach: TargetPolicy) -> io::Result<TcpStream> {
    let mut last = None;
    for address in lookup(host, port).await? {
        if !reach.allows(address.ip()) {
            last = Some(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("this registry may not refer to the address {}", address.ip()),
            ));
            continue;
        }
        match within(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                return Ok(tcp);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host name has no address")))
}

async fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.take(ADDRESSES_MAX).collect())
}

/// What was found out about a registry's own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeResult {
    pub(super) encrypted: bool,
    /// Whether its address is a public one.
    pub(super) public: bool,
}

/// Finds out whether a host uses TLS. If plain HTTP is allowed, it is only a fallback: a host that offers TLS is used
/// with TLS.
pub(super) async fn probe(tls: &TlsConnector, host: &str, port: u16, plain: bool) -> io::Result<ProbeResult> {
    within(CONNECT_TIMEOUT, async {
        let addresses = lookup(host, port).await?;
        let public = addresses.iter().all(|address| is_public(address.ip()));
        if !plain {
            return Ok(ProbeResult { encrypted: true, public });
        }
        let tcp = connect(host, port, TargetPolicy::Named).await?;
        match encrypt(tls, host, tcp).await {
            Ok(_) => Ok(ProbeResult { encrypted: true, public }),
            // The host uses TLS, but with an untrusted certificate.
            Err(error) if is_certificate_error(&error) => Err(error),
            Err(_) => Ok(ProbeResult { encrypted: false, public }),
        }
    })
    .await
}

fn is_certificate_error(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Whether an address is in the public internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Global unicast is 2000::/3; in it, documentation addresses and encodings of IPv4 addresses are
            // excluded.
            (first & 0xe000) == 0x2000
                && !(first == 0x2001 && matches!(v6.segments()[1], 0 | 0x0db8))
                && first != 0x2002
        }
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    !(v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_broadcast()
        || v4.is_multicast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        // Carrier-grade NAT, benchmarks, protocol assignments.
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a == 192 && b == 0 && c == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_internet_addresses_are_public() {
        for (text, public) in [
            ("1.1.1.1", true),
            ("151.101.0.1", true),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("198.18.0.1", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("2606:4700::1", true),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("fd00:ec2::254", false),
            ("2001:db8::1", false),
            ("::ffff:127.0.0.1", false),
            ("2002:7f00:1::", false),
            ("64:ff9b::7f00:1", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), public, "{text}");
        }
    }

    #[test]
    fn no_registry_may_refer_to_cloud_metadata() {
        for text in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"] {
            let address = text.parse().unwrap();
            assert!(
                !TargetPolicy::Private.allows(address) && !TargetPolicy::Public.allows(address),
                "{text}"
            );
        }
        assert!(TargetPolicy::Private.allows("10.0.0.1".parse().unwrap()));
    }
}
