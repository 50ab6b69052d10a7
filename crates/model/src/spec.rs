//! The specification of a sandbox: validated, complete, ready to be stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ImageRef, Lease, Limits, MemorySpec, Name, NetworkPolicy, Rates, RotatePolicy, SleepPolicy,
    SnapshotPolicy, VolumeMount,
};

/// The user's settings for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// As requested; the sandbox's row contains the id of the image at that time.
    pub image: ImageRef,
    /// The runtime driver: `container` or `microvm`.
    pub driver: String,
    pub limits: Limits,
    /// Rows from before rates existed have none.
    #[serde(default = "Rates::unlimited", skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// The user of execs that do not specify one; else the image's user, else root.
    pub user: Option<String>,
    pub lifetime: Lifetime,
    pub services: BTreeMap<Name, ServiceSpec>,
    /// The network policy. Rows from before networks existed are closed.
    #[serde(default = "NetworkPolicy::closed")]
    pub network: NetworkPolicy,
    /// What happens when it is idle. Rows from before the policy existed never sleep automatically.
    #[serde(default = "SleepPolicy::never")]
    pub sleep: SleepPolicy,
    /// Automatic snapshots, if any.
    #[serde(default)]
    pub snapshots: Option<SnapshotPolicy>,
    /// Periodic restores to a snapshot, if any.
    #[serde(default)]
    pub rotate: Option<RotatePolicy>,
    /// Its memory. Rows from before memory existed have no automatic memories.
    #[serde(default = "MemorySpec::quiet")]
    pub memory: MemorySpec,
    /// Set if an E2B client created the sandbox or connected to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Volumes mounted in it; not part of its own files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
}

impl SandboxSpec {
    /// The specification of a child: its volumes are read-only, because the parent may continue to write to them.
    #[must_use]
    pub fn reading_volumes(self) -> Self {
        let volumes = self.volumes.into_iter().map(VolumeMount::read_only).collect();
        Self { volumes, ..self }
    }

    /// The specification without the E2B lease, and without the end of life that the lease set.
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
    /// Kept until deleted, across stops, crashes and reboots.
    Persistent { expires_ms: Option<u64> },
    /// Deleted with all its files as soon as it stops for any reason, or at `expires_ms` since the epoch.
    Ephemeral { expires_ms: Option<u64> },
}

impl Lifetime {
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral { .. })
    }

    /// The same kind of lifetime with another end.
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
    /// Restarted whenever it ends.
    Always,
    /// Restarted when it ends with an error.
    OnFailure,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an environment variable's name is letters, digits and `_`, not starting with a digit; its value must not contain NUL bytes"
)]
pub struct EnvError;

/// Validates one variable before it can be passed to `execve`.
pub fn check_env_name(name: &str, value: &str) -> Result<(), EnvError> {
    let shape = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good = !name.is_empty()
        && name.len() <= 256
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(shape)
        && !value.contains('\0');
    if good { Ok(()) } else { Err(EnvError) }
}
