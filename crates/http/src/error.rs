//! The only place where errors become responses: a stable code, its status, a message and a hint.
//!
//! The cause of an internal error is logged once, with the request's id: see [`Cause`]. A message names what the caller
//! requested, never a path on the host or the text of an error's source.

use std::error::Error;
use std::io;
use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use burrow_api::{ErrorBody, ErrorCode, ErrorDetail};
use burrow_audit::StoreError;
use burrow_catalog::CatalogError;
use burrow_disks::volume_files::VolumeFileError;
use burrow_disks::{DiskError, DiskId};
use burrow_egress::EgressError;
use burrow_engine::{EngineError, Maximum, VolumeRefusal};
use burrow_guest::protocol::{ErrorCode as GuestCode, RequestError};
use burrow_images::ImageError;
use burrow_memory::MemoryError;
use burrow_model::Refusal;
use burrow_network::NetworkError;
use burrow_portable::PortableError;
use burrow_runtime::RuntimeError;
use burrow_trees::TreeError;
use burrow_vault::VaultError;
use http::StatusCode;

use crate::hints;

/// Messages of a guest are passed on, up to this length.
const MESSAGE_CHARACTERS_MAX: usize = 1_000;

/// An error on its way to a client.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
    cause: Option<Cause>,
}

/// The cause of an error, for the log; travels in the response's extensions.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl ApiError {
    pub fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        Self { code, message: printable(message.as_ref()), hint: None, cause: None }
    }

    pub fn invalid(message: impl AsRef<str>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn cause(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Cause(Arc::new(cause)));
        self
    }

    /// An internal error, about which the caller can do nothing.
    pub fn internal(tried: &str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(code_of_io(&cause).unwrap_or(ErrorCode::Internal), tried).cause(cause)
    }

    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// For interfaces with another format: the code, the message including the hint, and the cause for the log.
    pub fn into_words(self) -> (ErrorCode, String, Option<Cause>) {
        let message = match self.hint {
            None => self.message,
            Some(hint) => format!("{} ({hint})", self.message),
        };
        (self.code, message, self.cause)
    }

    /// For streams, whose status has been sent already. Logs the cause, because no middleware will see it.
    pub fn into_detail(self) -> ErrorDetail {
        if let Some(cause) = &self.cause {
            tracing::warn!(code = self.code.as_str(), cause = %cause, "a stream ended with an error");
        }
        self.detail()
    }

    fn detail(&self) -> ErrorDetail {
        ErrorDetail { code: self.code, message: self.message.clone(), hint: self.hint.clone() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).expect("the codes' statuses are statuses");
        let mut response = (status, Json(ErrorBody { error: self.detail() })).into_response();
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

impl std::fmt::Display for Cause {
    /// The error and its chain of sources.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl ApiError {
    /// Without the cause, which the engine has logged.
    pub(crate) fn described(error: &EngineError) -> Self {
        if let EngineError::Wake { id, reason } = error {
            let hint = format!(
                "`burrow wake {id}` tries again; `burrow start {id} --files-only` starts it from its files, without the processes"
            );
            return Self { hint: Some(hint), ..Self::described(reason) };
        }
        let code = code_of_engine(error);
        let hint = hints::of_engine(error).map(str::to_owned).or_else(|| general_hint(code));
        // Messages that would name files of the host are replaced.
        let message = if matches!(error, EngineError::Image(ImageError::Io { .. })) {
            "could not store or read the image's files".to_owned()
        } else if matches!(error, EngineError::Vault(inner) if code_of_vault(inner) == ErrorCode::Internal) {
            "could not encrypt or decrypt the secret".to_owned()
        } else if let EngineError::Memory(inner) = error {
            memory_message(inner)
        } else {
            error.to_string()
        };
        Self { code, message: printable(&message), hint, cause: None }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let api = Self::described(&error);
        let error = if let EngineError::Wake { reason, .. } = error { *reason } else { error };
        let ours = is_ours(api.code) && !is_the_owners(&error);
        if ours { api.cause(error) } else { api }
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        EngineError::Catalog(error).into()
    }
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        EngineError::Memory(error).into()
    }
}

