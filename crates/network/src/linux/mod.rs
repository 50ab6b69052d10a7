//! The real driver: namespaces, a veth pair, a packet filter.
//!
//! ```text
//! pool ──slot──► connect ──gateway namespace──► run directory: kept beyond this process
//!                   ├─────user and net namespace──► attachment: the machine joins them
//!                   └─────dial, doors ──► dialler thread makes sockets in the gateway namespace
//! connect_later ──gateway namespace──► the same, but for the attachment: a plug, for a namespace yet to come
//! ```
//!
//! What a sandbox's network holds on to: its processes keep the net and the user namespace, the mount in the run
//! directory keeps the gateway. When the processes end, the veth pair goes with their namespace; when the mount goes,
//! so does the gateway.

mod connections;
mod dialler;
mod doors;
mod expression;
mod held;
mod ids;
mod interfaces;
mod mark;
mod namespace;
mod netlink;
mod pace;
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
use crate::{Attachment, Dial, Doors, Link, Network, NetworkError, Rate};

pub use self::connections::{can_reset, reset_outside};
pub use self::held::{hold_packets, release_packets};
pub use self::ids::{HostIds, IdRange};
pub use self::namespace::{UID_BASE, UID_COUNT, random_owner, user_namespace};
pub use self::netlink::SlotError;
pub(crate) use self::probe::remedy;
pub use self::probe::{Unable, probe};

#[derive(Clone, Debug)]
pub struct Options {
    /// Where gateway namespaces are kept. Made if it is not there; must belong to this driver alone.
    pub run_dir: PathBuf,
    /// Slots made in advance; 0 makes each when it is needed.
    pub pool_size: usize,
    /// Whether each sandbox has uids and gids of its own on the host. Its files must then be on idmapped mounts.
    pub own_ids: bool,
}

/// Connects sandboxes by network namespaces of this host.
pub struct LinuxNetwork {
    run_dir: RunDir,
    /// Held while the run directory changes, and by the *work*, not by whoever waits for it: a `connect` that was
    /// dropped midway finishes before the `release` that follows it begins.
    turn: Arc<tokio::sync::Mutex<()>>,
    pool: Pool,
    dialler: Arc<Dialler>,
    /// The gateways that somebody holds a handle of, so that `release` reaches all of those.
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
            turn: Arc::default(),
            pool,
            dialler: Arc::new(dialler),
            gateways: Mutex::default(),
        }))
    }

    /// Removes every sandbox's network and the run directory itself, for uninstalling. No driver may be using it.
    pub fn remove_all(run_dir: &Path) -> Result<(), NetworkError> {
        let step = "remove the network's run directory";
        run_dir::remove_all(run_dir).map_err(|source| NetworkError::RunDir {
            step,
            run_dir: run_dir.to_owned(),
            source,
        })
    }

    /// How many slots are ready to be taken, for metrics.
    pub fn slots_ready(&self) -> usize {
        self.pool.ready()
    }

    /// Runs `work` on the run directory, off the async threads, when its turn has come.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RunDir) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let run_dir = self.run_dir.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&run_dir)
        });
        work.await.map_err(io::Error::other)?
    }

    /// Keeps `gateway` as `id`'s beyond this process.
    async fn keep(&self, id: &SandboxId, gateway: OwnedFd) -> Result<Arc<Gateway>, NetworkError> {
        let name = id.clone();
        let gateway = self
            .in_turn(move |run_dir| run_dir.keep(&name, gateway.as_fd()).map(|()| gateway))
            .await
            .map_err(step("keep the gateway namespace", id))?;
        Ok(self.hand_over(id, Gateway::new(gateway, false)))
    }

    /// From now on `gateway` is `id`'s, and an earlier one is dead.
    fn hand_over(&self, id: &SandboxId, gateway: Gateway) -> Arc<Gateway> {
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

    /// The gateway namespace of `id`, from a handle that is out or else from the run directory.
    async fn namespace(&self, id: &SandboxId) -> Result<Arc<OwnedFd>, NetworkError> {
        let known = self.gateways().get(id).and_then(Weak::upgrade);
        if let Some(namespace) = known.and_then(|gateway| gateway.namespace().ok()) {
            return Ok(namespace);
        }
        let name = id.clone();
        let found = self.in_turn(move |run_dir| run_dir.find(&name)).await;
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
        let found = self.in_turn(move |run_dir| run_dir.find(&name)).await;
        let found = found.map_err(step("find the gateway namespace", id))?;
        Ok(found.map(|namespace| self.handle(self.hand_over(id, Gateway::new(namespace, true)))))
    }

    async fn doors(&self, id: &SandboxId) -> Result<Doors, NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, doors::open).await;
        opened.map_err(step("open the doors", id))
    }

    async fn own_door(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, doors::open_own).await;
        opened.map_err(step("open the own door", id))
    }

    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError> {
        let namespace = self.namespace(id).await?;
        let opened = self.dialler.within(namespace, || Socket::open(Protocol::Netfilter)).await;
        let filter = opened.map_err(step(pace::STEP, id))?;
        // In turn, so that of two rates the later one is in force, also when whoever gave the earlier did not wait.
        self.in_turn(move |_| filter.run(&pace::load(rate)).map_err(|error| error.source))
            .await
            .map_err(step(pace::STEP, id))
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        let held = self.gateways().remove(id).and_then(|held| held.upgrade());
        let silent = held.and_then(|gateway| {
            let namespace = gateway.namespace().ok().filter(|_| gateway.is_left_in_silence());
            gateway.close();
            namespace
        });
        if let Some(namespace) = silent {
            let ended = tokio::task::spawn_blocking(move || reset_outside(namespace.as_fd())).await;
            if let Err(error) = ended.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                tracing::warn!(%id, %error, "connections to a machine that is gone could not be ended");
            }
        }
        let name = id.clone();
        self.in_turn(move |run_dir| run_dir.remove(&name))
            .await
            .map_err(step("remove the gateway namespace", id))
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        self.in_turn(RunDir::ids).await.map_err(step("list the gateway namespaces", "all sandboxes"))
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
