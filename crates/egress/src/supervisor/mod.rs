//! The daemon's side: keeps the egress process running and configures it.
//!
//! ```text
//! keeper task:  find the process, or start one ──► greet ──► attach sandboxes ──► carry messages ─────┐
//!                    ▲                                                                                │
//!                    └──────── a backoff that grows while it keeps failing ◄──── the connection ends ─┘
//! callers:      change the wanted state, then send a request (and wait shortly for a process)
//! ```
//!
//! The wanted state is kept here, so that a replacement process serves the same sandboxes. While there is no process,
//! sandboxes have no network.

mod keeper;
mod launch;
mod link;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use burrow_model::SandboxId;
use burrow_network::Network;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::control::{Answer, RequestKind};
use crate::{
    BudgetLeft, Counters, Egress, EgressError, Limits, LogEntry, PendingApproval, Policy, Target, Trial,
};
use link::Link;

/// How long a caller waits for a running process: starting one takes some 20 ms.
const UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Log entries that wait until the daemon stores them.
const LOG_QUEUE_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its first arguments, which start the role, as in `burrow egress-process`. Options are
    /// appended.
    pub program: Vec<OsString>,
    /// The directory of the control socket. Created if missing; must be used by this driver only.
    pub run_dir: PathBuf,
    /// The uid of the process. Not root, and used by no other process.
    pub uid: u32,
    pub gid: u32,
    /// Opens the listeners of sandboxes.
    pub network: Arc<dyn Network>,
    /// The limits of each sandbox.
    pub limits: Limits,
    /// Certificates, in DER, that are trusted in addition to the system's own: a company's, or a test's.
    pub extra_roots: Vec<Vec<u8>>,
}

/// Keeps the egress process running.
#[derive(Debug)]
pub struct Supervisor {
    inner: Arc<Inner>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    log: Mutex<Option<mpsc::Receiver<LogEntry>>>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    wanted: Mutex<BTreeMap<SandboxId, Policy>>,
    /// The connection to the process, while there is one.
    link: watch::Sender<Option<Arc<Link>>>,
    /// Locked from opening listeners until they are passed to the process: the newest listeners take precedence, so
    /// they must arrive last.
    listeners_lock: tokio::sync::Mutex<()>,
    /// The current segment of the audit spool, for a replacement process.
    spool: Mutex<Option<OwnedFd>>,
    log: mpsc::Sender<LogEntry>,
    /// Incremented when a process has received the wanted state.
    epoch: watch::Sender<u64>,
}

impl Supervisor {
    /// Finds the process of an earlier daemon, or starts one. It is kept running from now on.
    pub async fn open(options: Options) -> Result<Arc<Self>, EgressError> {
        launch::prepare(&options.run_dir).map_err(failed("prepare the run directory of"))?;
        let (log, reader) = mpsc::channel(LOG_QUEUE_MAX);
        let inner = Arc::new(Inner {
            options,
            wanted: Mutex::default(),
            link: watch::Sender::new(None),
            listeners_lock: tokio::sync::Mutex::default(),
            spool: Mutex::default(),
            log,
            epoch: watch::Sender::new(0),
        });
        // The first attempt is not in the background: a daemon that cannot start the process should fail at once.
        let first = keeper::connect(&inner).await?;
        let keeper = tokio::spawn(keeper::keep(Arc::clone(&inner), first));
        inner.up().await?;
        Ok(Arc::new(Self { inner, keeper: Mutex::new(Some(keeper)), log: Mutex::new(Some(reader)) }))
    }

