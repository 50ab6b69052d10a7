//! Races: several forks of a sandbox try the same task, one of them wins, its work is merged, the others are deleted.
//!
//! ```text
//!   Forking ─► Running ─► Choosing ─► Merging ─► Cleaning ─► Done
//!                │ for each attempt: its command ─► its end ─► the judge's score
//!                └─ at most `parallel` at once
//! ```
//!
//! A race is a row that is stored before each step, so the next start of the daemon continues where the last one ended: an
//! attempt's exec has an id before it is started, and the result of one that ended in the meantime is read from its guest. Repeating
//! a step is harmless: a judge is run again, a completed merge finds nothing to do, a deleted sandbox stays deleted.

mod attempt;
mod drive;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_catalog::RaceRow;
use burrow_model::{ExecId, RaceId, SandboxId, SnapshotId, TenantId};
use burrow_trees::plan::{Policies, Policy};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{DiffCounts, Engine, EngineError, MemoryPolicy, MergeOptions, Merged};

/// Attempts of one race.
pub const ATTEMPTS_MAX: usize = 32;

/// Races on this host that run at once: each needs the RAM of its attempts.
const RACES_MAX: usize = 32;

/// The label that says which race a sandbox is an attempt of.
pub const RACE_LABEL: &str = "burrow.race";

/// What to race. Stored as JSON, so fields are only ever added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceSpec {
    pub attempts: usize,
    /// Maximum number of attempts that run at once.
    pub parallel: usize,
    pub run: Vec<String>,
    /// Prints the score of an attempt on its last line. Without a judge, an attempt succeeds if its command exits with 0.
    pub judge: Option<Vec<String>>,
    pub timeout_ms: Option<u64>,
    /// The attempts boot from the parent's files.
    pub files_only: bool,
    /// Keep the attempts after the race.
    pub keep: bool,
    pub merge_winner: bool,
    pub merge: RaceMergeSpec,
}

/// How the winner is merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceMergeSpec {
    /// Pattern and policy.
    pub policies: Vec<(String, String)>,
    pub policy: String,
    pub memory: MemoryPolicy,
}

impl RaceMergeSpec {
    pub fn of(options: &MergeOptions) -> Self {
        let rules = options.policies.rules.iter();
        Self {
            policies: rules.map(|(glob, policy)| (glob.to_string(), policy.as_str().to_owned())).collect(),
            policy: options.policies.otherwise.as_str().to_owned(),
            memory: options.memory,
        }
    }

    fn options(&self) -> MergeOptions {
        let named =
            |name: &str| Policy::ALL.into_iter().find(|policy| policy.as_str() == name).unwrap_or_default();
        let rule = |(glob, policy): &(String, String)| Some((glob.parse().ok()?, named(policy)));
        let policies = Policies {
            rules: self.policies.iter().filter_map(rule).collect(),
            otherwise: named(&self.policy),
        };
        MergeOptions { dry_run: false, policies, all: false, memory: self.memory }
    }
}

/// The state of a race. Stored as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Race {
    pub id: RaceId,
    pub parent: SandboxId,
    /// Who started it, as the audit log names them.
    #[serde(default)]
    pub actor: Option<String>,
    pub spec: RaceSpec,
    pub stage: RaceStage,
    pub attempts: Vec<Attempt>,
    /// The snapshot that all attempts were created from.
    pub base: Option<SnapshotId>,
    /// Number of the attempt that won.
    pub winner: Option<usize>,
    pub merged: Option<RaceMerged>,
    /// Why it ended early.
    pub failure: Option<String>,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// Incremented with every change, for clients that wait for one.
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaceStage {
    Forking,
    Running,
    Choosing,
    Merging,
    Cleaning,
    Done,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: usize,
    pub sandbox: SandboxId,
    pub state: AttemptState,
    pub exec: Option<ExecId>,
    pub exit_code: Option<i32>,
    pub score: Option<f64>,
    pub started_ms: Option<u64>,
    /// How long its command took.
    pub took_ms: Option<u64>,
    /// Why it does not count.
    pub why: Option<String>,
    /// What it changed.
    pub changes: Option<AttemptChanges>,
    /// Its sandbox is deleted.
    pub gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    Waiting,
    Running,
    Judging,
    Ended,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptChanges {
    pub added: u64,
    pub changed: u64,
    pub deleted: u64,
}

impl From<DiffCounts> for AttemptChanges {
    fn from(counts: DiffCounts) -> Self {
        Self { added: counts.added, changed: counts.changed, deleted: counts.deleted }
    }
}

/// The result of merging the winner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceMerged {
    pub applied: bool,
    pub total: u64,
    pub conflicts: Vec<String>,
    pub undo: Option<SnapshotId>,
}

