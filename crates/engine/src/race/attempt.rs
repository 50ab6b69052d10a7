//! One attempt: runs its command to the end, and then the judge.

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_guest::protocol::{ExecState, ReadMode, StdinMode};
use burrow_model::{ExecId, TenantId};

use super::{Attempt, AttemptChanges, AttemptState, Race};
use crate::trees::diff::DiffOptions;
use crate::trees::held_trees::TreeSource;
use crate::{
    DiffCounts, Engine, EngineError, ExecEvent, ExecKind, ExecOptions, ExecOrigin, ExecSession, ObjectKind,
    OutputStream, RollbackMode,
};

/// One wait for an exec's end; it is repeated.
const WAIT: Duration = Duration::from_secs(60);

/// A judge that takes longer gives no score.
const JUDGE_TIME_MAX: Duration = Duration::from_secs(600);

/// Bytes of a judge's output that are kept: its last line is a number.
const JUDGE_BYTES_MAX: usize = 64 << 10;

/// Output of an attempt's command that is kept for reading.
const RING_BYTES: u32 = 1 << 20;

pub(super) struct Runner<'a> {
    pub(super) engine: &'a Engine,
    pub(super) tenant: &'a TenantId,
    pub(super) race: &'a Race,
    pub(super) base: Option<&'a burrow_model::Snapshot>,
}

/// Stores the present state of an attempt; the next step begins after that.
#[async_trait::async_trait]
pub(super) trait Store: Send + Sync {
    async fn store(&self, attempt: &Attempt) -> Result<(), EngineError>;
}

