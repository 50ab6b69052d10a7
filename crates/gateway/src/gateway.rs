//! The state that requests into sandboxes share: their limits, the connections that are kept, the signer of links.

use burrow_http::app::{App, Part};
use burrow_http::error::ApiError;
use burrow_http::signer::Signer;
use burrow_model::SandboxId;
use tokio::sync::OnceCell;

use crate::slots::{Slot, Slots};
use crate::upstream::Upstreams;
use crate::uses::RecordedUses;

/// The state that is shared by requests into sandboxes.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) slots: Slots,
    pub(crate) upstreams: Upstreams,
    signer: OnceCell<Signer>,
    pub(crate) uses: RecordedUses,
}

impl Part for Gateway {
    fn new(app: &App) -> Self {
        let config = &app.config.gateway;
        Self {
            slots: Slots::new(config.requests, config.requests_per_sandbox),
            upstreams: Upstreams::new(app.engine.clone()),
            signer: OnceCell::new(),
            uses: RecordedUses::default(),
        }
    }
}

impl Gateway {
    /// Reserves a slot for a connection into a sandbox that is not HTTP.
    pub fn slot(&self, sandbox: &SandboxId) -> Result<Slot, ApiError> {
        self.slots.take(sandbox)
    }

    /// Signs and verifies links.
    pub async fn signer(&self, app: &App) -> Result<&Signer, ApiError> {
        self.signer
            .get_or_try_init(|| async { Ok(Signer::new(&app.engine.catalog().port_link_secret().await?)) })
            .await
    }
}
