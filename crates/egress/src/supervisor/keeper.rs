//! The task that keeps a process running for as long as the daemon runs.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::launch::{self, Found};
use super::link::{Carrier, Link};
use super::{Inner, failed};
use crate::EgressError;
use crate::control::{Answer, Ask};

/// The pause before another process is started, while they keep dying: from short to long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// One that lived this long did not die of being started.
const GOOD_LIFE: Duration = Duration::from_secs(30);

/// Finds a process, or starts one.
pub(super) async fn connect(inner: &Inner) -> Result<Found, EgressError> {
    let found = launch::find(&inner.options.run_dir).await.map_err(failed("find"))?;
    match found {
        Some(found) => Ok(found),
        None => launch::start(&inner.options).await.map_err(failed("start")),
    }
}

/// Runs until it is aborted.
pub(super) async fn keep(inner: Arc<Inner>, first: Found) {
    let mut found = Some(first);
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(found) = found.take() {
            let began = Instant::now();
            let mut child = found.child;
            let (link, carrier) = Link::new(found.channel, found.incoming, inner.log.clone());
            carry(&inner, &link, carrier).await;
            inner.link.send_replace(None);
            if began.elapsed() > GOOD_LIFE {
                pause = PAUSE_MIN;
            }
            // Ours is waited for, so that it does not stay as a zombie. One that has only dropped us is found again.
            let status = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            tracing::warn!(?status, "the egress process is gone; sandboxes reach nothing until it is back");
            reap(child);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        match connect(&inner).await {
            Ok(again) => found = Some(again),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "sandboxes reach nothing; trying again in {pause:?}");
            }
        }
    }
}

/// Carries messages until the connection ends. Once what is wanted is served, callers may use it too.
async fn carry(inner: &Arc<Inner>, link: &Arc<Link>, carrier: Carrier) {
    let settling = async {
        match settle(inner, link).await {
            Ok(()) => {
                inner.link.send_replace(Some(Arc::clone(link)));
                inner.epoch.send_modify(|epoch| *epoch += 1);
                std::future::pending::<()>().await;
            }
            // The connection has ended, or the process hangs: either way another is needed.
            Err(error) => tracing::warn!(%error, "could not tell the egress process what to serve"),
        }
    };
    tokio::select! {
        () = settling => {}
        outcome = carrier.run() => {
            if let Err(error) = outcome {
                tracing::debug!(%error, "the connection to the egress process broke");
            }
        }
    }
}

/// Tells a process what is wanted. One that was found serves some of it already, with flows that must go on.
async fn settle(inner: &Arc<Inner>, link: &Link) -> Result<(), EgressError> {
    let (limits, roots) = (inner.options.limits, inner.options.extra_roots.clone());
    link.ask(Ask::Configure { limits, roots }, Vec::new()).await?;
    let spool = inner.spool.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(OwnedFd::try_clone);
    if let Some(Ok(segment)) = spool
        && let Answer::Failed { reason } = link.ask(Ask::Spool, vec![segment]).await?
    {
        // It serves all the same, and injects nothing.
        tracing::error!(%reason, "the egress process could not take the audit spool");
    }
    let wanted = inner.wanted().clone();
    for (id, policy) in wanted {
        let ask = Ask::SetPolicy { id: id.clone(), policy: policy.clone() };
        if !matches!(link.ask(ask, Vec::new()).await?, Answer::NotAttached) {
            continue;
        }
        match inner.attach(link, &id, &policy).await {
            Ok(()) => {}
            Err(error @ (EgressError::Down | EgressError::Silent)) => return Err(error),
            // One sandbox that cannot be served must not keep the others from it.
            Err(error) => tracing::warn!(%error, sandbox = %id, "could not serve a sandbox again"),
        }
    }
    Ok(())
}

/// Waits for a child in the background.
fn reap(child: Option<tokio::process::Child>) {
    if let Some(mut child) = child {
        tokio::spawn(async move {
            let _ = child.wait().await;
        });
    }
}
