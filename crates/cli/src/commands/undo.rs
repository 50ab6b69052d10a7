//! `exec --snapshot` and `--rollback-on-failure`: a point to come back to, and the way back when the command fails.

use std::time::Duration;

use burrow_api::{CreateExec, Exec, Rollback, RollbackState};
use burrow_client::Client;
use clap::Args;
use tokio::time::Instant;

use crate::failure::{CODE_OWN_FAILURE, Failure, OrFail as _, Stop};
use crate::interact::{End, outcome};
use crate::print;
use crate::print::escape::escape;
use crate::transfer::progress::Progress;

/// A sandbox with much RAM takes its time to come back from disk; beyond this something hangs.
const SETTLE_LIMIT: Duration = Duration::from_secs(600);
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// A point to come back to.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct UndoFlags {
    /// Take a snapshot of the sandbox just before it starts
    #[arg(long)]
    snapshot: bool,
    /// If it fails, put the sandbox back to how it was before, files and processes
    #[arg(long, conflicts_with = "detach")]
    rollback_on_failure: bool,
}

impl UndoFlags {
    pub(crate) fn over(self, request: CreateExec) -> CreateExec {
        CreateExec { snapshot: self.snapshot, rollback_on_failure: self.rollback_on_failure, ..request }
    }

    /// Says which snapshot was taken.
    pub(crate) fn tell(self, exec: &Exec) {
        if let Some(snapshot) = exec.snapshot.as_deref().filter(|_| self.snapshot) {
            print::note(&format!("snapshot `{}`", escape(snapshot)));
        }
    }

    /// Waits until a failed exec has been undone, and says what came of it.
    pub(crate) async fn settle(self, client: &Client, end: &End) -> Result<(), Stop> {
        let End::Exit(exec) = end else { return Ok(()) };
        if !self.rollback_on_failure || outcome::exit_code(exec) == 0 {
            return Ok(());
        }
        let _working = Progress::working(&format!("rolling back {}", exec.sandbox_id));
        let what = || format!("could not learn whether exec `{}` was rolled back", exec.id);
        let deadline = Instant::now() + SETTLE_LIMIT;
        let mut found = (**exec).clone();
        loop {
            // The daemon says how an exec ended when it is undone, as long as it is there to say it.
            if found.rollback.as_ref().is_none_or(|known| known.state == RollbackState::Pending) {
                found = client.exec(&exec.sandbox_id, &exec.id).await.or_fail(what)?;
            }
            match verdict(&found) {
                Some(Ok(line)) => {
                    print::note(&line);
                    return Ok(());
                }
                Some(Err(failure)) => return Err(failure.into()),
                None if Instant::now() >= deadline => {
                    return Err(Stop::from(Failure::new(what())).with_code(CODE_OWN_FAILURE));
                }
                None => tokio::time::sleep(SETTLE_PAUSE).await,
            }
        }
    }
}

/// `None` while it is under way.
fn verdict(exec: &Exec) -> Option<Result<String, Failure>> {
    let sandbox = escape(&exec.sandbox_id);
    let Some(Rollback { state, undo, error }) = &exec.rollback else {
        let failure = Failure::new(format!("the daemon did not roll sandbox `{sandbox}` back"));
        return Some(Err(by_hand(failure, exec)));
    };
    match state {
        RollbackState::Pending => None,
        RollbackState::Unneeded => Some(Ok(format!("sandbox `{sandbox}` was left as it is"))),
        RollbackState::Done => {
            let kept = match undo {
                Some(undo) => format!("; what the command left is snapshot `{}`", escape(undo)),
                None => String::new(),
            };
            Some(Ok(format!("sandbox `{sandbox}` is as it was before the command{kept}")))
        }
        RollbackState::Failed => {
            let mut failure = Failure::new(format!("could not roll sandbox `{sandbox}` back"));
            if let Some(error) = error {
                failure.causes.push(error.message.clone());
                failure.hint = error.hint.clone();
            }
            Some(Err(by_hand(failure, exec)))
        }
    }
}

fn by_hand(mut failure: Failure, exec: &Exec) -> Failure {
    failure.code = CODE_OWN_FAILURE;
    if let (None, Some(snapshot)) = (&failure.hint, &exec.snapshot) {
        let command = format!("burrow snapshot restore {snapshot} --in-place {}", exec.sandbox_id);
        failure.hint = Some(format!("`{command}` does it by hand"));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::{ErrorCode, ErrorDetail, ExecState};

    fn exec(rollback: Option<Rollback>) -> Exec {
        Exec {
            id: "exe".to_owned(),
            sandbox_id: "sbx".to_owned(),
            argv: Vec::new(),
            state: ExecState::Ended,
            pid: None,
            terminal: false,
            started_ms: 0,
            ended_ms: None,
            outcome: None,
            output_end: 0,
            output_start: 0,
            output_dropped: 0,
            egress_denied: Vec::new(),
            snapshot: Some("snp1".to_owned()),
            rollback,
            related: Vec::new(),
        }
    }

    fn rollback(state: RollbackState, undo: Option<&str>) -> Option<Rollback> {
        Some(Rollback { state, undo: undo.map(str::to_owned), error: None })
    }

    #[test]
    fn a_rollback_is_waited_for_and_told() {
        assert!(verdict(&exec(rollback(RollbackState::Pending, None))).is_none());
        let done = verdict(&exec(rollback(RollbackState::Done, Some("snp2")))).unwrap().unwrap();
        assert_eq!(
            done,
            "sandbox `sbx` is as it was before the command; what the command left is snapshot `snp2`"
        );
    }

    #[test]
    fn a_rollback_that_failed_is_our_failure_with_the_way_to_do_it_by_hand() {
        let failure = verdict(&exec(rollback(RollbackState::Failed, None))).unwrap().unwrap_err();
        assert_eq!(failure.code, CODE_OWN_FAILURE);
        let hint = failure.hint.unwrap();
        assert_eq!(hint, "`burrow snapshot restore snp1 --in-place sbx` does it by hand");
        let error = ErrorDetail {
            code: ErrorCode::NoSpace,
            message: "the pool is full".to_owned(),
            hint: Some("make room".to_owned()),
        };
        let told = Rollback { state: RollbackState::Failed, undo: None, error: Some(error) };
        let failure = verdict(&exec(Some(told))).unwrap().unwrap_err();
        assert_eq!(failure.to_string(), "could not roll sandbox `sbx` back: the pool is full");
        assert_eq!(failure.hint.as_deref(), Some("make room"));
        assert!(verdict(&exec(None)).unwrap().is_err(), "a daemon that does not know of it");
    }
}
