//! The races that run now.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_model::RaceId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::record::Race;

/// The running races.
#[derive(Debug, Default)]
pub(crate) struct Races {
    running: Mutex<HashMap<RaceId, RunningRace>>,
}

#[derive(Clone, Debug)]
pub(super) struct RunningRace {
    pub(super) race: watch::Receiver<Race>,
    pub(super) cancel: CancellationToken,
}

impl Races {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<RaceId, RunningRace>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &RaceId) -> Option<RunningRace> {
        self.lock().get(id).cloned()
    }

    /// For the end of the daemon: cancels all races; the rows say where to continue.
    pub(crate) fn cancel_all(&self) {
        self.lock().values().for_each(|running| running.cancel.cancel());
    }
}
