//! What a sandbox is asked to be: checked, complete, ready to store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ImageRef, Lease, Limits, MemorySpec, Name, NetworkPolicy, Rates, RotatePolicy, ShelfMount, SleepPolicy,
    SnapshotPolicy,
};

/// Everything the user decided about a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// As it was asked for; which image that was then, the sandbox's row says.
    pub image: ImageRef,
    /// Which runtime driver: `container`, later `microvm`.
    pub driver: String,
    pub limits: Limits,
    /// Rows from before there were any have none.
    #[serde(default = "Rates::unlimited", skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// Who execs run as when they do not say; else the image's user, else root.
    pub user: Option<String>,
    pub lifetime: Lifetime,
    pub services: BTreeMap<Name, ServiceSpec>,
    /// What it may reach. Rows from before there was a network are closed.
    #[serde(default = "NetworkPolicy::closed")]
    pub network: NetworkPolicy,
    /// What becomes of it when nothing is done in it. Rows from before there was one never sleep by themselves.
    #[serde(default = "SleepPolicy::never")]
    pub sleep: SleepPolicy,
    /// Snapshots taken by themselves, if any.
    #[serde(default)]
    pub snapshots: Option<SnapshotPolicy>,
    /// Whether it is put back to a snapshot from time to time.
    #[serde(default)]
    pub rotate: Option<RotatePolicy>,
    /// What it remembers, and where. Rows from before there was memory remember nothing unasked.
    #[serde(default = "MemorySpec::quiet")]
    pub memory: MemorySpec,
    /// Of one that a client of the E2B kind made or connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Volumes in it, no part of its own files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<ShelfMount>,
}

impl SandboxSpec {
    /// The same for a child: what it came from may go on writing, so it only reads.
    #[must_use]
    pub fn reading_volumes(self) -> Self {
        let volumes = self.volumes.into_iter().map(ShelfMount::read_only).collect();
        Self { volumes, ..self }
    }

    /// The same as if no client of the E2B kind had ever seen it: what ended with its lease has no end.
    #[must_use]
    pub fn unleased(self) -> Self {
        match self.lease {
            None => self,
            Some(_) => Self { lifetime: self.lifetime.until(None), lease: None, ..self },
        }
    }
}

/// How long a sandbox is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Lifetime {
    /// Kept until deleted, over stops, crashes and reboots.
    Persistent { expires_ms: Option<u64> },
    /// Gone, with all it held, as soon as it stops for whatever reason, or at `expires_ms` since the epoch.
    Ephemeral { expires_ms: Option<u64> },
}

impl Lifetime {
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral { .. })
    }

    /// The same with another end.
    #[must_use]
    pub fn until(self, expires_ms: Option<u64>) -> Self {
        match self {
            Self::Persistent { .. } => Self::Persistent { expires_ms },
            Self::Ephemeral { .. } => Self::Ephemeral { expires_ms },
        }
    }

    pub fn expires_ms(self) -> Option<u64> {
        match self {
            Self::Persistent { expires_ms } | Self::Ephemeral { expires_ms } => expires_ms,
        }
    }
}

/// A supervised process, started with its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub restart: RestartPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Whenever it ends.
    Always,
    /// When it ends with an error.
    OnFailure,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an environment variable's name is letters, digits and `_`, not starting with a digit; its value holds no NUL byte"
)]
pub struct EnvError;

/// Checks one variable before it can reach an `execve`.
pub fn check_env_name(name: &str, value: &str) -> Result<(), EnvError> {
    let shape = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good = !name.is_empty()
        && name.len() <= 256
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(shape)
        && !value.contains('\0');
    if good { Ok(()) } else { Err(EnvError) }
}
