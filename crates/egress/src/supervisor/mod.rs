//! The daemon's side: keeps the egress process running and tells it what to serve.
//!
//! ```text
//! keeper task:  find the process, or start one ──► greet ──► attach what is wanted ──► carry messages ──┐
//!                    ▲                                                                                  │
//!                    └──────────── a pause that grows while it keeps dying ◄──── the connection ends ───┘
//! callers:      change what is wanted, then ask the process (and wait shortly for one to be there)
//! ```
//!
//! What is wanted is kept here, so that a process that died is replaced by one that serves the same sandboxes. While
//! there is none, sandboxes reach nothing.

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

use crate::control::{Answer, Ask};
use crate::{BudgetLeft, Counters, Egress, EgressError, Limits, LogEntry, Policy, Target, Trial, Waiting};
use link::Link;

/// How long a caller waits for a process to be there: starting one takes some 20 ms.
const UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Log entries that wait for the daemon to write them down.
const LOG_QUEUE_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its first arguments: what starts the role, as in `burrow egress`. More are appended.
    pub program: Vec<OsString>,
    /// Where the control socket is kept. Made if it is not there; must belong to this driver alone.
    pub run_dir: PathBuf,
    /// Who the process runs as. Not root, and nobody else's.
    pub uid: u32,
    pub gid: u32,
    /// Opens sandboxes' doors.
    pub network: Arc<dyn Network>,
    /// Per sandbox.
    pub limits: Limits,
    /// Certificates, in DER, by which hosts are verified beside this machine's own: a company's, or a test's.
    pub extra_roots: Vec<Vec<u8>>,
}

/// Keeps the process running.
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
    /// The way to the process, while there is one.
    link: watch::Sender<Option<Arc<Link>>>,
    /// Held from opening doors until they are handed over: the newest doors win, so they must arrive last.
    doors_turn: tokio::sync::Mutex<()>,
    /// The segment of the audit spool that is written to, for a process that replaces one which died.
    spool: Mutex<Option<OwnedFd>>,
    log: mpsc::Sender<LogEntry>,
    /// Raised when a process has been told what is wanted.
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
            doors_turn: tokio::sync::Mutex::default(),
            spool: Mutex::default(),
            log,
            epoch: watch::Sender::new(0),
        });
        // The first time is not in the background: a daemon that cannot start it should say so at once.
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
                Err(failed("remove what is left of")(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The process's pid, for `burrow doctor`, metrics and tests; `None` while there is none.
    pub fn pid(&self) -> Option<u32> {
        self.inner.link.borrow().as_ref().and_then(|link| link.pid())
    }
}

impl Inner {
    /// The way to the process, when there is one.
    async fn up(&self) -> Result<Arc<Link>, EgressError> {
        let mut link = self.link.subscribe();
        let found = tokio::time::timeout(UP_TIMEOUT, link.wait_for(Option::is_some)).await;
        match found {
            Ok(Ok(found)) => found.clone().ok_or(EgressError::Down),
            Ok(Err(_)) | Err(_) => Err(EgressError::Down),
        }
    }

    /// Opens the doors of `id` and hands them over.
    async fn attach(&self, link: &Link, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let _turn = self.doors_turn.lock().await;
        let doors = self.options.network.doors(id).await;
        let doors = doors.map_err(|source| EgressError::Doors { id: id.clone(), source })?;
        let ask = Ask::Attach { id: id.clone(), policy: policy.clone() };
        let along = vec![doors.tcp, doors.dns_udp, doors.dns_tcp];
        done(link.ask(ask, along).await?, "serve the sandbox", id)
    }

    /// No secret is kept: a process that takes this one's place is given them by whoever can open them.
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
        // Wanted first: a process that is replaced meanwhile is told of it too.
        self.inner.want(id, policy);
        let attached = self.inner.attach(&link, id, policy).await;
        if attached.is_err() {
            self.inner.wanted().remove(id);
        }
        attached
    }

    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let link = self.inner.up().await?;
        let ask = Ask::SetPolicy { id: id.clone(), policy: policy.clone() };
        let answer = link.ask(ask, Vec::new()).await?;
        if matches!(answer, Answer::NotAttached) {
            return self.attach(id, policy).await;
        }
        self.inner.want(id, policy);
        done(answer, "take a policy", id)
    }

    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        match self.inner.wanted().get_mut(id) {
            Some(wanted) => *wanted = policy.without_secrets(),
            None => return Err(EgressError::NotAttached { id: id.clone() }),
        }
        // Should there be no process now, the next one is told this policy with the sandbox.
        let link = self.inner.up().await?;
        let ask = Ask::SetPolicy { id: id.clone(), policy: policy.clone() };
        done(link.ask(ask, Vec::new()).await?, "take a policy", id)
    }

    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError> {
        self.inner.wanted().remove(id);
        let link = self.inner.up().await?;
        done(link.ask(Ask::Detach { id: id.clone() }, Vec::new()).await?, "let go of a sandbox", id)
    }

    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError> {
        let answer = self.inner.up().await?.ask(Ask::List, Vec::new()).await?;
        let Answer::Sandboxes { ids } = answer else {
            return Err(unexpected(answer, "list its sandboxes", None));
        };
        Ok(ids)
    }

    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError> {
        let ask = Ask::Trial { id: id.clone(), target: target.clone() };
        let answer = self.inner.up().await?.ask(ask, Vec::new()).await?;
        let Answer::Trial { trial } = answer else {
            return Err(unexpected(answer, "try a destination", Some(id)));
        };
        Ok(trial)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError> {
        let answer = self.inner.up().await?.ask(Ask::Counters { id: id.clone() }, Vec::new()).await?;
        let Answer::Counters { counters } = answer else { return Err(unexpected(answer, "count", Some(id))) };
        Ok(counters)
    }

    async fn approvals(&self, id: &SandboxId) -> Result<Vec<Waiting>, EgressError> {
        let answer = self.inner.up().await?.ask(Ask::Approvals { id: id.clone() }, Vec::new()).await?;
        let Answer::Approvals { waiting } = answer else {
            return Err(unexpected(answer, "say what waits for approval", Some(id)));
        };
        Ok(waiting)
    }

    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError> {
        let ask = Ask::Decide { id: id.clone(), number, yes };
        let answer = self.inner.up().await?.ask(ask, Vec::new()).await?;
        if matches!(answer, Answer::NotWaiting) {
            return Err(EgressError::NotWaiting { id: id.clone(), number });
        }
        done(answer, "decide about a request", id)
    }

    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError> {
        let answer = self.inner.up().await?.ask(Ask::Budgets { id: id.clone() }, Vec::new()).await?;
        let Answer::Budgets { budgets } = answer else {
            return Err(unexpected(answer, "say what is left of budgets", Some(id)));
        };
        Ok(budgets)
    }

    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError> {
        let link = self.inner.up().await?;
        // Wanted first: a process that is replaced meanwhile gets it too.
        let kept = segment.try_clone().map_err(failed("keep the audit spool of"))?;
        *self.inner.spool.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        let answer = link.ask(Ask::Spool, vec![segment]).await?;
        if matches!(answer, Answer::Done) {
            return Ok(());
        }
        Err(unexpected(answer, "take another segment of the audit spool", None))
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
            // It was aborted, or had ended: either way it is over.
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

/// What an answer means that is not the one hoped for.
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
        ) => "it answered something else".to_owned(),
    };
    EgressError::Refused { request, reason }
}

fn failed(step: &'static str) -> impl FnOnce(std::io::Error) -> EgressError {
    move |source| EgressError::Process { step, source }
}