impl Runner<'_> {
    /// Runs an attempt from its present state to its end. A failure of its own ends the attempt, not the race.
    pub(super) async fn run(&self, mut attempt: Attempt, store: &dyn Store) -> Result<(), EngineError> {
        if let Err(error) = self.try_run(&mut attempt, store).await {
            if matches!(error, EngineError::ShuttingDown | EngineError::Catalog(_)) {
                return Err(error);
            }
            attempt.state = AttemptState::Failed;
            attempt.why = Some(error.to_string());
            store.store(&attempt).await?;
        }
        Ok(())
    }

    async fn try_run(&self, attempt: &mut Attempt, store: &dyn Store) -> Result<(), EngineError> {
        if attempt.state == AttemptState::Waiting {
            // Named before it is started, so that after a crash the next daemon finds it, or knows that it was never started.
            attempt.exec = Some(ExecId::generate());
            attempt.state = AttemptState::Running;
            attempt.started_ms = Some(self.engine.now_ms());
            store.store(attempt).await?;
        }
        if attempt.state == AttemptState::Running {
            self.follow(attempt).await?;
            attempt.changes = self.changes(attempt).await;
            attempt.state = match self.race.spec.judge {
                Some(_) => AttemptState::Judging,
                None => AttemptState::Ended,
            };
            store.store(attempt).await?;
        }
        if attempt.state == AttemptState::Judging {
            match self.judge(attempt).await? {
                Ok(score) => attempt.score = Some(score),
                Err(why) => attempt.why = Some(why),
            }
            attempt.state = AttemptState::Ended;
            store.store(attempt).await?;
        }
        Ok(())
    }

    /// Starts its command unless it was started already, and waits for its end.
    async fn follow(&self, attempt: &mut Attempt) -> Result<(), EngineError> {
        let Some(exec) = attempt.exec.clone() else { return Ok(()) };
        // A sandbox that was stopped in the meantime is started for this; its exec is lost then, and reported as lost.
        let known = self.engine.exec_info(self.tenant, &attempt.sandbox, &exec).await;
        if let Err(EngineError::ExecNotFound { .. }) = known {
            let options = self.options(&self.race.spec.run, attempt, None);
            self.exec(attempt, ExecOptions { id: Some(exec.clone()), ..options }).await?;
        } else {
            known?;
        }
        loop {
            let record = self.engine.wait_exec(self.tenant, &attempt.sandbox, &exec, WAIT).await?;
            match record.info.map(|info| info.state) {
                Some(ExecState::Running) => {}
                Some(ExecState::Ended(outcome)) => {
                    attempt.exit_code = outcome.exit_code;
                    attempt.took_ms = Some(outcome.wall_us / 1000);
                    if outcome.timed_out {
                        attempt.why = Some("it timed out".to_owned());
                    }
                    return Ok(());
                }
                None => return Err(EngineError::NotFound { kind: ObjectKind::Exec, what: exec.to_string() }),
            }
        }
    }

    /// What it changed since the snapshot that all attempts were created from; `None` if that cannot be determined.
    async fn changes(&self, attempt: &Attempt) -> Option<super::AttemptChanges> {
        let row = self.engine.get(self.tenant, &attempt.sandbox).await.ok()?;
        let (old, new) =
            (TreeSource::Snapshot(Box::new(self.base?.clone())), TreeSource::Sandbox(Box::new(row)));
        let options = DiffOptions { globs: Vec::new(), all: false, content: false, entries_max: 0 };
        let diffed = self.engine.diff(self.tenant, &old, &new, options).await.ok()?;
        Some(diffed.counts.into())
    }

    /// The judge's score, or why there is none.
    async fn judge(&self, attempt: &Attempt) -> Result<Result<f64, String>, EngineError> {
        let Some(judge) = &self.race.spec.judge else { return Ok(Err("there is no judge".to_owned())) };
        let mut session = self.exec(attempt, self.options(judge, attempt, Some(ReadMode::Lossless))).await?;
        let mut output = Vec::new();
        let keep = |event: &ExecEvent| {
            if let ExecEvent::Output { stream: OutputStream::Stdout, bytes, .. } = event {
                output.extend_from_slice(bytes);
                let excess = output.len().saturating_sub(JUDGE_BYTES_MAX);
                output.drain(..excess);
            }
        };
        let outcome = session.read_to_end(keep).await?.record.outcome();
        Ok(match outcome {
            Some(outcome) if outcome.exit_code == Some(0) => score(&output),
            Some(outcome) if outcome.timed_out => Err("the judge timed out".to_owned()),
            Some(_) | None => Err("the judge failed".to_owned()),
        })
    }

    async fn exec(&self, attempt: &Attempt, options: ExecOptions) -> Result<ExecSession, EngineError> {
        let origin = ExecOrigin { actor: self.race.actor.clone(), kind: ExecKind::Internal };
        self.engine.exec(self.tenant, &attempt.sandbox, options, origin).await
    }

    fn options(&self, argv: &[String], attempt: &Attempt, attach: Option<ReadMode>) -> ExecOptions {
        let mut env = BTreeMap::new();
        env.insert("BURROW_RACE".to_owned(), self.race.id.to_string());
        env.insert("BURROW_ATTEMPT".to_owned(), attempt.number.to_string());
        if let Some(code) = attempt.exit_code {
            env.insert("BURROW_EXIT_CODE".to_owned(), code.to_string());
        }
        let judge_ms = u64::try_from(JUDGE_TIME_MAX.as_millis()).unwrap_or(u64::MAX);
        ExecOptions {
            id: None,
            argv: argv.to_vec(),
            env,
            workdir: None,
            user: None,
            stdin: StdinMode::Null,
            terminal: None,
            timeout_ms: if attach.is_some() { Some(judge_ms) } else { self.race.spec.timeout_ms },
            ring_bytes: RING_BYTES,
            attach,
            hold: attach.is_some(),
            then_stop: false,
            rollback: RollbackMode::Nothing,
        }
    }
}

/// The number on the last line that is not empty.
fn score(output: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(output);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    match last.parse::<f64>() {
        Ok(score) if score.is_finite() => Ok(score),
        _ => Err("the judge's last line is not a number".to_owned()),
    }
}

impl From<DiffCounts> for AttemptChanges {
    fn from(counts: DiffCounts) -> Self {
        Self { added: counts.added, changed: counts.changed, deleted: counts.deleted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_number_on_the_last_line() {
        assert_eq!(score(b"thinking\n 0.75 \n\n"), Ok(0.75));
        assert_eq!(score(b"-3"), Ok(-3.0));
        for none in [&b""[..], b"nan", b"inf", b"1\nnone"] {
            assert!(score(none).is_err());
        }
    }
}