    /// Ends the process that serves from `run_dir`, for uninstalling and for tests. No daemon may be using it.
    pub async fn remove_all(run_dir: &Path) -> Result<(), EgressError> {
        launch::end(run_dir).await.map_err(failed("end"))?;
        match std::fs::remove_dir_all(run_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed("remove the files of")(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The pid of the process, for `burrow doctor`, metrics and tests; `None` while there is none.
    pub fn pid(&self) -> Option<u32> {
        self.inner.link.borrow().as_ref().and_then(|link| link.pid())
    }
}

impl Inner {
    /// Waits for the connection to a process.
    async fn up(&self) -> Result<Arc<Link>, EgressError> {
        let mut link = self.link.subscribe();
        let found = tokio::time::timeout(UP_TIMEOUT, link.wait_for(Option::is_some)).await;
        match found {
            Ok(Ok(found)) => found.clone().ok_or(EgressError::Down),
            Ok(Err(_)) | Err(_) => Err(EgressError::Down),
        }
    }

    /// Opens the listeners of `id` and passes them to the process.
    async fn attach(&self, link: &Link, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let _turn = self.listeners_lock.lock().await;
        let listeners = self.options.network.listeners(id).await;
        let listeners = listeners.map_err(|source| EgressError::Listeners { id: id.clone(), source })?;
        let ask = RequestKind::Attach { id: id.clone(), policy: policy.clone() };
        let descriptors = vec![listeners.tcp, listeners.dns_udp, listeners.dns_tcp];
        done(link.ask(ask, descriptors).await?, "serve the sandbox", id)
    }

    /// Secrets are not kept: a replacement process receives them from the engine, which can decrypt them.
    fn want(&self, id: &SandboxId, policy: &Policy) {
        self.wanted().insert(id.clone(), policy.without_secrets());
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Policy>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Egress for Supervisor {
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let link = self.inner.up().await?;
        // Stored first: if the process is replaced meanwhile, the new one receives it too.
        self.inner.want(id, policy);
        let attached = self.inner.attach(&link, id, policy).await;
        if attached.is_err() {
            self.inner.wanted().remove(id);
        }
        attached
    }

    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let link = self.inner.up().await?;
        let ask = RequestKind::SetPolicy { id: id.clone(), policy: policy.clone() };
        let answer = link.ask(ask, Vec::new()).await?;
        if matches!(answer, Answer::NotAttached) {
            return self.attach(id, policy).await;
        }
        self.inner.want(id, policy);
        done(answer, "set a policy", id)
    }

    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        match self.inner.wanted().get_mut(id) {
            Some(wanted) => *wanted = policy.without_secrets(),
            None => return Err(EgressError::NotAttached { id: id.clone() }),
        }
        // If there is no process now, the next one receives this policy with the sandbox.
        let link = self.inner.up().await?;
        let ask = RequestKind::SetPolicy { id: id.clone(), policy: policy.clone() };
        done(link.ask(ask, Vec::new()).await?, "set a policy", id)
    }

    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError> {
        self.inner.wanted().remove(id);
        let link = self.inner.up().await?;
        done(link.ask(RequestKind::Detach { id: id.clone() }, Vec::new()).await?, "detach a sandbox", id)
    }

    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError> {
        let answer = self.inner.up().await?.ask(RequestKind::List, Vec::new()).await?;
        let Answer::Sandboxes { ids } = answer else {
            return Err(unexpected(answer, "list its sandboxes", None));
        };
        Ok(ids)
    }

    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError> {
        let ask = RequestKind::Trial { id: id.clone(), target: target.clone() };
        let answer = self.inner.up().await?.ask(ask, Vec::new()).await?;
        let Answer::Trial { trial } = answer else {
            return Err(unexpected(answer, "test a destination", Some(id)));
        };
        Ok(trial)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError> {
        let answer = self.inner.up().await?.ask(RequestKind::Counters { id: id.clone() }, Vec::new()).await?;
        let Answer::Counters { counters } = answer else { return Err(unexpected(answer, "count", Some(id))) };
        Ok(counters)
    }

    async fn approvals(&self, id: &SandboxId) -> Result<Vec<PendingApproval>, EgressError> {
        let answer =
            self.inner.up().await?.ask(RequestKind::Approvals { id: id.clone() }, Vec::new()).await?;
        let Answer::Approvals { waiting } = answer else {
            return Err(unexpected(answer, "list requests that wait for approval", Some(id)));
        };
        Ok(waiting)
    }

    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError> {
        let ask = RequestKind::Decide { id: id.clone(), number, yes };
        let answer = self.inner.up().await?.ask(ask, Vec::new()).await?;
        if matches!(answer, Answer::NotWaiting) {
            return Err(EgressError::NotWaiting { id: id.clone(), number });
        }
        done(answer, "decide about a request", id)
    }

    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError> {
        let answer = self.inner.up().await?.ask(RequestKind::Budgets { id: id.clone() }, Vec::new()).await?;
        let Answer::Budgets { budgets } = answer else {
            return Err(unexpected(answer, "report budgets", Some(id)));
        };
        Ok(budgets)
    }

    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError> {
        let link = self.inner.up().await?;
        // Stored first: if the process is replaced meanwhile, the new one receives it too.
        let kept = segment.try_clone().map_err(failed("keep the audit spool of"))?;
        *self.inner.spool.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        let answer = link.ask(RequestKind::Spool, vec![segment]).await?;
        if matches!(answer, Answer::Done) {
            return Ok(());
        }
        Err(unexpected(answer, "use another segment of the audit spool", None))
    }

    fn log(&self) -> Option<mpsc::Receiver<LogEntry>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn epoch(&self) -> watch::Receiver<u64> {
        self.inner.epoch.subscribe()
    }

    async fn shutdown(&self) {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            keeper.abort();
            // It was aborted, or had ended already.
            let _ = keeper.await;
        }
        self.inner.link.send_replace(None);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.abort();
        }
    }
}

fn done(answer: Answer, request: &'static str, id: &SandboxId) -> Result<(), EgressError> {
    if matches!(answer, Answer::Done) { Ok(()) } else { Err(unexpected(answer, request, Some(id))) }
}

/// The error for an unexpected answer.
fn unexpected(answer: Answer, request: &'static str, id: Option<&SandboxId>) -> EgressError {
    let reason = match (answer, id) {
        (Answer::NotAttached, Some(id)) => return EgressError::NotAttached { id: id.clone() },
        (Answer::Failed { reason }, _) => reason,
        (
            Answer::Done
            | Answer::NotAttached
            | Answer::Sandboxes { .. }
            | Answer::Trial { .. }
            | Answer::Counters { .. }
            | Answer::Approvals { .. }
            | Answer::NotWaiting
            | Answer::Budgets { .. },
            _,
        ) => "unexpected answer".to_owned(),
    };
    EgressError::Refused { request, reason }
}

fn failed(step: &'static str) -> impl FnOnce(std::io::Error) -> EgressError {
    move |source| EgressError::Process { step, source }
}
