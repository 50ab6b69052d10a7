//! Tokens of a sandbox, for its envd and for its private ports; signatures made with the first of them; and tokens of a
//! volume, for its files.
//!
//! A token is an HMAC of the sandbox's id with a secret of this daemon, so nothing is stored, and a token can be
//! checked even after its sandbox was deleted. The generation of the sandbox or volume is part of the input: revoking its
//! tokens increments it. Signatures have E2B's format: `v1_` and base64 of `sha256("path:operation:user:token[:expires]")`.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use burrow_catalog::Catalog;
use burrow_model::{ImageId, SandboxId, VolumeId};
use ring::digest;

use super::handed_out::HandedOutToken;
use crate::e2b::Lookups;
use crate::gateway::Gateway;
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::signer::Signer;

const ENVD_PURPOSE: &str = "burrow e2b envd v1";
const TRAFFIC_PURPOSE: &str = "burrow e2b traffic v1";
const VOLUME_PURPOSE: &str = "burrow e2b volume v1";
const START_PURPOSE: &str = "burrow e2b start v1";
const MCP_PURPOSE: &str = "burrow e2b mcp v1";

/// Marks of snapshots cannot be revoked.
const START_GENERATION: u64 = 0;

/// Longer than any token or signature.
const TEXT_BYTES_MAX: usize = 128;

/// A token for envd, for a client that requested it. It is remembered, because signed addresses without a sandbox are
/// compared with such tokens.
pub async fn hand_out_envd_token(app: &App, sandbox: &SandboxId) -> Result<String, ApiError> {
    let generation = generation(app, sandbox);
    let token = app.part::<Gateway>().signer(app).await?.token(ENVD_PURPOSE, sandbox, generation);
    app.part::<Lookups>().tokens().insert(
        sandbox,
        HandedOutToken { generation, token: token.clone() },
        |id, handed| is_good(app, id, handed),
    );
    Ok(token)
}

/// Whether a token that was handed out is still valid: it was not revoked, and the sandbox exists.
pub fn is_good(app: &App, sandbox: &SandboxId, handed: &HandedOutToken) -> bool {
    handed.generation == generation(app, sandbox) && app.engine.owner(sandbox).is_some()
}

/// The tokens of these sandboxes that were handed out before this daemon started.
pub fn handed_out_before(
    signer: &Signer,
    catalog: &Catalog,
    sandboxes: Vec<SandboxId>,
) -> Vec<(SandboxId, HandedOutToken)> {
    let of = |id: SandboxId| {
        let generation = catalog.token_generation(&id);
        let token = signer.token(ENVD_PURPOSE, &id, generation);
        (id, HandedOutToken { generation, token })
    };
    sandboxes.into_iter().map(of).collect()
}

/// The token for envd.
pub async fn envd_token(app: &App, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.part::<Gateway>().signer(app).await?.token(ENVD_PURPOSE, sandbox, generation(app, sandbox)))
}

/// The token for private ports.
pub async fn traffic_token(app: &App, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.part::<Gateway>().signer(app).await?.token(TRAFFIC_PURPOSE, sandbox, generation(app, sandbox)))
}

/// The token for the files of a volume.
pub async fn volume_token(app: &App, volume: &VolumeId) -> Result<String, ApiError> {
    Ok(app.part::<Gateway>().signer(app).await?.token(VOLUME_PURPOSE, volume, volume_generation(app, volume)))
}

/// Marks the snapshot of a template's start command, so that only a build can create it, and only for this image and
/// sandbox.
pub async fn start_mark(app: &App, image: &ImageId, sandbox: &SandboxId) -> Result<String, ApiError> {
    Ok(app.part::<Gateway>().signer(app).await?.token(
        START_PURPOSE,
        &format!("{image}/{sandbox}"),
        START_GENERATION,
    ))
}

