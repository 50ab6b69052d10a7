//! Everything that can go wrong when a sandbox is asked for something.

use burrow_catalog::CatalogError;
use burrow_guest::client::GuestError;
use burrow_model::{LimitsError, Refusal, SandboxId};
use burrow_network::NetworkError;
use burrow_runtime::RuntimeError;
use burrow_volumes::VolumeError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no sandbox `{what}`")]
    NotFound { what: String },
    #[error("no exec `{what}` in sandbox `{sandbox}`")]
    ExecNotFound { what: String, sandbox: SandboxId },
    #[error("no service `{what}` in sandbox `{sandbox}`")]
    ServiceNotFound { what: String, sandbox: SandboxId },
    #[error("no image `{what}`")]
    ImageNotFound { what: String },
    #[error("no runtime driver `{what}`")]
    DriverUnknown { what: String },
    #[error("runtime driver `{driver}` cannot run here: {reason}")]
    DriverUnavailable { driver: String, reason: String },
    #[error("the name `{name}` is taken by sandbox `{existing}`")]
    NameTaken { name: String, existing: SandboxId },
    #[error("could not {request} sandbox `{id}`: {refusal}")]
    Refused { id: SandboxId, request: &'static str, refusal: Refusal },
    #[error("sandbox `{id}` was deleted meanwhile")]
    Gone { id: SandboxId },
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("`{field}` of {given} is more than this host gives one sandbox ({max})")]
    LimitAboveMax { field: &'static str, given: u32, max: u32 },
    #[error("this host holds {max} sandboxes already")]
    SandboxesMax { max: usize },
    #[error("the pool has {free_bytes} bytes left, less than its reserve of {reserve_bytes}")]
    PoolReserve { free_bytes: u64, reserve_bytes: u64 },
    #[error("sandbox `{id}` has {queued} requests waiting already")]
    Busy { id: SandboxId, queued: usize },
    #[error("the guest of sandbox `{id}` does not answer")]
    GuestUnreachable { id: SandboxId, source: GuestError },
    #[error("the guest of sandbox `{id}` did not answer within {seconds} s")]
    GuestTimeout { id: SandboxId, seconds: u64 },
    #[error("{source}")]
    Guest { id: SandboxId, source: burrow_guest::protocol::RequestError },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("an image `{name}` is being built already")]
    BuildInProgress { name: String },
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("the engine was told to fail at `{point}`")]
    Injected { point: String },
}

impl EngineError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("`burrow ls` lists the sandboxes there are"),
            Self::ExecNotFound { .. } => {
                Some("the agent remembers the last 1,000 execs since the sandbox started")
            }
            Self::ImageNotFound { .. } => {
                Some("`burrow image ls` lists images; `burrow up` builds the default one")
            }
            Self::DriverUnknown { .. } | Self::DriverUnavailable { .. } => {
                Some("`burrow doctor` lists the drivers of this host")
            }
            Self::NameTaken { .. } => {
                Some("choose another name, or pass `--if-not-exists` to use that sandbox")
            }
            Self::Refused { refusal: Refusal::Stopped | Refusal::Failed, .. } => {
                Some("`burrow start` brings it up")
            }
            Self::LimitAboveMax { .. } => Some("`limits.max` in the configuration sets the bound"),
            Self::SandboxesMax { .. } => {
                Some("delete some, or raise `limits.sandboxes` in the configuration")
            }
            Self::PoolReserve { .. } => Some("delete sandboxes or images, or enlarge the pool"),
            Self::Busy { .. } => Some("try again in a moment"),
            Self::GuestUnreachable { .. } | Self::GuestTimeout { .. } => {
                Some("the sandbox may be out of RAM or processes; `burrow stop` and `burrow start` renew it")
            }
            Self::ServiceNotFound { .. }
            | Self::Refused { .. }
            | Self::Gone { .. }
            | Self::Limits(_)
            | Self::Guest { .. }
            | Self::Catalog(_)
            | Self::Volume(_)
            | Self::Network(_)
            | Self::Runtime(_)
            | Self::BuildInProgress { .. }
            | Self::ShuttingDown
            | Self::Injected { .. } => None,
        }
    }
}
