//! Takes a race through its stages, each stored before it begins.

use async_trait::async_trait;
use burrow_catalog::{PageRequest, SandboxFilter};
use burrow_model::{Name, TenantId};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::attempt::{Runner, Store};
use super::{Attempt, AttemptState, RACE_LABEL, Race, RaceMerged, RaceStage};
use crate::{Engine, EngineError, ForkOptions, ObjectKind};

/// A running race, and the clients that watch it.
struct RaceDriver {
    engine: Engine,
    tenant: TenantId,
    published: watch::Sender<Race>,
    /// Held while a change is stored, so that changes are stored one at a time.
    writing: Mutex<()>,
}

pub(super) fn spawn(
    engine: Engine,
    tenant: TenantId,
    published: watch::Sender<Race>,
    cancel: CancellationToken,
) {
    let id = published.borrow().id.clone();
    let span = tracing::info_span!("race", %id);
    let alive = engine.shared.actor_guard();
    let shared = engine.shared.clone();
    let driver = RaceDriver { engine, tenant, published, writing: Mutex::new(()) };
    let work = async move {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = driver.drive() => {}
        }
        shared.races.lock().remove(&id);
        drop((driver, alive));
    };
    // The shutdown cancels it and waits for it, since it holds a guard.
    drop(tokio::spawn(work.instrument(span)));
}

impl RaceDriver {
    fn race(&self) -> Race {
        self.published.borrow().clone()
    }

    async fn drive(&self) {
        // The race of an earlier daemon starts when its sandboxes were recovered.
        self.engine.shared.recovering.wait_for_all().await;
        while !self.race().is_done() {
            let stage = self.race().stage;
            let stepped = match stage {
                RaceStage::Forking => self.fork().await,
                RaceStage::Running => self.run_all().await,
                RaceStage::Choosing => self.choose().await,
                RaceStage::Merging => self.merge().await,
                RaceStage::Cleaning => self.clean().await,
                RaceStage::Done => Ok(()),
            };
            match stepped {
                Ok(()) => {}
                // The next start continues here.
                Err(EngineError::ShuttingDown | EngineError::Catalog(_)) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a race ended early");
                    let next =
                        if stage == RaceStage::Cleaning { RaceStage::Done } else { RaceStage::Cleaning };
                    let failed = self.change(|race| {
                        race.failure = Some(error.to_string());
                        race.stage = next;
                    });
                    if failed.await.is_err() {
                        return;
                    }
                }
            }
        }
        let race = self.race();
        let detail = serde_json::json!({ "race": race.id, "winner": race.winner, "failure": race.failure });
        self.engine.shared.event(&self.tenant, "race.ended", Some(&race.parent), detail);
    }

    /// Stores a change, then publishes it.
    async fn change(&self, change: impl FnOnce(&mut Race)) -> Result<(), EngineError> {
        let _lock = self.writing.lock().await;
        let mut race = self.race();
        change(&mut race);
        race.version += 1;
        if race.is_done() {
            race.ended_ms = Some(self.engine.now_ms());
        }
        let stored = serde_json::to_value(&race).expect("a race is JSON");
        self.engine.shared.seams.catalog.update_race(&race.id, race.is_done(), stored).await?;
        self.published.send_replace(race);
        Ok(())
    }

    async fn fork(&self) -> Result<(), EngineError> {
        let race = self.race();
        // After an interrupted fork it is unknown which children are complete: all are deleted, and the fork is repeated.
        for row in labelled(&self.engine, &self.tenant, &race).await? {
            ignore_missing(self.engine.delete(&self.tenant, &row).await)?;
        }
        let short = &race.id.as_str()[3..9];
        let name = |number: usize| -> Option<Name> { format!("race-{short}-{number}").parse().ok() };
        let mut labels = self.engine.get(&self.tenant, &race.parent).await?.spec.labels;
        labels.insert(RACE_LABEL.to_owned(), race.id.to_string());
        let options = ForkOptions {
            count: race.spec.attempts,
            names: (1..=race.spec.attempts).filter_map(name).collect(),
            files_only: race.spec.files_only,
            labels: Some(labels),
            lifetime: None,
        };
        let forked = self.engine.fork(&self.tenant, &race.parent, options).await?;
        let mut attempts = Vec::new();
        for (index, child) in forked.children.into_iter().enumerate() {
            attempts.push(Attempt {
                number: index + 1,
                sandbox: child?.id,
                state: AttemptState::Waiting,
                exec: None,
                exit_code: None,
                score: None,
                started_ms: None,
                took_ms: None,
                why: None,
                changes: None,
                gone: false,
            });
        }
        let base = forked.base;
        self.change(|race| {
            race.attempts = attempts;
            race.base = Some(base);
            race.stage = RaceStage::Running;
        })
        .await
    }

    async fn run_all(&self) -> Result<(), EngineError> {
        let race = self.race();
        let base = match &race.base {
            Some(base) => self.engine.shared.seams.catalog.snapshot(&self.tenant, base).await?,
            None => None,
        };
        let runner = Runner { engine: &self.engine, tenant: &self.tenant, race: &race, base: base.as_ref() };
        // Owned values, so that the futures borrow nothing but the race itself.
        let runs: Vec<_> =
            race.attempts.clone().into_iter().map(|attempt| runner.run(attempt, self)).collect();
        let ended: Vec<_> = stream::iter(runs).buffer_unordered(race.spec.parallel.max(1)).collect().await;
        ended.into_iter().collect::<Result<Vec<()>, _>>()?;
        self.change(|race| race.stage = RaceStage::Choosing).await
    }

    async fn choose(&self) -> Result<(), EngineError> {
        self.change(|race| {
            race.winner = race.best();
            let merges = race.spec.merge_winner && race.winner.is_some();
            race.stage = if merges { RaceStage::Merging } else { RaceStage::Cleaning };
        })
        .await
    }

    async fn merge(&self) -> Result<(), EngineError> {
        let race = self.race();
        if let Some(winner) = race.winner() {
            let options = race.spec.merge.options();
            let merged = self.engine.merge(&self.tenant, &race.parent, &winner.sandbox, options).await?;
            let merged = RaceMerged::of(&merged);
            self.change(|race| race.merged = Some(merged)).await?;
        }
        self.change(|race| race.stage = RaceStage::Cleaning).await
    }

    async fn clean(&self) -> Result<(), EngineError> {
        let race = self.race();
        if !race.spec.keep {
            // The winner stays until its work is merged.
            let home = race.merged.as_ref().is_some_and(RaceMerged::is_merged);
            let goes = |attempt: &Attempt| race.winner != Some(attempt.number) || home;
            clean(&self.engine, &self.tenant, &race, &goes).await?;
            let numbers: Vec<usize> =
                race.attempts.iter().filter(|attempt| goes(attempt)).map(|attempt| attempt.number).collect();
            self.change(|race| {
                for attempt in race.attempts.iter_mut().filter(|attempt| numbers.contains(&attempt.number)) {
                    attempt.gone = true;
                }
            })
            .await?;
        }
        self.change(|race| race.stage = RaceStage::Done).await
    }
}

