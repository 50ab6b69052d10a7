//! Resolves, checks and connects. Nothing is dialled that was not checked here, right before.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_model::HostName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::clock::monotonic_ms;
use crate::policy::{AddressKind, Denial, Destination, Host, Policy};
use crate::sandbox::Sandbox;

/// Lookups at a time, of all sandboxes: each blocks a thread.
pub(crate) const LOOKUPS_MAX: usize = 48;

/// A resolver that has not answered by then will not.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer is used again. Short: the host's own resolver has the real cache, and knows the real times.
const KEPT_MS: u64 = 10_000;
const FAILURE_KEPT_MS: u64 = 2_000;

/// Names in the cache.
const CACHE_MAX: usize = 4_096;

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 6;

/// Per address. The last one may take longer, since there is nothing else to try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LAST_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why nothing was connected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Denied(Denial),
    #[error("`{host}` could not be resolved: {reason}")]
    Unresolved { host: HostName, reason: String },
    #[error("{address} could not be reached: {reason}")]
    Unreachable { address: IpAddr, reason: String },
}

/// What all sandboxes share of it.
#[derive(Debug)]
pub(crate) struct Dialler {
    lookups: Semaphore,
    cache: Mutex<HashMap<HostName, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    until_ms: u64,
    answer: Result<Arc<[IpAddr]>, String>,
}

impl Dialler {
    pub(crate) fn new() -> Self {
        Self { lookups: Semaphore::new(LOOKUPS_MAX), cache: Mutex::default() }
    }

    /// Connects to where `destination` leads, as far as `policy` admits the addresses.
    pub(crate) async fn dial(
        &self,
        sandbox: &Sandbox,
        policy: &Policy,
        destination: &Destination,
    ) -> Result<(TcpStream, IpAddr), Failure> {
        let found = self.addresses(sandbox, &destination.host).await?;
        let checked = check(policy, destination, &found).map_err(Failure::Denied)?;
        connect_first(&checked, destination.port).await
    }

    /// All addresses of a host, unchecked.
    pub(crate) async fn addresses(&self, sandbox: &Sandbox, host: &Host) -> Result<Arc<[IpAddr]>, Failure> {
        let name = match host {
            Host::Address(address) => return Ok([*address].into()),
            Host::Name(name) => name,
        };
        let unresolved = |reason| Failure::Unresolved { host: name.clone(), reason };
        if let Some(kept) = self.kept(name) {
            return kept.answer.map_err(unresolved);
        }
        let answer = self.look_up(sandbox, name).await;
        self.keep(name, &answer);
        answer.map_err(unresolved)
    }

    async fn look_up(&self, sandbox: &Sandbox, name: &HostName) -> Result<Arc<[IpAddr]>, String> {
        // Its own first: who waits for a place of one sandbox holds none of the others'.
        let lookup = async {
            let _own = sandbox.lookups.acquire().await.map_err(|_| "shutting down".to_owned())?;
            let _shared = self.lookups.acquire().await.map_err(|_| "shutting down".to_owned())?;
            // The supervisor starts this process without search domains, so the name is taken as it is.
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

    fn kept(&self, name: &HostName) -> Option<Kept> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(name).filter(|kept| kept.until_ms > monotonic_ms()).cloned()
    }

    fn keep(&self, name: &HostName, answer: &Result<Arc<[IpAddr]>, String>) {
        let now = monotonic_ms();
        let until_ms = now + if answer.is_ok() { KEPT_MS } else { FAILURE_KEPT_MS };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_MAX {
            cache.retain(|_, kept| kept.until_ms > now);
        }
        if cache.len() >= CACHE_MAX {
            cache.clear();
        }
        cache.insert(name.clone(), Kept { until_ms, answer: answer.clone() });
    }
}

/// Those of `found` that may be dialled; an error when it is none (E-N2, E-N6, P-N7).
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

/// Whether an address is one of this host's. A socket connected to one of these has it on both ends, and a UDP socket
/// sends nothing by being connected.
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
    // No way there: dialling it fails as well, and says why.
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
            Err(_) => "it did not answer in time".to_owned(),
        };
        // The first is the one that was preferred, so its failure is the one to tell.
        failure = failure.or(Some(Failure::Unreachable { address: *address, reason }));
    }
    Err(failure.expect("a name without an address is not resolved, so there was one to try"))
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.connect(address).await
}
