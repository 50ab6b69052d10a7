//! Tokens of one sandbox: for its envd, for its ports when they are private, and signatures made with the first. And of one
//! volume, for its files.
//!
//! A token is an HMAC of the sandbox's id by a secret of this daemon's, so nothing is stored, and a token can be
//! checked even after its sandbox was deleted. The sandbox's generation is part of the input: revoking its tokens increments it.
//! Signatures are E2B's: `v1_` and base64 of `sha256("path:operation:user:token[:expires]")`.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use burrow_catalog::Catalog;
use burrow_model::{ImageId, SandboxId, ShelfId};
use ring::digest;

use crate::gateway::Signer;
use crate::rest::App;
use crate::rest::error::ApiError;

const ENVD_PURPOSE: &str = "burrow e2b envd v1";
const TRAFFIC_PURPOSE: &str = "burrow e2b traffic v1";
const VOLUME_PURPOSE: &str = "burrow e2b volume v1";
const START_PURPOSE: &str = "burrow e2b start v1";

/// Tokens of volumes are not revoked.
const VOLUME_GENERATION: u64 = 0;

/// Nor are the marks of snapshots.
const START_GENERATION: u64 = 0;

/// Longer than any token and any signature.
const TEXT_BYTES_MAX: usize = 128;

/// Opens envd.
pub(crate) async fn envd_token(app: &App, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.gateway.signer(app).await?.token(ENVD_PURPOSE, sandbox, generation(app, sandbox)))
}

/// Opens ports.
pub(crate) async fn traffic_token(app: &App, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.gateway.signer(app).await?.token(TRAFFIC_PURPOSE, sandbox, generation(app, sandbox)))
}

/// Opens the files of a volume.
pub(super) async fn volume_token(app: &App, volume: &ShelfId) -> Result<String, ApiError> {
    Ok(app.gateway.signer(app).await?.token(VOLUME_PURPOSE, volume, VOLUME_GENERATION))
}

/// Marks the snapshot of a template's start command: only a build makes it, and only of this image and this sandbox.
pub(super) async fn start_mark(app: &App, image: &ImageId, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.gateway.signer(app).await?.token(START_PURPOSE, &format!("{image}/{sandbox}"), START_GENERATION))
}

/// Whether a token opens the files of this volume.
pub(super) async fn opens_volume(app: &App, volume: &ShelfId, token: &str) -> Result<bool, ApiError> {
    Ok(fits(app.gateway.signer(app).await?, VOLUME_PURPOSE, volume, VOLUME_GENERATION, token))
}

/// Whether a token opens this sandbox's envd.
pub(crate) async fn opens_envd(app: &App, sandbox: &SandboxId, token: &str) -> Result<bool, ApiError> {
    Ok(fits(app.gateway.signer(app).await?, ENVD_PURPOSE, sandbox, generation(app, sandbox), token))
}

/// Whether a token opens this sandbox's ports. Who may run programs inside may talk to them too.
pub(crate) async fn opens_ports(app: &App, sandbox: &SandboxId, token: &str) -> Result<bool, ApiError> {
    let (signer, now) = (app.gateway.signer(app).await?, generation(app, sandbox));
    Ok(fits(signer, TRAFFIC_PURPOSE, sandbox, now, token) || fits(signer, ENVD_PURPOSE, sandbox, now, token))
}

fn generation(app: &App, sandbox: &SandboxId) -> u64 {
    app.engine.catalog().token_generation(sandbox)
}

fn fits(signer: &Signer, purpose: &str, id: &impl Display, generation: u64, token: &str) -> bool {
    let expected = signer.token(purpose, id, generation);
    token.len() <= TEXT_BYTES_MAX && same(expected.as_bytes(), token.as_bytes())
}

/// The first of these sandboxes whose token a signed address was signed with. Takes as long as there are sandboxes: for a
/// thread of its own.
pub(super) fn signed_by(
    signer: &Signer,
    catalog: &Catalog,
    sandboxes: Vec<SandboxId>,
    signed: &Signed,
) -> Option<SandboxId> {
    let is_by = |id: &SandboxId| signed.is_by(&signer.token(ENVD_PURPOSE, id, catalog.token_generation(id)));
    sandboxes.into_iter().find(is_by)
}

/// What a signed address says.
#[derive(Clone, Debug)]
pub(super) struct Signed {
    pub(super) path: String,
    pub(super) operation: &'static str,
    pub(super) user: String,
    pub(super) expires: Option<String>,
    pub(super) signature: String,
}

impl Signed {
    /// Whether it was signed with this token; whether it still counts is the caller's to judge.
    pub(super) fn is_by(&self, token: &str) -> bool {
        if self.signature.len() > TEXT_BYTES_MAX {
            return false;
        }
        let Self { path, operation, user, .. } = self;
        let words = match &self.expires {
            None => format!("{path}:{operation}:{user}:{token}"),
            Some(expires) => format!("{path}:{operation}:{user}:{token}:{expires}"),
        };
        let hash = digest::digest(&digest::SHA256, words.as_bytes());
        let expected = format!("v1_{}", STANDARD_NO_PAD.encode(hash));
        same(expected.as_bytes(), self.signature.trim_end_matches('=').as_bytes())
    }
}

/// In a time that tells nothing but the lengths.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_own_sandbox_for_its_own_purpose() {
        let (signer, one, other) = (Signer::new(&[7; 32]), SandboxId::generate(), SandboxId::generate());
        let token = signer.token(ENVD_PURPOSE, &one, 0);
        assert!(fits(&signer, ENVD_PURPOSE, &one, 0, &token));
        assert!(!fits(&signer, ENVD_PURPOSE, &other, 0, &token), "another sandbox");
        assert!(!fits(&signer, TRAFFIC_PURPOSE, &one, 0, &token), "another purpose");
        assert!(!fits(&Signer::new(&[8; 32]), ENVD_PURPOSE, &one, 0, &token), "another daemon's");
        assert!(!fits(&signer, ENVD_PURPOSE, &one, 1, &token), "revoked");
        let next = signer.token(ENVD_PURPOSE, &one, 1);
        assert!(fits(&signer, ENVD_PURPOSE, &one, 1, &next) && !fits(&signer, ENVD_PURPOSE, &one, 2, &next));
        for bad in ["", "x", &token[1..], &format!("{token}x"), &"x".repeat(1000)] {
            assert!(!fits(&signer, ENVD_PURPOSE, &one, 0, bad), "{bad}");
        }
    }

    #[test]
    fn a_signature_is_for_one_file_one_user_and_one_way() {
        let words = "/a b:read:user:token:17";
        let hash = STANDARD_NO_PAD.encode(digest::digest(&digest::SHA256, words.as_bytes()));
        let signature = format!("v1_{hash}");
        let good = Signed {
            path: "/a b".into(),
            operation: "read",
            user: "user".into(),
            expires: Some("17".into()),
            signature,
        };
        assert!(good.is_by("token"));
        assert!(!good.is_by("token2"));
        for bad in [
            Signed { path: "/a".into(), ..good.clone() },
            Signed { operation: "write", ..good.clone() },
            Signed { user: "root".into(), ..good.clone() },
            Signed { expires: None, ..good.clone() },
            Signed { expires: Some("18".into()), ..good.clone() },
            Signed { signature: "v1_".into(), ..good.clone() },
            Signed { signature: String::new(), ..good.clone() },
        ] {
            assert!(!bad.is_by("token"), "{bad:?}");
        }
    }
}