#[async_trait]
impl Store for RaceDriver {
    async fn store(&self, attempt: &Attempt) -> Result<(), EngineError> {
        let attempt = attempt.clone();
        self.change(|race| {
            if let Some(place) = race.attempts.iter_mut().find(|known| known.number == attempt.number) {
                *place = attempt;
            }
        })
        .await
    }
}

/// Deletes the sandboxes of attempts.
pub(super) async fn clean(
    engine: &Engine,
    tenant: &TenantId,
    race: &Race,
    goes: &(dyn Fn(&Attempt) -> bool + Send + Sync),
) -> Result<(), EngineError> {
    for attempt in race.attempts.iter().filter(|attempt| goes(attempt) && !attempt.gone) {
        ignore_missing(engine.delete(tenant, &attempt.sandbox).await)?;
    }
    // Also those that an interrupted fork left.
    if race.attempts.is_empty() {
        for id in labelled(engine, tenant, race).await? {
            ignore_missing(engine.delete(tenant, &id).await)?;
        }
    }
    Ok(())
}

/// A sandbox that is deleted already is no error.
fn ignore_missing<T>(deleted: Result<T, EngineError>) -> Result<(), EngineError> {
    match deleted {
        Ok(_) | Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. } | EngineError::Gone { .. }) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn labelled(
    engine: &Engine,
    tenant: &TenantId,
    race: &Race,
) -> Result<Vec<burrow_model::SandboxId>, EngineError> {
    let label = format!("{RACE_LABEL}={}", race.id).parse();
    let Ok(label) = label else { return Ok(Vec::new()) };
    let filter = SandboxFilter { labels: vec![label], ..SandboxFilter::default() };
    let page = PageRequest { cursor: None, limit: burrow_catalog::PAGE_LIMIT_MAX };
    let found = engine.list(tenant, filter, page).await?;
    Ok(found.rows.into_iter().map(|row| row.id).collect())
}