/// Marks the token that a client chose for the MCP address of a sandbox.
pub async fn mcp_mark(app: &App, sandbox: &SandboxId, token: &str) -> Result<String, ApiError> {
    let signer = app.part::<Gateway>().signer(app).await?;
    Ok(signer.token(MCP_PURPOSE, &format!("{sandbox}/{token}"), generation(app, sandbox)))
}

/// Whether this is the mark of that token. Revoking the sandbox's tokens invalidates it.
pub async fn is_mcp_mark(app: &App, sandbox: &SandboxId, token: &str, mark: &str) -> Result<bool, ApiError> {
    Ok(same(mcp_mark(app, sandbox, token).await?.as_bytes(), mark.as_bytes()))
}

/// Whether a token is valid for the files of this volume.
pub async fn opens_volume(app: &App, volume: &VolumeId, token: &str) -> Result<bool, ApiError> {
    Ok(fits(
        app.part::<Gateway>().signer(app).await?,
        VOLUME_PURPOSE,
        volume,
        volume_generation(app, volume),
        token,
    ))
}

/// Whether a token is valid for this sandbox's envd.
pub async fn opens_envd(app: &App, sandbox: &SandboxId, token: &str) -> Result<bool, ApiError> {
    Ok(fits(app.part::<Gateway>().signer(app).await?, ENVD_PURPOSE, sandbox, generation(app, sandbox), token))
}

/// Whether a token is valid for this sandbox's ports. Clients that may run programs inside may also connect to ports.
pub async fn opens_ports(app: &App, sandbox: &SandboxId, token: &str) -> Result<bool, ApiError> {
    let (signer, now) = (app.part::<Gateway>().signer(app).await?, generation(app, sandbox));
    Ok(fits(signer, TRAFFIC_PURPOSE, sandbox, now, token) || fits(signer, ENVD_PURPOSE, sandbox, now, token))
}

fn generation(app: &App, sandbox: &SandboxId) -> u64 {
    app.engine.catalog().token_generation(sandbox)
}

fn volume_generation(app: &App, volume: &VolumeId) -> u64 {
    app.engine.catalog().volume_token_generation(volume)
}

fn fits(signer: &Signer, purpose: &str, id: &impl Display, generation: u64, token: &str) -> bool {
    let expected = signer.token(purpose, id, generation);
    token.len() <= TEXT_BYTES_MAX && same(expected.as_bytes(), token.as_bytes())
}

/// The fields of a signed address.
#[derive(Clone, Debug)]
pub struct SignedAddress {
    pub path: String,
    pub operation: &'static str,
    pub user: String,
    pub expires: Option<String>,
    pub signature: String,
}

impl SignedAddress {
    /// Whether it was signed with this token; the caller checks whether it has expired.
    pub fn is_by(&self, token: &str) -> bool {
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

/// Compares in constant time, except for the lengths.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_for_one_sandbox_and_one_purpose() {
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
    fn a_signature_is_valid_for_one_file_one_user_and_one_operation() {
        let words = "/a b:read:user:token:17";
        let hash = STANDARD_NO_PAD.encode(digest::digest(&digest::SHA256, words.as_bytes()));
        let signature = format!("v1_{hash}");
        let good = SignedAddress {
            path: "/a b".into(),
            operation: "read",
            user: "user".into(),
            expires: Some("17".into()),
            signature,
        };
        assert!(good.is_by("token"));
        assert!(!good.is_by("token2"));
        for bad in [
            SignedAddress { path: "/a".into(), ..good.clone() },
            SignedAddress { operation: "write", ..good.clone() },
            SignedAddress { user: "root".into(), ..good.clone() },
            SignedAddress { expires: None, ..good.clone() },
            SignedAddress { expires: Some("18".into()), ..good.clone() },
            SignedAddress { signature: "v1_".into(), ..good.clone() },
            SignedAddress { signature: String::new(), ..good.clone() },
        ] {
            assert!(!bad.is_by("token"), "{bad:?}");
        }
    }
}
