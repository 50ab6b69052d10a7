//! Gives the egress process the segment that it writes to: at the start, when the egress process was restarted, and
//! when the segment is too large or damaged. Without a segment the egress process injects no secret.

use std::sync::Arc;
use std::time::Duration;

use burrow_http::app::App;

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until the daemon ends.
pub(crate) fn spawn(app: &Arc<App>) {
    let work_app = app.clone();
    app.tasks.spawn(async move {
        let draining = work_app.draining.clone();
        draining.run_until_cancelled(run(&work_app)).await;
    });
}

async fn run(app: &App) {
    let mut process = app.engine.egress_epoch();
    let mut failing = false;
    loop {
        process.borrow_and_update();
        match give(app).await {
            Ok(()) => {
                failing = false;
                tokio::select! {
                    () = app.audit.spool.wanted() => {}
                    raised = process.changed() => if raised.is_err() { return },
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    let error = &*error as &dyn std::error::Error;
                    tracing::error!(
                        error,
                        "the egress process has no audit segment to write to; secrets are not injected"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn give(app: &App) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let segment = app.audit.spool.next()?;
    app.engine.give_spool(segment.file).await?;
    // It has confirmed the new segment, so earlier segments are complete.
    app.audit.spool.sealed_below(segment.number);
    Ok(())
}
