//! What E2B has and Burrow does not: refused in words, to whoever has a key.

use std::sync::Arc;

use super::body::By;
use super::error::Refusal;
use crate::rest::App;
use crate::rest::auth::Reader;
use crate::rest::routes::{Routes, any};

pub(super) fn routes() -> Routes<Arc<App>> {
    Routes::new()
        .route("/secrets", any(secrets))
        .route("/secrets/{*rest}", any(secrets))
        .route("/teams", any(teams))
        .route("/teams/{*rest}", any(teams))
}

async fn secrets(_: By<Reader>) -> Refusal {
    Refusal::absent(
        "secrets are managed through Burrow's own API (`burrow secret set`, `/v1/secrets`), which says where each may be sent",
    )
}

async fn teams(_: By<Reader>) -> Refusal {
    Refusal::absent("Burrow has no teams; `burrow key` manages keys, each with its scope")
}

pub(super) async fn builds(_: By<Reader>) -> Refusal {
    Refusal::absent(
        "this call of E2B's is older or newer than what Burrow has of builds; `burrow image build`, `pull` and `commit` make \
         images, which are templates by their names",
    )
}
