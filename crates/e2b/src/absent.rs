//! Parts of E2B's API that Burrow does not support: an error explains this to clients with a key.

use std::sync::Arc;

use super::body::E2bExtractor;
use super::error::Refusal;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::routes::{Routes, any};

pub(super) fn routes() -> Routes<Arc<App>> {
    Routes::new()
        .route("/secrets", any(secrets))
        .route("/secrets/{*rest}", any(secrets))
        .route("/teams", any(teams))
        .route("/teams/{*rest}", any(teams))
}

async fn secrets(_: E2bExtractor<Reader>) -> Refusal {
    Refusal::absent(
        "secrets are managed with Burrow's own API (`burrow secret set`, `/v1/secrets`), which limits where each may be sent",
    )
}

async fn teams(_: E2bExtractor<Reader>) -> Refusal {
    Refusal::absent("Burrow has no teams; manage keys and their scopes with `burrow key`")
}

pub(super) async fn builds(_: E2bExtractor<Reader>) -> Refusal {
    Refusal::absent(
        "this call is not supported by Burrow's version of the builds API; `burrow image build`, `pull` and `commit` create \
         images, which can be used as templates by their names",
    )
}
