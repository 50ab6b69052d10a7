//! The domain types of Burrow: ids, specifications, states and the rules between them.
//!
//! Pure: no IO, no clock, no wire format, and no async except in [`Fault`], which is for tests. Every other crate may use
//! this one; it uses no other crate of Burrow.

mod fault;
mod id;
mod image;
mod image_name;
mod key;
mod lease;
mod lifecycle;
mod limits;
mod memory;
mod name;
pub mod network;
mod policy;
mod rates;
mod secret;
mod snapshot;
mod spec;
mod volume;

pub use fault::{FailMode, Fault};
pub use id::{
    BranchId, DumpId, ExecId, IdError, ImageId, KeyId, MemoryId, MergeId, OperationId, RANDOM_BYTES, RaceId,
    SandboxId, SnapshotId, SpaceId, SshKeyId, TenantId, VolumeId, VolumeSnapshotId,
};
pub use image::{BUILD_LABEL, Image, ImageConfig, ImageOrigin, ImageStep};
pub use image_name::{ImageName, ImageNameError, ImageRef};
pub use key::{Scope, ScopeSet};
pub use lease::{AUTO_RESUME_MS_MIN, AtTimeout, Lease};
pub use lifecycle::{Admission, Refusal, Request, State, StopReason, admit};
pub use limits::{Bytes, Limits, LimitsError, MIB, parse_bytes};
pub use memory::{
    ATTACHED_MAX, AttachedSpace, MemoryPoint, MemoryRef, MemorySpec, NamedPoint, RememberMode,
    SnapshotMemory, SpaceAccess,
};
pub use name::{Label, LabelError, Name, NameError};
pub use network::{EgressRule, HostName, HostPattern, IpRange, NetworkMode, NetworkPolicy};
pub use policy::{
    PERIOD_MS_MAX, PERIOD_MS_MIN, PolicyError, RotatePolicy, SLEEP_MS_MAX, SLEEP_MS_MIN, SleepPolicy,
    SnapshotPolicy,
};
pub use rates::Rates;
pub use secret::{
    BasicUser, CEILING_MAX, Format, HeaderName, PLACEHOLDER_MARK, PlaceholderSpec, QueryName,
    SECRET_BYTES_MAX, SECRET_BYTES_MIN, SecretBytes, SecretError, SecretSpec, Slot,
};
pub use snapshot::{
    CHANGES_MAX, Change, ChangeKind, Changes, DESCRIPTION_LENGTH_MAX, DescriptionError, Origin, OriginKind,
    SNAPSHOTS_MAX, Snapshot, SnapshotKind, check_description,
};
pub use spec::{EnvError, Lifetime, RestartPolicy, SandboxSpec, ServiceSpec, check_env_name};
pub use volume::{
    MOUNTS_MAX, MountError, MountMode, MountPath, VOLUME_SNAPSHOTS_MAX, Volume, VolumeMount, VolumeSnapshot,
    VolumeState, check_mounts,
};