impl RaceMerged {
    fn of(merged: &Merged) -> Self {
        let conflicts = merged.conflicts.iter().take(100);
        Self {
            applied: merged.applied,
            total: merged.changes.total,
            conflicts: conflicts.map(|found| String::from_utf8_lossy(&found.path).into_owned()).collect(),
            undo: merged.undo.as_ref().map(|undo| undo.id.clone()),
        }
    }

    /// Whether the winner's work is in the parent.
    fn is_merged(&self) -> bool {
        self.applied || self.conflicts.is_empty()
    }
}

impl Race {
    pub fn is_done(&self) -> bool {
        self.stage == RaceStage::Done
    }

    pub fn winner(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| Some(attempt.number) == self.winner)
    }

    /// The best attempt that counts: by score, then by time, then by number.
    fn best(&self) -> Option<usize> {
        let counts = |attempt: &&Attempt| match &self.spec.judge {
            Some(_) => attempt.score.is_some(),
            None => attempt.exit_code == Some(0),
        };
        let better = |one: &&Attempt, other: &&Attempt| {
            let score = |attempt: &Attempt| attempt.score.unwrap_or(0.0);
            let time = |attempt: &Attempt| attempt.took_ms.unwrap_or(u64::MAX);
            score(one)
                .total_cmp(&score(other))
                .then(time(other).cmp(&time(one)))
                .then(other.number.cmp(&one.number))
        };
        self.attempts.iter().filter(counts).max_by(better).map(|attempt| attempt.number)
    }
}

/// The running races.
#[derive(Debug, Default)]
pub(crate) struct Races {
    running: Mutex<HashMap<RaceId, RunningRace>>,
}

#[derive(Clone, Debug)]
struct RunningRace {
    race: watch::Receiver<Race>,
    cancel: CancellationToken,
}

impl Races {
    fn lock(&self) -> MutexGuard<'_, HashMap<RaceId, RunningRace>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &RaceId) -> Option<RunningRace> {
        self.lock().get(id).cloned()
    }

    /// For the end of the daemon: cancels all races; the rows say where to continue.
    pub(crate) fn cancel_all(&self) {
        self.lock().values().for_each(|running| running.cancel.cancel());
    }
}

impl Engine {
    /// Starts a race, which runs in the background.
    pub async fn start_race(
        &self,
        tenant: &TenantId,
        parent: &SandboxId,
        spec: RaceSpec,
        actor: Option<String>,
    ) -> Result<Race, EngineError> {
        let parent = self.get(tenant, parent).await?;
        if spec.attempts == 0 || spec.attempts > ATTEMPTS_MAX {
            return Err(EngineError::RaceSize { given: spec.attempts, max: ATTEMPTS_MAX });
        }
        if self.shared.races.lock().len() >= RACES_MAX {
            return Err(EngineError::RacesMax { max: RACES_MAX });
        }
        let race = Race {
            id: RaceId::generate(),
            parent: parent.id.clone(),
            actor,
            spec,
            stage: RaceStage::Forking,
            attempts: Vec::new(),
            base: None,
            winner: None,
            merged: None,
            failure: None,
            created_ms: self.now_ms(),
            ended_ms: None,
            version: 1,
        };
        let row = RaceRow {
            id: race.id.clone(),
            tenant: tenant.clone(),
            sandbox: parent.id,
            done: false,
            created_ms: race.created_ms,
            race: serde_json::to_value(&race).expect("a race is JSON"),
        };
        self.shared.seams.catalog.insert_race(row).await?;
        let detail = serde_json::json!({ "race": race.id, "attempts": race.spec.attempts });
        self.shared.event(tenant, "race.started", Some(&race.parent), detail);
        self.spawn_race(tenant, race.clone());
        Ok(race)
    }

