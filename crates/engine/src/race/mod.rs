//! Races: several forks try the same, one of them wins, its work comes home, the others go.
//!
//! ```text
//!   Forking ─► Running ─► Choosing ─► Merging ─► Cleaning ─► Done
//!                │ each attempt: its command ─► its end ─► the judge's score
//!                └─ as many at once as asked for
//! ```
//!
//! A race is a row that is written before each step is taken, so a start of the daemon goes on where the last one ended: an
//! attempt's exec is named before it is started, and one that ended meanwhile is read from its guest. What is repeated is
//! harmless: a judge is asked again, a merge that was done finds nothing to do, a sandbox that is gone is gone.

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

/// Races of this host that go on at once: each holds its attempts' RAM.
const RACES_MAX: usize = 32;

/// The label that says which race a sandbox is an attempt of.
pub const RACE_LABEL: &str = "burrow.race";

/// What is to be raced. Stored, so fields only get added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceSpec {
    pub attempts: usize,
    /// At once, at most.
    pub parallel: usize,
    pub run: Vec<String>,
    /// Says on its last line of output how good an attempt is. Without one, whoever exits 0 is good.
    pub judge: Option<Vec<String>>,
    pub timeout_ms: Option<u64>,
    /// The attempts boot from the parent's files.
    pub files_only: bool,
    /// The attempts stay when all is over.
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

/// A race as it stands. Stored as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Race {
    pub id: RaceId,
    pub parent: SandboxId,
    pub spec: RaceSpec,
    pub stage: RaceStage,
    pub attempts: Vec<Attempt>,
    /// The moment all attempts started from.
    pub base: Option<SnapshotId>,
    /// Number of the attempt that won.
    pub winner: Option<usize>,
    pub merged: Option<RaceMerged>,
    /// Why it ended early.
    pub failure: Option<String>,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// Grows with every change, for those who wait for one.
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

/// What became of merging the winner.
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
    fn is_home(&self) -> bool {
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

    /// The best of those that count: by score, then by time, then by number.
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

/// The races that go on.
#[derive(Debug, Default)]
pub(crate) struct Races {
    running: Mutex<HashMap<RaceId, Running>>,
}

#[derive(Clone, Debug)]
struct Running {
    race: watch::Receiver<Race>,
    cancel: CancellationToken,
}

impl Races {
    fn lock(&self) -> MutexGuard<'_, HashMap<RaceId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &RaceId) -> Option<Running> {
        self.lock().get(id).cloned()
    }

    /// For the daemon's end: nobody goes on; the rows say where to.
    pub(crate) fn cancel_all(&self) {
        self.lock().values().for_each(|running| running.cancel.cancel());
    }
}

impl Engine {
    /// Begins a race. It goes on by itself.
    pub async fn start_race(
        &self,
        tenant: &TenantId,
        parent: &SandboxId,
        spec: RaceSpec,
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
        self.take_up(tenant, race.clone());
        Ok(race)
    }

    /// Goes on with the races that a daemon before this one did not finish.
    pub async fn resume_races(&self) -> Result<(), EngineError> {
        for row in self.shared.seams.catalog.open_races().await? {
            match serde_json::from_value::<Race>(row.race) {
                Ok(race) => self.take_up(&row.tenant, race),
                Err(error) => {
                    tracing::warn!(race = %row.id, %error, "a race is not understood, and left as it is")
                }
            }
        }
        Ok(())
    }

    fn take_up(&self, tenant: &TenantId, race: Race) {
        let (id, cancel) = (race.id.clone(), CancellationToken::new());
        let (told, watched) = watch::channel(race);
        let running = Running { race: watched, cancel: cancel.clone() };
        self.shared.races.lock().insert(id.clone(), running);
        drive::spawn(self.clone(), tenant.clone(), told, cancel);
    }

    pub async fn race(&self, tenant: &TenantId, id: &RaceId) -> Result<Race, EngineError> {
        let unknown = || EngineError::RaceNotFound { id: id.clone() };
        let row = self.shared.seams.catalog.race(tenant, id).await?.ok_or_else(unknown)?;
        // What goes on is known better by whoever is at it.
        if let Some(running) = self.shared.races.get(id) {
            return Ok(running.race.borrow().clone());
        }
        serde_json::from_value(row.race).map_err(|_| unknown())
    }

    /// A race once it has changed since `version`, or as it is after `bound`.
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
        // Whoever tells may be done meanwhile; then the row says all.
        let _ = tokio::time::timeout(bound, changed).await.map(|found| found.map(|race| race.version));
        self.race(tenant, id).await
    }

    /// A tenant's races, newest first.
    pub async fn races(&self, tenant: &TenantId) -> Result<Vec<Race>, EngineError> {
        let rows = self.shared.seams.catalog.races(tenant).await?;
        Ok(rows.into_iter().filter_map(|row| serde_json::from_value(row.race).ok()).collect())
    }

    /// Merges the winner of a race that is over and whose winner is there still. The winner's sandbox goes, unless it is kept.
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
        let told = RaceMerged::of(&merged);
        if dry_run || !told.is_home() {
            return Ok(merged);
        }
        if !race.spec.keep {
            self.delete(tenant, &winner.sandbox).await?;
            for attempt in race.attempts.iter_mut().filter(|attempt| attempt.number == winner.number) {
                attempt.gone = true;
            }
        }
        race.merged = Some(told);
        race.version += 1;
        let stored = serde_json::to_value(&race).expect("a race is JSON");
        self.shared.seams.catalog.update_race(id, true, stored).await?;
        Ok(merged)
    }

    /// Ends a race if it goes on, deletes its attempts and forgets it.
    pub async fn delete_race(&self, tenant: &TenantId, id: &RaceId) -> Result<(), EngineError> {
        let race = self.race(tenant, id).await?;
        if let Some(mut running) = self.shared.races.get(id) {
            // What is being forked is waited for, so that no child comes to life behind our back.
            let forked = running.race.wait_for(|race| race.stage != RaceStage::Forking);
            let _ = forked.await.map(|race| race.version);
            running.cancel.cancel();
            // It ends when whoever is at it has let go.
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
    fn policies_survive_being_written_down() {
        let policies =
            Policies { rules: vec![("*.md".parse().unwrap(), Policy::Union)], otherwise: Policy::Theirs };
        let options = MergeOptions { dry_run: false, policies, all: false, memory: MemoryPolicy::Both };
        let again = RaceMergeSpec::of(&options).options();
        assert_eq!(again.policies.rules, options.policies.rules);
        assert_eq!((again.policies.otherwise, again.memory), (Policy::Theirs, MemoryPolicy::Both));
    }
}
