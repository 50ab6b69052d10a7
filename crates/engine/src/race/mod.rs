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
mod record;
pub(crate) mod running;

use std::time::Duration;

use burrow_catalog::RaceRow;
use burrow_model::{RaceId, SandboxId, TenantId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Engine, EngineError, Maximum, MergeOptions, MergeReport, ObjectKind};
use running::RunningRace;

pub use record::{
    Attempt, AttemptChanges, AttemptState, Race, RaceMergeSpec, RaceMerged, RaceSpec, RaceStage,
};

/// Attempts of one race.
pub const ATTEMPTS_MAX: usize = 32;

/// Races on this host that run at once: each needs the RAM of its attempts.
const RACES_MAX: usize = 32;

/// The label that says which race a sandbox is an attempt of.
pub const RACE_LABEL: &str = "burrow.race";

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
            return Err(EngineError::Maximum(Maximum::Races { max: RACES_MAX }));
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
        let unknown = || EngineError::NotFound { kind: ObjectKind::Race, what: id.to_string() };
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
    ) -> Result<MergeReport, EngineError> {
        let mut race = self.race(tenant, id).await?;
        let no_winner = || EngineError::NoWinner { id: id.clone() };
        if !race.is_done() {
            return Err(EngineError::RaceRunning { id: id.clone() });
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
