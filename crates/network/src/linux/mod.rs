//! The real driver: namespaces, a veth pair, a packet filter.
//!
//! ```text
//! pool ──slot──► connect ──gateway namespace──► run directory: outlives this process
//!                   ├─────user and net namespace──► attachment: the machine joins them
//!                   └─────dial, listeners ──► dialler thread creates sockets in the gateway namespace
//! connect_later ──gateway namespace──► the same, but the attachment is a plug, for a network namespace that comes later
//! ```
//!
//! Lifetimes: a sandbox's processes keep the network and the user namespace alive, and the mount in the run directory
//! keeps the gateway alive. When the processes end, the veth pair disappears with their namespace; when the mount is
//! removed, so does the gateway.

mod connections;
mod dialler;
mod expression;
mod ids;
mod interfaces;
mod listeners;
mod mark;
mod namespace;
mod netlink;
mod pace;
mod packet_hold;
mod plug;
mod pool;
mod probe;
mod rules;
mod run_dir;
pub mod slot;
mod table;
mod tap;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use burrow_model::SandboxId;

use self::dialler::{Dialler, Gateway, GatewayDial};
use self::netlink::{Protocol, Socket};
use self::plug::GatewayPlug;
use self::pool::Pool;
use self::run_dir::RunDir;
use crate::{Attachment, Dial, Link, Listeners, Network, NetworkError, Rate};

pub use self::connections::{can_reset, reset_outside};
pub use self::ids::{HostIds, IdRange};
pub use self::namespace::{UID_BASE, UID_COUNT, random_owner, user_namespace};
pub use self::netlink::SlotError;
pub use self::packet_hold::{hold_packets, release_packets};
pub(crate) use self::probe::remedy;
pub use self::probe::{NetworkUnavailable, probe};

#[derive(Clone, Debug)]
pub struct Options {
    /// Where gateway namespaces are kept. Created if missing; only this driver may use it.
    pub run_dir: PathBuf,
    /// Number of slots that are prepared in advance. With 0, each slot is created when it is needed.
    pub pool_size: usize,
    /// Whether each sandbox has its own uids and gids on the host. Its files must then be on idmapped mounts.
    pub own_ids: bool,
}

/// Connects sandboxes by network namespaces of this host.
pub struct LinuxNetwork {
    run_dir: RunDir,
    /// Held while the run directory changes, by the *work* and not by its caller: the work of a cancelled `connect`
    /// finishes before the `release` that follows it begins.
    run_dir_lock: Arc<tokio::sync::Mutex<()>>,
    pool: Pool,
    dialler: Arc<Dialler>,
    /// The gateways for which a handle exists, so that `release` reaches all of them.
    gateways: Mutex<HashMap<SandboxId, Weak<Gateway>>>,
}

impl LinuxNetwork {
    /// Prepares the run directory and starts filling the pool. Blocks shortly; needs root.
    pub fn open(options: Options) -> Result<Arc<Self>, NetworkError> {
        let failed = |step| {
            let run_dir = options.run_dir.clone();
            move |source| NetworkError::RunDir { step, run_dir, source }
        };
        let run_dir =
            RunDir::open(&options.run_dir).map_err(failed("prepare the network's run directory"))?;
        let dialler = Dialler::start().map_err(failed("start the dialler of"))?;
        let pool =
            Pool::start(options.pool_size, options.own_ids).map_err(failed("start the slot pool of"))?;
        Ok(Arc::new(Self {
            run_dir,
            run_dir_lock: Arc::default(),
            pool,
            dialler: Arc::new(dialler),
            gateways: Mutex::default(),
        }))
    }

    /// Removes every sandbox's network and the run directory itself, for uninstalling. No driver may be using them.
    pub fn remove_all(run_dir: &Path) -> Result<(), NetworkError> {
        let step = "remove the network's run directory";
        run_dir::remove_all(run_dir).map_err(|source| NetworkError::RunDir {
            step,
            run_dir: run_dir.to_owned(),
            source,
        })
    }

    /// The number of prepared slots, for metrics.
    pub fn slots_ready(&self) -> usize {
        self.pool.ready()
    }