    /// Continues the races that an earlier daemon did not finish.
    pub async fn resume_races(&self) -> Result<(), EngineError> {
        for row in self.shared.seams.catalog.open_races().await? {
            match serde_json::from_value::<Race>(row.race) {
                Ok(race) => self.spawn_race(&row.tenant, race),
                Err(error) => {
                    tracing::warn!(race = %row.id, %error, "the record of a race cannot be read, and is left unchanged")
                }
            }
        }
        Ok(())
    }

    fn spawn_race(&self, tenant: &TenantId, race: Race) {
        let (id, cancel) = (race.id.clone(), CancellationToken::new());
        let (published, watched) = watch::channel(race);
        let running = RunningRace { race: watched, cancel: cancel.clone() };
        self.shared.races.lock().insert(id.clone(), running);
        drive::spawn(self.clone(), tenant.clone(), published, cancel);
    }

    pub async fn race(&self, tenant: &TenantId, id: &RaceId) -> Result<Race, EngineError> {
        let unknown = || EngineError::RaceNotFound { id: id.clone() };
        let row = self.shared.seams.catalog.race(tenant, id).await?.ok_or_else(unknown)?;
        // The task of a running race has its newest state.
        if let Some(running) = self.shared.races.get(id) {
            return Ok(running.race.borrow().clone());
        }
        serde_json::from_value(row.race).map_err(|_| unknown())
    }

    /// A race once it has changed since `version`, or its state after `bound`.
    pub async fn race_after(
        &self,
        tenant: &TenantId,
        id: &RaceId,
        version: u64,
        bound: Duration,
    ) -> Result<Race, EngineError> {
        let race = self.race(tenant, id).await?;
        let Some(mut running) = self.shared.races.get(id).filter(|_| race.version <= version) else {
            return Ok(race);
        };
        let changed = running.race.wait_for(|race| race.version > version);
        // The task may end in the meantime; then the row has the final state.
        let _ = tokio::time::timeout(bound, changed).await.map(|found| found.map(|race| race.version));
        self.race(tenant, id).await
    }

    /// A tenant's races, newest first.
    pub async fn races(&self, tenant: &TenantId) -> Result<Vec<Race>, EngineError> {
        let rows = self.shared.seams.catalog.races(tenant).await?;
        Ok(rows.into_iter().filter_map(|row| serde_json::from_value(row.race).ok()).collect())
    }

    /// Merges the winner of a completed race, if its sandbox still exists. The sandbox is then deleted, unless it is kept.
    pub async fn merge_race(
        &self,
        tenant: &TenantId,
        id: &RaceId,
        options: MergeOptions,
    ) -> Result<Merged, EngineError> {
        let mut race = self.race(tenant, id).await?;
        let no_winner = || EngineError::NoWinner { id: id.clone() };
        if !race.is_done() {
            return Err(EngineError::RaceGoesOn { id: id.clone() });
        }
        let winner = race.winner().filter(|winner| !winner.gone).ok_or_else(no_winner)?.clone();
        let dry_run = options.dry_run;
        let merged = self.merge(tenant, &race.parent, &winner.sandbox, options).await?;
        let result = RaceMerged::of(&merged);
        if dry_run || !result.is_merged() {
            return Ok(merged);
        }
        if !race.spec.keep {
            self.delete(tenant, &winner.sandbox).await?;
            for attempt in race.attempts.iter_mut().filter(|attempt| attempt.number == winner.number) {
                attempt.gone = true;
            }
        }
        race.merged = Some(result);
        race.version += 1;
        let stored = serde_json::to_value(&race).expect("a race is JSON");
        self.shared.seams.catalog.update_race(id, true, stored).await?;
        Ok(merged)
    }

