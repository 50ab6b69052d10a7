//! The contract between Burrow and its clients: wire types, error codes, defaults.
//!
//! REST under `/v1`, JSON bodies, names in snake case, times in milliseconds since the Unix epoch, sizes in the unit
//! that their name ends with. Requests with unknown fields are rejected; responses may gain fields. This crate contains
//! no behaviour.

mod attach;
mod audit;
mod code;
pub mod defaults;
mod diff;
mod error;
mod event;
mod exec;
mod files;
mod host;
mod image;
mod key;
mod lineage;
pub mod memory;
mod merge;
mod network;
mod page;
pub mod policy;
mod port;
mod race;
mod sandbox;
mod secret;
mod service;
mod sleep;
mod snapshot;
mod ssh;
mod volume;

pub use attach::{
    AttachClientMessage, AttachServerMessage, OUTPUT_HEADER_BYTES, decode_output, encode_output,
};
pub use audit::{AuditCheckpoint, AuditConsistency, AuditEvent, AuditInclusion};
pub use code::{
    CodeContext, CodeContextState, CodeError, CodeEvent, CodeResult, CodeRun, CodeRunStatus,
    CreateCodeContext, RunCode,
};
pub use diff::{
    Diff, DiffAspect, DiffEntry, DiffLines, DiffNode, DiffNoise, DiffRequest, DiffSide, DiffSideKind,
};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use event::Event;
pub use exec::{
    CreateExec, Exec, ExecOutcome, ExecState, OutputChunk, OutputStream, Rollback, RollbackState, RunResult,
    SendSignal, StdinMode, TerminalSize, login_shell,
};
pub use files::{
    ChangeMode, FileEntry, FileKind, FileList, MakeDirectory, MoveFile, TarSummary, WatchEvent,
    WatchEventKind,
};
pub use host::{Ability, Driver, HostInfo, Readiness, Version};
pub use image::{
    BuildImage, BuildProgress, Image, ImageConfig, ImageConfigChange, ImageDetail, ImageFrom, ImageLayer,
    ImageStep, ItemState, PruneReport, RegistryCredentials, TagImage,
};
pub use key::{CreateKey, CreatedKey, Key, Scope};
pub use lineage::{
    CollectGarbage, GarbageAction, GarbageItem, GarbageKind, GarbageReport, Tree, TreeNode, TreeNodeKind,
};
pub use merge::{
    FileConflict, MergeConflictKind, MergeMemoryPolicy, MergeOpenFile, MergePolicy, MergeReport, MergeRule,
    MergeSandbox, MovedFile, PastMerge, PastMerges,
};
pub use network::{
    AnswerApproval, BudgetLeft, EgressApproval, EgressCounters, EgressDenied, EgressEntry, EgressExplanation,
    EgressKind, EgressQuestion, EgressRequestExplained, EgressRequestRule, EgressRuleInForce, EgressSet,
    EgressStatus, EgressStep, EgressTrial, EgressVerdict, Network, NetworkMode, NetworkRequest,
    UpdateNetwork,
};
pub use page::Page;
pub use port::{CreatePortUrl, Port, PortMessage, PortUrl};
pub use race::{MergeRace, Race, RaceAttempt, RaceAttemptState, RaceMerged, RaceStage, Races, StartRace};
pub use sandbox::{
    CreateSandbox, Limits, LimitsRequest, Sandbox, SandboxState, Stats, StopReason, UpdateSandbox,
};
pub use secret::{RotateSecret, Secret, SecretPlaceholder, SecretScope, SecretSlot, SecretUser, SetSecret};
pub use service::{CreateService, RestartPolicy, Service, ServiceState};
pub use sleep::{
    Origin, OriginKind, RotatePolicy, RotateRequest, SleepPolicy, SleepRequest, SnapshotPolicy,
    SnapshotPolicyRequest,
};
pub use snapshot::{
    Change, ChangeKind, Changes, CreateSnapshot, ForkResult, ForkSandbox, ImportedSnapshot, RestoreResult,
    RestoreSandbox, SandboxFromSnapshot, Snapshot, SnapshotKind,
};
pub use ssh::{AddSshKey, Ssh, SshKey};
pub use volume::{
    CreateVolume, CreateVolumeSnapshot, MountVolume, RestoreVolume, Volume, VolumeMode, VolumeMount,
    VolumeSnapshot, VolumeUser,
};