    /// Runs `work` on the run directory under its lock, off the async threads.
    async fn with_run_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RunDir) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let run_dir_lock = Arc::clone(&self.run_dir_lock).lock_owned().await;
        let run_dir = self.run_dir.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _lock = run_dir_lock;
            work(&run_dir)
        });
        work.await.map_err(io::Error::other)?
    }

    /// Keeps `gateway` as `id`'s gateway beyond this process.
    async fn keep(&self, id: &SandboxId, gateway: OwnedFd) -> Result<Arc<Gateway>, NetworkError> {
        let name = id.clone();
        let gateway = self
            .with_run_dir(move |run_dir| run_dir.keep(&name, gateway.as_fd()).map(|()| gateway))
            .await
            .map_err(step("keep the gateway namespace", id))?;
        Ok(self.replace_gateway(id, Gateway::new(gateway, false)))
    }

    /// Makes `gateway` the gateway of `id`, and closes an earlier one.
    fn replace_gateway(&self, id: &SandboxId, gateway: Gateway) -> Arc<Gateway> {
        let gateway = Arc::new(gateway);
        let before = self.gateways().insert(id.clone(), Arc::downgrade(&gateway));
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            before.close();
        }
        gateway
    }

    fn handle(&self, gateway: Arc<Gateway>) -> Arc<dyn Dial> {
        Arc::new(GatewayDial { dialler: Arc::clone(&self.dialler), gateway })
    }

    /// The gateway namespace of `id`, from an existing handle or else from the run directory.
    async fn namespace(&self, id: &SandboxId) -> Result<Arc<OwnedFd>, NetworkError> {
        let known = self.gateways().get(id).and_then(Weak::upgrade);
        if let Some(namespace) = known.and_then(|gateway| gateway.namespace().ok()) {
            return Ok(namespace);
        }
        let name = id.clone();
        let found = self.with_run_dir(move |run_dir| run_dir.find(&name)).await;
        let found = found.map_err(step("find the gateway namespace", id))?;
        found.map(Arc::new).ok_or_else(|| NetworkError::NotConnected { id: id.to_string() })
    }

    fn gateways(&self) -> MutexGuard<'_, HashMap<SandboxId, Weak<Gateway>>> {
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Network ===

#[async_trait]
impl Network for LinuxNetwork {
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        let slot = self.pool.take().await.map_err(|error| step(error.step, id)(error.source))?;
        let gateway = self.keep(id, slot.gateway).await?;
        let attachment = Attachment::Namespaces { user: slot.user, net: slot.net, ids: slot.ids };
        Ok(Link { attachment, dial: self.handle(gateway) })
    }

    async fn connect_later(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        let gateway = self.pool.make_gateway().await.map_err(|error| step(error.step, id)(error.source))?;
        let gateway = self.keep(id, gateway).await?;
        let attachment = Attachment::Later(Arc::new(GatewayPlug::new(Arc::clone(&gateway))));
        Ok(Link { attachment, dial: self.handle(gateway) })
    }

    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError> {
        let known = self.gateways().get(id).and_then(Weak::upgrade);
        if let Some(gateway) = known {
            return Ok(Some(self.handle(gateway)));
        }
        let name = id.clone();
        let found = self.with_run_dir(move |run_dir| run_dir.find(&name)).await;
        let found = found.map_err(step("find the gateway namespace", id))?;
        Ok(found.map(|namespace| self.handle(self.replace_gateway(id, Gateway::new(namespace, true)))))
    }

    async fn listeners(&self, id: &SandboxId) -> Result<Listeners, NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, listeners::open).await;
        opened.map_err(step("open the listeners", id))
    }

    async fn own_listener(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, listeners::open_own).await;
        opened.map_err(step("open the own listener", id))
    }

    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, || Socket::open(Protocol::Netfilter)).await;
        let filter = opened.map_err(step(pace::STEP, id))?;
        // Under the lock, so that the later of two rates is in force, even if the caller of the earlier one did not
        // wait.
        self.with_run_dir(move |_| filter.run(&pace::load(rate)).map_err(|error| error.source))
            .await
            .map_err(step(pace::STEP, id))
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        let held = self.gateways().remove(id).and_then(|held| held.upgrade());
        let silent = held.and_then(|gateway| {
            let namespace = gateway.namespace().ok().filter(|_| gateway.loses_connections_silently());
            gateway.close();
            namespace
        });
        if let Some(namespace) = silent {
            let ended = tokio::task::spawn_blocking(move || reset_outside(namespace.as_fd())).await;
            if let Err(error) = ended.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                tracing::warn!(%id, %error, "could not end the connections of a removed machine");
            }
        }
        let name = id.clone();
        self.with_run_dir(move |run_dir| run_dir.remove(&name))
            .await
            .map_err(step("remove the gateway namespace", id))
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        self.with_run_dir(RunDir::ids).await.map_err(step("list the gateway namespaces", "all sandboxes"))
    }

    async fn shutdown(&self) {
        self.pool.stop().await;
    }
}

impl fmt::Debug for LinuxNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinuxNetwork").field("run_dir", &self.run_dir).finish_non_exhaustive()
    }
}

fn step(step: &'static str, id: impl fmt::Display) -> impl FnOnce(io::Error) -> NetworkError {
    let id = id.to_string();
    move |source| NetworkError::Step { step, id, source }
}
