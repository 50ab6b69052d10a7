//! The task that keeps an egress process running for as long as the daemon runs.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::launch::{self, RunningProcess};
use super::link::{Carrier, Link};
use super::{Inner, failed};
use crate::EgressError;
use crate::control::{Answer, RequestKind};

/// Backoff before a process is started again, while processes keep failing.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// After this time, a process is considered to have started successfully.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Finds a running process, or starts one.
pub(super) async fn connect(inner: &Inner) -> Result<RunningProcess, EgressError> {
    let found = launch::find(&inner.options.run_dir).await.map_err(failed("find"))?;
    match found {
        Some(found) => Ok(found),
        None => launch::start(&inner.options).await.map_err(failed("start")),
    }
}

/// Runs until it is aborted.
pub(super) async fn keep(inner: Arc<Inner>, first: RunningProcess) {
    let mut found = Some(first);
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(found) = found.take() {
            let began = Instant::now();
            let mut child = found.child;
            let (link, carrier) = Link::new(found.channel, found.incoming, inner.log.clone());
            carry(&inner, &link, carrier).await;
            inner.link.send_replace(None);
            if began.elapsed() > STABLE_AFTER {
                pause = PAUSE_MIN;
            }
            // A child is reaped here, so that it does not become a zombie. A process that only closed the connection
            // is found again.
            let status = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            tracing::warn!(
                ?status,
                "the egress process has ended; sandboxes have no network until it is restarted"
            );
            reap(child);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        match connect(&inner).await {
            Ok(again) => found = Some(again),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "sandboxes have no network; retrying in {pause:?}");
            }
        }
    }
}

/// Transfers messages until the connection ends. Callers can use the link once all wanted sandboxes are served.
async fn carry(inner: &Arc<Inner>, link: &Arc<Link>, carrier: Carrier) {
    let settling = async {
        match attach_wanted(inner, link).await {
            Ok(()) => {
                inner.link.send_replace(Some(Arc::clone(link)));
                inner.epoch.send_modify(|epoch| *epoch += 1);
                std::future::pending::<()>().await;
            }
            // The connection has ended or the process hangs: in both cases another process is needed.
            Err(error) => tracing::warn!(%error, "could not configure the egress process"),
        }
    };
    tokio::select! {
        () = settling => {}
        outcome = carrier.run() => {
            if let Err(error) = outcome {
                tracing::debug!(%error, "the connection to the egress process failed");
            }
        }
    }
}

/// Attaches all wanted sandboxes. A process that was running already serves some of them, whose flows must continue.
async fn attach_wanted(inner: &Arc<Inner>, link: &Link) -> Result<(), EgressError> {
    let (limits, roots) = (inner.options.limits, inner.options.extra_roots.clone());
    link.ask(RequestKind::Configure { limits, roots }, Vec::new()).await?;
    let spool = inner.spool.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(OwnedFd::try_clone);
    if let Some(Ok(segment)) = spool
        && let Answer::Failed { reason } = link.ask(RequestKind::Spool, vec![segment]).await?
    {
        // It still serves sandboxes, but inserts no secrets.
        tracing::error!(%reason, "the egress process did not accept the audit spool");
    }
    let wanted = inner.wanted().clone();
    for (id, policy) in wanted {
        let ask = RequestKind::SetPolicy { id: id.clone(), policy: policy.clone() };
        if !matches!(link.ask(ask, Vec::new()).await?, Answer::NotAttached) {
            continue;
        }
        match inner.attach(link, &id, &policy).await {
            Ok(()) => {}
            Err(error @ (EgressError::Down | EgressError::Silent)) => return Err(error),
            // One sandbox that cannot be served must not prevent the others from being served.
            Err(error) => tracing::warn!(%error, sandbox = %id, "could not serve a sandbox again"),
        }
    }
    Ok(())
}

/// Waits for a child in the background.
fn reap(child: Option<tokio::process::Child>) {
    if let Some(mut child) = child {
        // Ends with the child.
        drop(tokio::spawn(async move {
            let _ = child.wait().await;
        }));
    }
}