/// A full sandbox, or any other error of its guest, is a matter for its owner and not for the operator.
fn is_the_owners(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Guest { .. }
            | EngineError::VolumeFile(VolumeFileError::Full)
            | EngineError::Memory(
                MemoryError::Full { .. } | MemoryError::SpaceFull { .. } | MemoryError::SandboxFull { .. }
            )
    )
}

/// Whether the log must contain more than the response does.
fn is_ours(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Internal
            | ErrorCode::NoSpace
            | ErrorCode::GuestUnreachable
            | ErrorCode::RestoreFailed
            | ErrorCode::Damaged
    )
}

fn general_hint(code: ErrorCode) -> Option<String> {
    let hint = if code == ErrorCode::Internal {
        "see the daemon's log, under the `x-request-id` of this response"
    } else if code == ErrorCode::NoSpace {
        "delete files, sandboxes or images, or raise the limit that was reached"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

#[expect(clippy::too_many_lines, reason = "one arm for each error, and no more in them than a code")]
fn code_of_engine(error: &EngineError) -> ErrorCode {
    match error {
        EngineError::Catalog(inner) => code_of_catalog(inner),
        EngineError::Disk(inner) => code_of_disk(inner),
        EngineError::Network(inner) => code_of_network(inner),
        EngineError::Egress(inner) => code_of_egress(inner),
        EngineError::Runtime(inner) => code_of_runtime(inner),
        EngineError::Wake { reason, .. } => code_of_engine(reason),
        EngineError::Image(inner) => code_of_image(inner),
        EngineError::ImageUnfit { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Unprocessable),
        EngineError::BuildStep { .. } | EngineError::ImagesInArchive { .. } => ErrorCode::Unprocessable,
        EngineError::ImageNeedsName { .. } | EngineError::PlatformUnknown { .. } => ErrorCode::InvalidRequest,
        EngineError::ImagesBusy { .. } | EngineError::TrialBusy { .. } => ErrorCode::Busy,
        // The sandbox continues unchanged.
        EngineError::TrialCut { .. } => ErrorCode::NotDumpable,
        EngineError::Restore(_) => ErrorCode::RestoreFailed,
        EngineError::Guest { source, .. } => code_of_guest(source),
        EngineError::Tree(TreeError::Step { source, .. }) => {
            code_of_io(source).unwrap_or(ErrorCode::Internal)
        }
        EngineError::Tree(TreeError::TooMany { .. })
        | EngineError::TooDifferent { .. }
        | EngineError::OtherForm { .. }
        | EngineError::NoCommonSnapshot { .. }
        | EngineError::MergeWithItself { .. } => ErrorCode::Unprocessable,
        EngineError::NotFound { .. }
        | EngineError::ExecNotFound { .. }
        | EngineError::ServiceNotFound { .. }
        | EngineError::ApprovalNotFound { .. }
        | EngineError::VolumeSnapshotNotFound { .. }
        | EngineError::Gone { .. } => ErrorCode::NotFound,
        EngineError::NameTaken { .. }
        | EngineError::SnapshotNameTaken { .. }
        | EngineError::Replaced { .. }
        | EngineError::BuildInProgress { .. }
        | EngineError::SpaceInUse { .. }
        | EngineError::SecretInUse { .. }
        | EngineError::SecretBusy { .. }
        | EngineError::MemoryContradicts { .. }
        | EngineError::RaceRunning { .. }
        | EngineError::NoWinner { .. }
        | EngineError::NetworkDiffers { .. } => ErrorCode::Conflict,
        EngineError::SnapshotInUse { .. }
        | EngineError::SnapshotBusy { .. }
        | EngineError::SnapshotsLeft { .. } => ErrorCode::SnapshotInUse,
        EngineError::Asleep { .. } => ErrorCode::SandboxAsleep,
        EngineError::Recovering { .. } => ErrorCode::Busy,
        EngineError::NoHibernate { .. }
        | EngineError::OtherDriver { .. }
        | EngineError::NoDiskRate { .. } => ErrorCode::Unsupported,
        EngineError::Volumes(inner) => code_of_volumes(inner),
        EngineError::Maximum(inner) => code_of_maximum(inner),
        EngineError::Mount(_) => ErrorCode::InvalidRequest,
        EngineError::VolumeFile(inner) => code_of_volume_file(inner),
        EngineError::DumpMissing { .. } | EngineError::DumpUnknown { .. } => ErrorCode::Damaged,
        EngineError::RaceSize { .. } => ErrorCode::InvalidRequest,
        EngineError::Policy(_) | EngineError::ForkCount { .. } => ErrorCode::InvalidRequest,
        EngineError::Memory(inner) => code_of_memory(inner),
        EngineError::Moving(inner) => code_of_portable(inner),
        EngineError::ImportNeeds { .. } => ErrorCode::Unsupported,
        EngineError::UntrustedProcesses { .. }
        | EngineError::BaseMissing { .. }
        | EngineError::ExportTooDifferent { .. } => ErrorCode::Unprocessable,
        EngineError::NeverMoved { .. } => ErrorCode::Conflict,
        EngineError::Secret(_) => ErrorCode::InvalidRequest,
        EngineError::Vault(inner) => code_of_vault(inner),
        EngineError::Refused {
            refusal:
                Refusal::Stopped | Refusal::Failed | Refusal::Creating | Refusal::Deleting | Refusal::Moving,
            ..
        } => ErrorCode::NotRunning,
        EngineError::Limits(_) | EngineError::PortReserved { .. } => ErrorCode::InvalidRequest,
        EngineError::PortClosed { .. } => ErrorCode::PortClosed,
        EngineError::DriverUnknown { .. }
        | EngineError::LimitAboveMax { .. }
        | EngineError::SetUnknown { .. }
        | EngineError::NetworkPolicy { .. }
        | EngineError::Transforms { .. }
        | EngineError::RuleNotFound { .. }
        | EngineError::RulesOverlap { .. } => ErrorCode::Unprocessable,
        EngineError::DriverUnavailable { .. } => ErrorCode::Unsupported,
        EngineError::PoolReserve { .. } | EngineError::NoRoom { .. } => ErrorCode::NoSpace,
        EngineError::Busy { .. } | EngineError::ShuttingDown => ErrorCode::Busy,
        EngineError::GuestUnreachable { .. } | EngineError::GuestTimeout { .. } => {
            ErrorCode::GuestUnreachable
        }
        EngineError::Injected { .. } => ErrorCode::Internal,
    }
}

fn code_of_volumes(refusal: &VolumeRefusal) -> ErrorCode {
    match refusal {
        VolumeRefusal::Unsupported { .. } => ErrorCode::Unsupported,
        VolumeRefusal::Differ { .. }
        | VolumeRefusal::InPlace { .. }
        | VolumeRefusal::Missing { .. }
        | VolumeRefusal::Other { .. }
        | VolumeRefusal::NotExported { .. } => ErrorCode::Conflict,
    }
}

fn code_of_maximum(maximum: &Maximum) -> ErrorCode {
    match maximum {
        Maximum::Sandboxes { .. } | Maximum::PublicPorts { .. } | Maximum::Races { .. } => ErrorCode::TooMany,
        Maximum::AttachedSpaces { .. } => ErrorCode::InvalidRequest,
        Maximum::Rules { .. } | Maximum::RequestRules { .. } => ErrorCode::Unprocessable,
    }
}

/// An invalid file is the fault of its sender; failed reads and writes on this host are internal errors.
fn code_of_portable(error: &PortableError) -> ErrorCode {
    match error {
        PortableError::NotAnExport
        | PortableError::Encrypted
        | PortableError::TooNew { .. }
        | PortableError::UnknownFeature { .. }
        | PortableError::Truncated
        | PortableError::Damaged { .. }
        | PortableError::Refused { .. }
        | PortableError::Entry { .. }
        | PortableError::Unexportable { .. } => ErrorCode::Unprocessable,
        PortableError::TooLarge { .. } => ErrorCode::TooLarge,
        PortableError::Read { .. } | PortableError::KeyForm => ErrorCode::InvalidRequest,
        PortableError::Place { source, .. }
        | PortableError::Content { source, .. }
        | PortableError::Write { source } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        PortableError::Compress { .. } | PortableError::Thread { .. } | PortableError::KeyFile { .. } => {
            ErrorCode::Internal
        }
    }
}

fn code_of_vault(error: &VaultError) -> ErrorCode {
    match error {
        VaultError::ClientCertificate => ErrorCode::InvalidRequest,
        VaultError::UnknownKey { .. } | VaultError::Forged { .. } | VaultError::Damaged { .. } => {
            ErrorCode::Damaged
        }
        VaultError::KeyFile { .. }
        | VaultError::KeyFileOpen { .. }
        | VaultError::KeyFileLine { .. }
        | VaultError::KeyFileCount { .. }
        | VaultError::Command { .. }
        | VaultError::CommandFailed { .. }
        | VaultError::Random
        | VaultError::Authority { .. } => ErrorCode::Internal,
    }
}

fn code_of_catalog(error: &CatalogError) -> ErrorCode {
    match error {
        CatalogError::NameTaken { .. }
        | CatalogError::SnapshotNameTaken { .. }
        | CatalogError::SpaceNameTaken { .. }
        | CatalogError::TooManySpaces
        | CatalogError::TooManySecrets
        | CatalogError::TooManySshKeys
        | CatalogError::TooManySshKeysOfKey
        | CatalogError::SshKeyTaken
        | CatalogError::VolumeNameTaken { .. }
        | CatalogError::VolumeSnapshotNameTaken { .. }
        | CatalogError::TooManyVolumes
        | CatalogError::TooManyVolumeSnapshots { .. }
        | CatalogError::VolumeInUse { .. }
        | CatalogError::VolumeWritten { .. }
        | CatalogError::VolumeHasSnapshots { .. }
        | CatalogError::VolumeBusy { .. }
        | CatalogError::TooManySnapshots { .. }
        | CatalogError::LastAdminKey => ErrorCode::Conflict,
        CatalogError::IdempotencyMismatch => ErrorCode::IdempotencyMismatch,
        CatalogError::Ambiguous { .. } | CatalogError::AmbiguousSnapshot { .. } | CatalogError::BadCursor => {
            ErrorCode::InvalidRequest
        }
        CatalogError::Unknown { .. } => ErrorCode::NotFound,
        CatalogError::Full => ErrorCode::NoSpace,
        CatalogError::Backup { source, .. } | CatalogError::Open { source, .. } => {
            code_of_io(source).unwrap_or(ErrorCode::Internal)
        }
        CatalogError::InUse { .. }
        | CatalogError::TooNew { .. }
        | CatalogError::Migrate { .. }
        | CatalogError::BadSecret
        | CatalogError::Disk { .. }
        | CatalogError::Sql { .. }
        | CatalogError::Damaged { .. }
        | CatalogError::Corrupt { .. }
        | CatalogError::Panicked
        | CatalogError::Closed => ErrorCode::Internal,
    }
}

fn code_of_memory(error: &MemoryError) -> ErrorCode {
    match error {
        MemoryError::NotFound { .. } | MemoryError::BlobGone { .. } => ErrorCode::NotFound,
        MemoryError::ReadOnly | MemoryError::Upload { .. } => ErrorCode::InvalidRequest,
        MemoryError::TooLarge { .. } | MemoryError::ValueTooLarge { .. } | MemoryError::TooMany { .. } => {
            ErrorCode::TooLarge
        }
        MemoryError::Invalid { .. } | MemoryError::SameBranch => ErrorCode::Unprocessable,
        MemoryError::Conflict { .. } | MemoryError::Contested { .. } => ErrorCode::Conflict,
        MemoryError::Range { .. } => ErrorCode::RangeNotSatisfiable,
        MemoryError::Full { .. }
        | MemoryError::SpaceFull { .. }
        | MemoryError::SandboxFull { .. }
        | MemoryError::DiskReserve { .. }
        | MemoryError::DiskFull => ErrorCode::NoSpace,
        MemoryError::Damaged { .. } | MemoryError::DamagedRow { .. } | MemoryError::DamagedBlob { .. } => {
            ErrorCode::Damaged
        }
        MemoryError::TooNew { .. } => ErrorCode::Unsupported,
        MemoryError::Busy { .. } | MemoryError::Closed => ErrorCode::Busy,
        MemoryError::Embed { .. } => ErrorCode::BadGateway,
        MemoryError::Blob { source, .. } => code_of_io(source).unwrap_or(ErrorCode::BadGateway),
        MemoryError::Folder { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        MemoryError::Storage { source } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        MemoryError::Panicked => ErrorCode::Internal,
    }
}

/// The message of the error, unless it names files of the host.
fn memory_message(error: &MemoryError) -> String {
    if matches!(error, MemoryError::Damaged { .. }) {
        "the memory of this space is damaged".to_owned()
    } else if matches!(error, MemoryError::TooNew { .. }) {
        "the memory of this space was written by a newer release".to_owned()
    } else if matches!(error, MemoryError::Folder { .. }) {
        "could not open the memory of this host".to_owned()
    } else {
        error.to_string()
    }
}

fn code_of_volume_file(error: &VolumeFileError) -> ErrorCode {
    match error {
        VolumeFileError::BadPath | VolumeFileError::BadOwner => ErrorCode::InvalidRequest,
        VolumeFileError::NotFound { .. } => ErrorCode::NotFound,
        VolumeFileError::Exists { .. } => ErrorCode::Conflict,
        VolumeFileError::Link { .. }
        | VolumeFileError::NotDirectory { .. }
        | VolumeFileError::NotFile { .. } => ErrorCode::Unprocessable,
        VolumeFileError::TooMuch { .. } => ErrorCode::TooLarge,
        VolumeFileError::Full => ErrorCode::NoSpace,
        VolumeFileError::Step { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Internal),
    }
}

fn code_of_disk(error: &DiskError) -> ErrorCode {
    match error {
        DiskError::Full { .. } | DiskError::NoRoomForPool { .. } => ErrorCode::NoSpace,
        DiskError::NoBuilder | DiskError::NoMirror | DiskError::TooNew { .. } => ErrorCode::Unsupported,
        // Of objects that the catalog lists.
        DiskError::Damaged { .. }
        | DiskError::NotFound {
            disk: DiskId::Snapshot(_) | DiskId::Frozen(_) | DiskId::Volume(_) | DiskId::VolumeSnapshot(_),
        }
        | DiskError::DumpNotFound { .. } => ErrorCode::Damaged,
        DiskError::Step { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        // The catalog lists an image that is missing in the pool: another process deleted it.
        DiskError::NotFound { disk: DiskId::Image(_) | DiskId::Sandbox(_) }
        | DiskError::WrongKind { .. }
        | DiskError::NotDumpable { .. }
        | DiskError::NotBtrfs { .. }
        | DiskError::MountTaken { .. }
        | DiskError::NoQuotas { .. }
        | DiskError::Command { .. }
        | DiskError::Injected => ErrorCode::Internal,
    }
}

fn code_of_network(error: &NetworkError) -> ErrorCode {
    match error {
        NetworkError::Step { source, .. } | NetworkError::RunDir { source, .. } => {
            code_of_io(source).unwrap_or(ErrorCode::Internal)
        }
        NetworkError::NotConnected { .. } => ErrorCode::NotRunning,
        NetworkError::Injected => ErrorCode::Internal,
    }
}

fn code_of_egress(error: &EgressError) -> ErrorCode {
    match error {
        EgressError::NotWaiting { .. } => ErrorCode::NotFound,
        EgressError::NotAttached { .. } => ErrorCode::NotRunning,
        EgressError::Listeners { source, .. } => code_of_network(source),
        EgressError::Process { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        // It is being restarted: a retry helps.
        EgressError::Down | EgressError::Silent => ErrorCode::GuestUnreachable,
        EgressError::Refused { .. } | EgressError::Injected => ErrorCode::Internal,
    }
}

fn code_of_runtime(error: &RuntimeError) -> ErrorCode {
    match error {
        RuntimeError::Step { source, .. } | RuntimeError::Host { source, .. } => {
            code_of_io(source).unwrap_or(ErrorCode::Internal)
        }
        RuntimeError::NoMachine { .. } => ErrorCode::NotRunning,
        // The sandbox continues unchanged.
        RuntimeError::Obstacles { .. }
        | RuntimeError::Dump { .. }
        | RuntimeError::TrialFailed { .. }
        | RuntimeError::NoRoomForTrial { .. } => ErrorCode::NotDumpable,
        RuntimeError::Restore { .. } | RuntimeError::RestoreCut { .. } | RuntimeError::Unfit { .. } => {
            ErrorCode::RestoreFailed
        }
        // Disks are written by sandboxes: their owner needs to know what is wrong.
        RuntimeError::Disks { .. } => ErrorCode::Unprocessable,
        RuntimeError::NoDiskRate { .. } => ErrorCode::Unsupported,
        RuntimeError::Boot { .. }
        | RuntimeError::BootTimeout { .. }
        | RuntimeError::Launcher { .. }
        | RuntimeError::NotPrecreated { .. }
        | RuntimeError::DumpHangs { .. }
        | RuntimeError::Injected => ErrorCode::Internal,
    }
}

fn code_of_image(error: &ImageError) -> ErrorCode {
    match error {
        ImageError::Reference { .. }
        | ImageError::Digest { .. }
        | ImageError::Recipe { .. }
        | ImageError::Dockerfile { .. } => ErrorCode::InvalidRequest,
        ImageError::NotFound { .. } => ErrorCode::NotFound,
        ImageError::Connect { .. }
        | ImageError::Transfer { .. }
        | ImageError::Status { .. }
        | ImageError::Challenge { .. }
        | ImageError::Redirect { .. } => ErrorCode::BadGateway,
        ImageError::TooLarge { .. } => ErrorCode::TooLarge,
        ImageError::Json { .. }
        | ImageError::Document { .. }
        | ImageError::SchemaOne { .. }
        | ImageError::MediaType { .. }
        | ImageError::Platform { .. }
        | ImageError::Mismatch { .. }
        | ImageError::Size { .. }
        | ImageError::Denied { .. }
        | ImageError::NotAnImage { .. }
        | ImageError::Entry { .. }
        | ImageError::Stream { .. }
        | ImageError::Owner { .. }
        | ImageError::DiffId { .. }
        | ImageError::Unpackable { .. } => ErrorCode::Unprocessable,
        ImageError::Io { source, .. }
        | ImageError::Place { source, .. }
        | ImageError::Pack { source, .. } => code_of_io(source).unwrap_or(ErrorCode::Internal),
        ImageError::Tls(_) | ImageError::Credentials { .. } => ErrorCode::Internal,
        ImageError::Cancelled => ErrorCode::Busy,
    }
}

fn code_of_guest(error: &RequestError) -> ErrorCode {
    match error.code {
        GuestCode::Invalid => ErrorCode::InvalidRequest,
        GuestCode::NotFound => ErrorCode::NotFound,
        GuestCode::AlreadyExists | GuestCode::DirectoryNotEmpty => ErrorCode::Conflict,
        GuestCode::NotADirectory
        | GuestCode::IsADirectory
        | GuestCode::NotAFile
        | GuestCode::PermissionDenied
        | GuestCode::UnknownUser => ErrorCode::Unprocessable,
        GuestCode::CannotExecute => ErrorCode::CannotExecute,
        GuestCode::NoProgram => ErrorCode::NoSuchProgram,
        GuestCode::TooMany => ErrorCode::TooMany,
        GuestCode::TooLarge => ErrorCode::TooLarge,
        GuestCode::NoSpace => ErrorCode::NoSpace,
        GuestCode::Ended => ErrorCode::ExecEnded,
        GuestCode::Unsupported => ErrorCode::Unsupported,
        // Errors inside a sandbox are not the daemon's fault, whatever a hostile guest reports.
        GuestCode::Internal => ErrorCode::Unprocessable,
        // The guest rejects the daemon's token, so it is not the guest that the daemon started.
        GuestCode::Unauthorized => ErrorCode::GuestUnreachable,
    }
}

/// Finds a lack of space anywhere in the chain of causes.
fn code_of_io(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && matches!(io.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        {
            return Some(ErrorCode::NoSpace);
        }
        next = error.source();
    }
    None
}

/// Limits the length, and replaces control characters, which could move a terminal's cursor.
fn printable(text: &str) -> String {
    let cut = text.chars().take(MESSAGE_CHARACTERS_MAX);
    cut.map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let hint = hints::of_audit(&error);
        let api = match &error {
            StoreError::OutOfRange { .. } => return Self::new(ErrorCode::NotFound, error.to_string()),
            StoreError::Full => Self::new(ErrorCode::NoSpace, error.to_string()).cause(error),
            StoreError::File { .. }
            | StoreError::Sqlite(_)
            | StoreError::Commit { .. }
            | StoreError::Version { .. }
            | StoreError::Note(_)
            | StoreError::Tampered { .. }
            | StoreError::Moved { .. }
            | StoreError::Thread { .. }
            | StoreError::Closed => Self::internal("could not read the audit log", error),
        };
        match hint {
            Some(hint) => api.hint(hint),
            None => api,
        }
    }
}

#[cfg(test)]
mod tests {
    use burrow_engine::ObjectKind;
    use burrow_guest::client::GuestError;
    use burrow_model::{DumpId, LimitsError, SandboxId, SnapshotId};

    use super::*;

    #[track_caller]
    fn check(error: EngineError, code: ErrorCode, status: u16) {
        let shown = error.to_string();
        let ours = is_ours(code) && !matches!(error, EngineError::Guest { .. });
        let api = ApiError::from(error);
        assert_eq!((api.code, api.code.status()), (code, status), "{shown}");
        assert_eq!(api.cause.is_some(), ours, "{shown}");
        assert_eq!(api.into_response().status().as_u16(), status);
    }

    fn guest(code: GuestCode) -> EngineError {
        let source = RequestError { code, message: "could not".to_owned() };
        EngineError::Guest { id: SandboxId::generate(), source }
    }

    #[test]
    fn every_error_has_its_code() {
        let id = SandboxId::generate;
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let table = [
            (EngineError::NotFound { kind: ObjectKind::Sandbox, what: "x".into() }, ErrorCode::NotFound, 404),
            (EngineError::NotFound { kind: ObjectKind::Exec, what: "x".into() }, ErrorCode::NotFound, 404),
            (EngineError::Gone { id: id() }, ErrorCode::NotFound, 404),
            (EngineError::NameTaken { name: "x".into(), existing: id() }, ErrorCode::Conflict, 409),
            (
                EngineError::Refused { id: id(), request: "use", refusal: Refusal::Stopped },
                ErrorCode::NotRunning,
                409,
            ),
            (
                EngineError::Limits(LimitsError { field: "pids", given: 1, min: 2, max: 3 }),
                ErrorCode::InvalidRequest,
                400,
            ),
            (EngineError::LimitAboveMax { field: "pids", given: 9, max: 3 }, ErrorCode::Unprocessable, 422),
            (EngineError::Maximum(Maximum::Sandboxes { max: 1 }), ErrorCode::TooMany, 429),
            (EngineError::PoolReserve { free_bytes: 1, reserve_bytes: 2 }, ErrorCode::NoSpace, 507),
            (EngineError::Busy { id: id(), queued: 9 }, ErrorCode::Busy, 429),
            (
                EngineError::GuestUnreachable { id: id(), source: GuestError::HungUp },
                ErrorCode::GuestUnreachable,
                504,
            ),
            (EngineError::Catalog(CatalogError::Full), ErrorCode::NoSpace, 507),
            (EngineError::Catalog(CatalogError::BadCursor), ErrorCode::InvalidRequest, 400),
            (EngineError::Catalog(CatalogError::IdempotencyMismatch), ErrorCode::IdempotencyMismatch, 422),
            (EngineError::Catalog(CatalogError::Panicked), ErrorCode::Internal, 500),
            (
                EngineError::Disk(DiskError::Step { step: "write", what: "x".into(), source: full() }),
                ErrorCode::NoSpace,
                507,
            ),
            (EngineError::Disk(DiskError::Injected), ErrorCode::Internal, 500),
            (EngineError::Runtime(RuntimeError::NoMachine { id: id() }), ErrorCode::NotRunning, 409),
            (guest(GuestCode::NotFound), ErrorCode::NotFound, 404),
            (guest(GuestCode::DirectoryNotEmpty), ErrorCode::Conflict, 409),
            (guest(GuestCode::CannotExecute), ErrorCode::CannotExecute, 422),
            (guest(GuestCode::NoProgram), ErrorCode::NoSuchProgram, 422),
            (guest(GuestCode::NoSpace), ErrorCode::NoSpace, 507),
            (guest(GuestCode::Ended), ErrorCode::ExecEnded, 409),
            (guest(GuestCode::Internal), ErrorCode::Unprocessable, 422),
        ];
        for (error, code, status) in table {
            check(error, code, status);
        }
    }

    #[test]
    fn every_error_of_sleep_and_snapshots_has_its_code() {
        let id = SandboxId::generate;
        let no_snapshot = EngineError::NotFound { kind: ObjectKind::Snapshot, what: "x".into() };
        let table = [
            (no_snapshot, ErrorCode::NotFound, 404),
            (
                EngineError::SnapshotInUse { id: SnapshotId::generate(), by: id() },
                ErrorCode::SnapshotInUse,
                409,
            ),
            (EngineError::Asleep { id: id() }, ErrorCode::SandboxAsleep, 409),
            (EngineError::Recovering { id: id(), reason: "x".into() }, ErrorCode::Busy, 429),
            (EngineError::Replaced { id: id() }, ErrorCode::Conflict, 409),
            (
                EngineError::Refused { id: id(), request: "use", refusal: Refusal::Moving },
                ErrorCode::NotRunning,
                409,
            ),
            (
                EngineError::NoRoom { needed_bytes: 3, free_bytes: 2, reserve_bytes: 1 },
                ErrorCode::NoSpace,
                507,
            ),
            (EngineError::NoHibernate { id: id(), reason: "x".into() }, ErrorCode::Unsupported, 422),
            (
                EngineError::NoDiskRate { driver: "container", reason: "x".into() },
                ErrorCode::Unsupported,
                422,
            ),
            (EngineError::DumpMissing { id: id() }, ErrorCode::Damaged, 422),
            (EngineError::ForkCount { given: 0, max: 64 }, ErrorCode::InvalidRequest, 400),
            (
                EngineError::Disk(DiskError::Damaged {
                    what: "dump `x`".into(),
                    file: "pages-1.img".into(),
                    how: "was changed",
                }),
                ErrorCode::Damaged,
                422,
            ),
            (
                EngineError::Disk(DiskError::TooNew { dump: DumpId::generate(), format: 9, known: 1 }),
                ErrorCode::Unsupported,
                422,
            ),
            (
                EngineError::Runtime(RuntimeError::Obstacles { id: id(), obstacles: Vec::new() }),
                ErrorCode::NotDumpable,
                409,
            ),
            (
                EngineError::Runtime(RuntimeError::Dump { id: id(), reason: "x".into() }),
                ErrorCode::NotDumpable,
                409,
            ),
            (
                EngineError::Runtime(RuntimeError::Restore { id: id(), reason: "x".into() }),
                ErrorCode::RestoreFailed,
                409,
            ),
            (
                EngineError::Runtime(RuntimeError::Unfit { id: id(), reason: "x".into() }),
                ErrorCode::RestoreFailed,
                409,
            ),
        ];
        for (error, code, status) in table {
            check(error, code, status);
        }
    }

    #[test]
    fn messages_of_a_hostile_guest_are_bounded_and_contain_no_control_characters() {
        let source = RequestError { code: GuestCode::NotFound, message: "\u{1b}[2J".repeat(10_000) };
        let error = ApiError::from(EngineError::Guest { id: SandboxId::generate(), source });
        assert!(error.message.chars().count() <= MESSAGE_CHARACTERS_MAX);
        assert!(!error.message.chars().any(char::is_control));
    }

    #[test]
    fn a_cause_is_printed_with_its_chain_of_sources() {
        let source = io::Error::other("the disk is on fire");
        let error = DiskError::Step { step: "write", what: "x".into(), source };
        let cause = ApiError::from(EngineError::Disk(error)).cause.unwrap();
        assert_eq!(cause.to_string(), "could not write `x`: the disk is on fire");
    }
}
