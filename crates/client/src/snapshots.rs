//! Snapshots: take, list, remove; go back to one, make sandboxes from one, fork; lineage and what is stale.

use std::time::Duration;

use burrow_api::{
    CollectGarbage, CreateSnapshot, ForkSandbox, Forked, GarbageReport, ImportedSnapshot, Page,
    RestoreSandbox, Restored, Sandbox, SandboxFromSnapshot, Snapshot, SnapshotKind, Tree,
};
use http::Method;

use crate::client::Call;
use crate::files::upload_call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, PageQuery, UploadBody};

/// Which snapshots to list.
#[derive(Clone, Debug, Default)]
pub struct SnapshotQuery {
    /// Name or id of the sandbox they were taken of.
    pub sandbox: Option<String>,
    /// `key=value`; all must match.
    pub labels: Vec<String>,
    /// Any of these; all kinds when empty.
    pub kinds: Vec<SnapshotKind>,
}

/// How a snapshot is exported.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Name or id of a snapshot that the receiver has: only what differs from it is sent.
    pub since: Option<String>,
    /// Without processes.
    pub files_only: bool,
}

/// A snapshot on its way out.
#[derive(Debug)]
pub struct Export {
    /// The file. A stream that ends with an error is no file.
    pub bytes: ByteStream,
    /// The key that signs it: who takes its processes has to trust it.
    pub signer: Option<String>,
}

/// How a snapshot is imported.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// What it is called; as where it came from when absent, if that name is free.
    pub name: Option<String>,
    /// Without processes.
    pub files_only: bool,
    /// Take processes that this key signed. Needs an admin's key.
    pub trust: Option<String>,
}

fn snapshot_path(snapshot: &str) -> Path {
    Path::new("/v1/snapshots").part(snapshot)
}

impl Client {
    /// Of a sandbox that runs, sleeps or is stopped.
    pub async fn create_snapshot(
        &self,
        sandbox: &str,
        request: &CreateSnapshot,
    ) -> Result<Snapshot, ClientError> {
        Ok(self.create(sandbox_path(sandbox).fixed("snapshots"), request).await?.1)
    }

    /// One page of the snapshots that match, newest first, without the paths that changed.
    pub async fn list_snapshots(
        &self,
        query: &SnapshotQuery,
        page: &PageQuery,
    ) -> Result<Page<Snapshot>, ClientError> {
        self.page(query_path(query), page).await
    }

    /// All snapshots that match.
    pub async fn all_snapshots(&self, query: &SnapshotQuery) -> Result<Vec<Snapshot>, ClientError> {
        self.all_pages(query_path(query)).await
    }

    /// By name, by id, or by the first characters of its id.
    pub async fn snapshot(&self, snapshot: &str) -> Result<Snapshot, ClientError> {
        self.get(snapshot_path(snapshot)).await
    }

    /// All that a snapshot is, as one file.
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

    /// Takes in a file that [`Self::export_snapshot`] made, here or elsewhere.
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
        self.send_for_nothing(Call::new(Method::DELETE, snapshot_path(snapshot))).await
    }

    /// Puts a sandbox back to where a snapshot is. What that replaces is kept as a snapshot.
    pub async fn restore_sandbox(
        &self,
        sandbox: &str,
        request: &RestoreSandbox,
    ) -> Result<Restored, ClientError> {
        self.send_json(Method::POST, sandbox_path(sandbox).fixed("restore"), request).await
    }

    /// A new sandbox that goes on where a snapshot is.
    pub async fn create_sandbox_from(
        &self,
        snapshot: &str,
        request: &SandboxFromSnapshot,
    ) -> Result<Sandbox, ClientError> {
        Ok(self.create(snapshot_path(snapshot).fixed("sandboxes"), request).await?.1)
    }

    /// Children that go on from where a sandbox is now.
    pub async fn fork_sandbox(&self, sandbox: &str, request: &ForkSandbox) -> Result<Forked, ClientError> {
        self.send_json(Method::POST, sandbox_path(sandbox).fixed("fork"), request).await
    }

    /// Sandboxes and snapshots by descent.
    pub async fn tree(&self) -> Result<Tree, ClientError> {
        self.get(Path::new("/v1/tree")).await
    }

    /// What is stale and what would become of it; nothing is touched. The daemon's default time when none is given.
    pub async fn garbage(&self, unused_for: Option<Duration>) -> Result<GarbageReport, ClientError> {
        let seconds = unused_for.map(|time| time.as_secs());
        self.get(Path::new("/v1/gc").query_if("unused_for_seconds", seconds)).await
    }

    /// Does what [`Client::garbage`] says.
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