    /// Cancels a race if it runs, deletes its attempts and its record.
    pub async fn delete_race(&self, tenant: &TenantId, id: &RaceId) -> Result<(), EngineError> {
        let race = self.race(tenant, id).await?;
        if let Some(mut running) = self.shared.races.get(id) {
            // Waits for forks in progress, so that no child is created after the deletion.
            let forked = running.race.wait_for(|race| race.stage != RaceStage::Forking);
            let _ = forked.await.map(|race| race.version);
            running.cancel.cancel();
            // The sender is dropped when the race's task has ended.
            while running.race.changed().await.is_ok() {}
        }
        let race = self.race(tenant, id).await.unwrap_or(race);
        drive::clean(self, tenant, &race, &|_| true).await?;
        Ok(self.shared.seams.catalog.delete_race(id).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(judged: bool, attempts: &[(Option<i32>, Option<f64>, u64)]) -> Race {
        let attempt =
            |(index, (exit_code, score, took_ms)): (usize, &(Option<i32>, Option<f64>, u64))| Attempt {
                number: index + 1,
                sandbox: SandboxId::generate(),
                state: AttemptState::Ended,
                exec: None,
                exit_code: *exit_code,
                score: *score,
                started_ms: None,
                took_ms: Some(*took_ms),
                why: None,
                changes: None,
                gone: false,
            };
        Race {
            id: RaceId::generate(),
            parent: SandboxId::generate(),
            actor: None,
            spec: RaceSpec {
                attempts: attempts.len(),
                parallel: 1,
                run: vec!["true".to_owned()],
                judge: judged.then(|| vec!["true".to_owned()]),
                timeout_ms: None,
                files_only: false,
                keep: false,
                merge_winner: false,
                merge: RaceMergeSpec {
                    policies: Vec::new(),
                    policy: "fail".to_owned(),
                    memory: MemoryPolicy::List,
                },
            },
            stage: RaceStage::Choosing,
            attempts: attempts.iter().enumerate().map(attempt).collect(),
            base: None,
            winner: None,
            merged: None,
            failure: None,
            created_ms: 0,
            ended_ms: None,
            version: 1,
        }
    }

    #[test]
    fn the_best_is_chosen_by_score_or_exit_code_then_by_time() {
        for (judged, attempts, best) in [
            (false, &[(Some(1), None, 1), (Some(0), None, 9), (Some(0), None, 5)][..], Some(3)),
            (false, &[(Some(1), None, 1), (None, None, 1)], None),
            (true, &[(Some(0), Some(0.5), 1), (Some(1), Some(0.9), 9), (Some(0), None, 1)], Some(2)),
            (true, &[(Some(0), Some(1.0), 7), (Some(0), Some(1.0), 7)], Some(1)),
            (true, &[(Some(0), None, 7)], None),
        ] {
            assert_eq!(race(judged, attempts).best(), best);
        }
    }

    #[test]
    fn merge_policies_survive_serialization() {
        let policies =
            Policies { rules: vec![("*.md".parse().unwrap(), Policy::Union)], otherwise: Policy::Theirs };
        let options = MergeOptions { dry_run: false, policies, all: false, memory: MemoryPolicy::Both };
        let again = RaceMergeSpec::of(&options).options();
        assert_eq!(again.policies.rules, options.policies.rules);
        assert_eq!((again.policies.otherwise, again.memory), (Policy::Theirs, MemoryPolicy::Both));
    }
}
