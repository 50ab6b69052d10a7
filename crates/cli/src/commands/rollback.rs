//! `exec --snapshot` and `--rollback-on-failure`: a snapshot before the command, and a rollback when it fails.

use burrow_api::{CreateExec, Exec, Rollback, RollbackState};
use tokio::time::Instant;

use crate::commands::prelude::*;
use crate::interact::{InteractionEnd, outcome};

/// Restoring a sandbox with much RAM takes long; beyond this limit, something is blocked.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(600);
const ROLLBACK_PAUSE: Duration = Duration::from_millis(100);

/// Snapshot and rollback of an exec.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RollbackFlags {
    /// Take a snapshot of the sandbox just before the command starts
    #[arg(long)]
    snapshot: bool,
    /// If the command fails, roll the sandbox back to its previous state, files and processes
    #[arg(long, conflicts_with = "detach")]
    rollback_on_failure: bool,
}

impl RollbackFlags {
    pub(crate) fn over(self, request: CreateExec) -> CreateExec {
        CreateExec { snapshot: self.snapshot, rollback_on_failure: self.rollback_on_failure, ..request }
    }

    /// Prints which snapshot was taken.
    pub(crate) fn print_snapshot(self, exec: &Exec) {
        if let Some(snapshot) = exec.snapshot.as_deref().filter(|_| self.snapshot) {
            print::note(format!("snapshot `{}`", escape(snapshot)));
        }
    }

    /// Waits for the rollback of a failed exec, and reports its result.
    pub(crate) async fn await_rollback(self, client: &Client, end: &InteractionEnd) -> Result<(), Stop> {
        let InteractionEnd::Exit(exec) = end else { return Ok(()) };
        if !self.rollback_on_failure || outcome::exit_code(exec) == 0 {
            return Ok(());
        }
        let _working = Progress::working(&format!("rolling back {}", exec.sandbox_id));
        let what = || format!("could not find out whether exec `{}` was rolled back", exec.id);
        let deadline = Instant::now() + ROLLBACK_LIMIT;
        let mut found = (**exec).clone();
        loop {
            // The daemon answers with the outcome of the exec when the rollback is done, unless it is restarted.
            if found.rollback.as_ref().is_none_or(|known| known.state == RollbackState::Pending) {
                found = client.exec(&exec.sandbox_id, &exec.id).await.or_fail(what)?;
            }
            match verdict(&found) {
                Some(Ok(line)) => {
                    print::note(line);
                    return Ok(());
                }
                Some(Err(failure)) => return Err(failure.into()),
                None if Instant::now() >= deadline => {
                    return Err(Stop::from(Failure::new(what())).with_code(CODE_OWN_FAILURE));
                }
                None => tokio::time::sleep(ROLLBACK_PAUSE).await,
            }
        }
    }
}

/// `None` while the rollback is running.
fn verdict(exec: &Exec) -> Option<Result<String, Failure>> {
    let sandbox = escape(&exec.sandbox_id);
    let Some(Rollback { state, undo, error }) = &exec.rollback else {
        let failure = Failure::new(format!("the daemon did not roll sandbox `{sandbox}` back"));
        return Some(Err(with_manual_rollback(failure, exec)));
    };
    match state {
        RollbackState::Pending => None,
        RollbackState::Unneeded => Some(Ok(format!("sandbox `{sandbox}` was not changed"))),
        RollbackState::Done => {
            let kept = match undo {
                Some(undo) => format!("; the state after the command is snapshot `{}`", escape(undo)),
                None => String::new(),
            };
            Some(Ok(format!("sandbox `{sandbox}` was rolled back to the state before the command{kept}")))
        }
        RollbackState::Failed => {
            let mut failure = Failure::new(format!("could not roll sandbox `{sandbox}` back"));
            if let Some(error) = error {
                failure.causes.push(error.message.clone());
                failure.hint = error.hint.clone();
            }
            Some(Err(with_manual_rollback(failure, exec)))
        }
    }
}

fn with_manual_rollback(mut failure: Failure, exec: &Exec) -> Failure {
    failure.code = CODE_OWN_FAILURE;
    if let (None, Some(snapshot)) = (&failure.hint, &exec.snapshot) {
        let command = format!("burrow snapshot restore {snapshot} --in-place {}", exec.sandbox_id);
        failure.hint = Some(format!("`{command}` rolls it back manually"));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::{ErrorCode, ErrorDetail};

    fn exec(rollback: Option<Rollback>) -> Exec {
        Exec { snapshot: Some("snp1".to_owned()), rollback, ..outcome::example_exec() }
    }

    fn rollback(state: RollbackState, undo: Option<&str>) -> Option<Rollback> {
        Some(Rollback { state, undo: undo.map(str::to_owned), error: None })
    }

    #[test]
    fn a_rollback_is_awaited_and_reported() {
        assert!(verdict(&exec(rollback(RollbackState::Pending, None))).is_none());
        let done = verdict(&exec(rollback(RollbackState::Done, Some("snp2")))).unwrap().unwrap();
        assert_eq!(
            done,
            "sandbox `sbx` was rolled back to the state before the command; the state after the command is snapshot `snp2`"
        );
    }

    #[test]
    fn a_failed_rollback_is_a_failure_with_a_command_to_do_it_manually() {
        let failure = verdict(&exec(rollback(RollbackState::Failed, None))).unwrap().unwrap_err();
        assert_eq!(failure.code, CODE_OWN_FAILURE);
        let hint = failure.hint.unwrap();
        assert_eq!(hint, "`burrow snapshot restore snp1 --in-place sbx` rolls it back manually");
        let error = ErrorDetail {
            code: ErrorCode::NoSpace,
            message: "the pool is full".to_owned(),
            hint: Some("make room".to_owned()),
        };
        let state = Rollback { state: RollbackState::Failed, undo: None, error: Some(error) };
        let failure = verdict(&exec(Some(state))).unwrap().unwrap_err();
        assert_eq!(failure.to_string(), "could not roll sandbox `sbx` back: the pool is full");
        assert_eq!(failure.hint.as_deref(), Some("make room"));
        assert!(verdict(&exec(None)).unwrap().is_err(), "a daemon that does not know of it");
    }
}
