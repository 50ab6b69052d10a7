//! Resolves, checks and connects. Every address is checked immediately before the connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_model::HostName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::account::Account;
use crate::clock::monotonic_ms;
use crate::policy::{AddressKind, Denial, Destination, Host, Policy};

/// Concurrent lookups of all sandboxes: each blocks a thread.
pub(crate) const LOOKUPS_MAX: usize = 48;

/// A resolver that has not answered within this time is not expected to answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a result is cached. Short: the host's resolver has the real cache, and knows the real lifetimes.
const KEPT_MS: u64 = 10_000;
const FAILURE_KEPT_MS: u64 = 2_000;

/// Largest number of names in the cache.
const CACHE_MAX: usize = 4_096;

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 6;

/// Per address. The last one may take longer, because there is no other to try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LAST_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Denied(Denial),
    #[error("`{host}` could not be resolved: {reason}")]
    Unresolved { host: HostName, reason: String },
    #[error("{address} could not be reached: {reason}")]
    Unreachable { address: IpAddr, reason: String },
}

/// The lookup cache and the limit of lookups, shared by all sandboxes.
#[derive(Debug)]
pub(crate) struct Dialler {
    lookups: Semaphore,
    cache: Mutex<HashMap<HostName, CachedAnswer>>,
}

#[derive(Clone, Debug)]
struct CachedAnswer {
    until_ms: u64,
    answer: Result<Arc<[IpAddr]>, String>,
}

impl Dialler {
    pub(crate) fn new() -> Self {
        Self { lookups: Semaphore::new(LOOKUPS_MAX), cache: Mutex::default() }
    }

    /// Connects to `destination`, if `policy` permits its addresses.
    pub(crate) async fn dial(
        &self,
        sandbox: &Account,
        policy: &Policy,
        destination: &Destination,
    ) -> Result<(TcpStream, IpAddr), Failure> {
        let found = self.addresses(sandbox, &destination.host).await?;
        let checked = check(policy, destination, &found).map_err(Failure::Denied)?;
        connect_first(&checked, destination.port).await
    }

    /// All addresses of a host, unchecked.
    pub(crate) async fn addresses(&self, sandbox: &Account, host: &Host) -> Result<Arc<[IpAddr]>, Failure> {
        let name = match host {
            Host::Address(address) => return Ok([*address].into()),
            Host::Name(name) => name,
        };
        let unresolved = |reason| Failure::Unresolved { host: name.clone(), reason };
        if let Some(cached) = self.cached(name) {
            return cached.answer.map_err(unresolved);
        }
        let answer = self.look_up(sandbox, name).await;
        self.keep(name, &answer);
        answer.map_err(unresolved)
    }

    async fn look_up(&self, sandbox: &Account, name: &HostName) -> Result<Arc<[IpAddr]>, String> {
        // The sandbox's own permit first: while waiting for it, none of the shared permits is held.
        let lookup = async {
            let _own = sandbox.lookups.acquire().await.map_err(|_| "shutting down".to_owned())?;
            let _shared = self.lookups.acquire().await.map_err(|_| "shutting down".to_owned())?;
            // The supervisor starts this process without search domains, so the name is looked up as it is.
            let found =
                tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|error| error.to_string())?;
            let mut found: Vec<_> = found.map(|address| address.ip()).collect();
            found.dedup();
            found.truncate(64);
            if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found.into()) }
        };
        timeout(LOOKUP_TIMEOUT, lookup)
            .await
            .unwrap_or_else(|_| Err("the resolver did not answer".to_owned()))
    }

    fn cached(&self, name: &HostName) -> Option<CachedAnswer> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(name).filter(|cached| cached.until_ms > monotonic_ms()).cloned()
    }

    fn keep(&self, name: &HostName, answer: &Result<Arc<[IpAddr]>, String>) {
        let now = monotonic_ms();
        let until_ms = now + if answer.is_ok() { KEPT_MS } else { FAILURE_KEPT_MS };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_MAX {
            cache.retain(|_, cached| cached.until_ms > now);
        }
        if cache.len() >= CACHE_MAX {
            cache.clear();
        }
        cache.insert(name.clone(), CachedAnswer { until_ms, answer: answer.clone() });
    }
}

/// The permitted addresses of `found`; an error if there are none (E-N2, E-N6, P-N7).
pub(super) fn check(
    policy: &Policy,
    destination: &Destination,
    found: &[IpAddr],
) -> Result<Vec<IpAddr>, Denial> {
    let mut refused = None;
    let mut checked = Vec::new();
    for address in found.iter().map(IpAddr::to_canonical) {
        match admit(policy, address, destination.port) {
            Ok(()) => checked.push(address),
            Err(kind) => refused = refused.or(Some((address, kind))),
        }
    }
    match (checked.is_empty(), refused) {
        (true, Some((address, kind))) => {
            Err(Denial::Address { host: destination.host.clone(), address, kind })
        }
        (true | false, _) => Ok(checked),
    }
}

fn admit(policy: &Policy, address: IpAddr, port: u16) -> Result<(), AddressKind> {
    policy.admits(address, port)?;
    if is_own(address) { policy.admits_own(address) } else { Ok(()) }
}

/// Whether an address belongs to this host. A socket connected to such an address has it on both ends; connecting a
/// UDP socket sends nothing.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    // Without a route, connecting fails as well and reports why.
    local().is_ok_and(|local| local.ip() == address)
}

pub(super) async fn connect_first(addresses: &[IpAddr], port: u16) -> Result<(TcpStream, IpAddr), Failure> {
    let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
    let mut failure = None;
    for (place, address) in addresses.iter().enumerate() {
        let last = place + 1 == addresses.len();
        let patience = if last { LAST_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
        let reason = match timeout(patience, connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => return Ok((stream, *address)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the connection timed out".to_owned(),
        };
        // The first address is the preferred one, so its error is reported.
        failure = failure.or(Some(Failure::Unreachable { address: *address, reason }));
    }
    Err(failure.expect("a name without an address is not resolved, so there was one to try"))
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.connect(address).await
}
