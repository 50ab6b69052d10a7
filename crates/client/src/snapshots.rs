//! Snapshots: create, list, delete, restore, export, import; sandboxes from snapshots, forks; lineage and garbage.

use std::time::Duration;

use burrow_api::{
    CollectGarbage, CreateSnapshot, ForkResult, ForkSandbox, GarbageReport, ImportedSnapshot, Page,
    RestoreResult, RestoreSandbox, Sandbox, SandboxFromSnapshot, Snapshot, SnapshotKind, Tree,
};
use http::Method;

use crate::client::Call;
use crate::files::upload_call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, PageQuery, UploadBody};

/// Selects snapshots.
#[derive(Clone, Debug, Default)]
pub struct SnapshotQuery {
    /// Name or id of the sandbox of which they were taken.
    pub sandbox: Option<String>,
    /// `key=value`; all must match.
    pub labels: Vec<String>,
    /// Any of these kinds; all if empty.
    pub kinds: Vec<SnapshotKind>,
}

/// Options of an export.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Name or id of a snapshot that the receiver has: only the differences are sent.
    pub since: Option<String>,
    /// Leave out processes.
    pub files_only: bool,
}

/// A snapshot that is being exported.
#[derive(Debug)]
pub struct Export {
    /// The content of the file. It is incomplete if the stream ends with an error.
    pub bytes: ByteStream,
    /// The key that signs it. To import its processes, the receiver must trust this key.
    pub signer: Option<String>,
}

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The name; by default the name at its origin, if that is free.
    pub name: Option<String>,
    /// Leave out processes.
    pub files_only: bool,
    /// Accept processes that are signed with this key. Requires an admin key.
    pub trust: Option<String>,
}

fn snapshot_path(snapshot: &str) -> Path {
    Path::new("/v1/snapshots").part(snapshot)
}

impl Client {
    /// Takes a snapshot of a sandbox that runs, sleeps or is stopped.
    pub async fn create_snapshot(
        &self,
        sandbox: &str,
        request: &CreateSnapshot,
    ) -> Result<Snapshot, ClientError> {
        Ok(self.create(sandbox_path(sandbox).fixed("snapshots"), request).await?.1)
    }

    /// One page of the matching snapshots, newest first, without changed paths.
    pub async fn list_snapshots(
        &self,
        query: &SnapshotQuery,
        page: &PageQuery,
    ) -> Result<Page<Snapshot>, ClientError> {
        self.page(query_path(query), page).await
    }

    /// All matching snapshots.
    pub async fn all_snapshots(&self, query: &SnapshotQuery) -> Result<Vec<Snapshot>, ClientError> {
        self.all_pages(query_path(query)).await
    }

    /// By name, by id, or by the first characters of its id.
    pub async fn snapshot(&self, snapshot: &str) -> Result<Snapshot, ClientError> {
        self.get(snapshot_path(snapshot)).await
    }

    /// A complete snapshot, as one file.
    pub async fn export_snapshot(
        &self,
        snapshot: &str,
        options: &ExportOptions,
    ) -> Result<Export, ClientError> {
        let path = snapshot_path(snapshot).fixed("export").query_if("since", options.since.as_deref());
        let path = path.query_if("files_only", options.files_only.then_some(true));
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        let signer = response.headers().get("x-burrow-signer").and_then(|key| key.to_str().ok());
        let signer = signer.map(str::to_owned);
        Ok(Export { bytes: ByteStream::new(response.into_body(), shown), signer })
    }

    /// Imports a file from [`Self::export_snapshot`] of this or another daemon.
    pub async fn import_snapshot(
        &self,
        options: &ImportOptions,
        content: UploadBody,
    ) -> Result<ImportedSnapshot, ClientError> {
        let path = Path::new("/v1/snapshots").query_if("name", options.name.as_deref());
        let path = path.query_if("files_only", options.files_only.then_some(true));
        let path = path.query_if("trust", options.trust.as_deref());
        self.send_upload(upload_call(Method::POST, path, content)).await
    }

    pub async fn delete_snapshot(&self, snapshot: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, snapshot_path(snapshot))).await
    }

    /// Restores a sandbox to a snapshot. The replaced state is kept as a snapshot.
    pub async fn restore_sandbox(
        &self,
        sandbox: &str,
        request: &RestoreSandbox,
    ) -> Result<RestoreResult, ClientError> {
        self.send_json(Method::POST, sandbox_path(sandbox).fixed("restore"), request).await
    }

    /// Creates a sandbox from a snapshot.
    pub async fn create_sandbox_from(
        &self,
        snapshot: &str,
        request: &SandboxFromSnapshot,
    ) -> Result<Sandbox, ClientError> {
        Ok(self.create(snapshot_path(snapshot).fixed("sandboxes"), request).await?.1)
    }

    /// Creates children from the current state of a sandbox.
    pub async fn fork_sandbox(
        &self,
        sandbox: &str,
        request: &ForkSandbox,
    ) -> Result<ForkResult, ClientError> {
        self.send_json(Method::POST, sandbox_path(sandbox).fixed("fork"), request).await
    }

    /// Sandboxes and snapshots by descent.
    pub async fn tree(&self) -> Result<Tree, ClientError> {
        self.get(Path::new("/v1/tree")).await
    }

    /// Unused snapshots and what would be done with them; changes nothing. If no time is given, the daemon's default applies.
    pub async fn garbage(&self, unused_for: Option<Duration>) -> Result<GarbageReport, ClientError> {
        let seconds = unused_for.map(|time| time.as_secs());
        self.get(Path::new("/v1/gc").query_if("unused_for_seconds", seconds)).await
    }

    /// Applies the report of [`Client::garbage`].
    pub async fn collect_garbage(&self, unused_for: Option<Duration>) -> Result<GarbageReport, ClientError> {
        let request = CollectGarbage { unused_for_seconds: unused_for.map(|time| time.as_secs()) };
        self.send_json(Method::POST, Path::new("/v1/gc"), &request).await
    }
}

fn query_path(query: &SnapshotQuery) -> Path {
    let path = Path::new("/v1/snapshots").query_if("sandbox", query.sandbox.as_ref());
    let path = query.labels.iter().fold(path, |path, label| path.query("label", label));
    query.kinds.iter().fold(path, |path, kind| path.query("kind", kind.as_str()))
}
