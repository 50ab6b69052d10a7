//! The start of the engine.

use crate::egress::secrets;
use crate::shared::Shared;
use crate::sleep::idle;
use crate::snapshots::restored_kinds;
use crate::{Engine, EngineError, Policy, Seams, egress, execs, recovery, upkeep, warm_pool};

impl Engine {
    /// Completes or undoes the operations that an earlier daemon left open, adopts running machines, and starts to serve.
    pub async fn start(seams: Seams, policy: Policy) -> Result<Self, EngineError> {
        let shared = Shared::new(seams, policy);
        shared.egress.start(&shared.seams).await;
        secrets::reseal(&shared).await?;
        restored_kinds::recall(&shared).await;
        recovery::recover(&shared).await?;
        warm_pool::start(&shared).await;
        upkeep::spawn(&shared);
        egress::spawn(&shared);
        let engine = Self { shared };
        engine.clear_builds().await?;
        idle::spawn(&engine);
        execs::resume(&engine).await;
        Ok(engine)
    }
}
