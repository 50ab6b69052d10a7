//! Sandboxes: create, list, update, delete; start, stop, pause, resume, hibernate, wake; statistics.

use std::time::Duration;

use burrow_api::{CreateSandbox, Page, Sandbox, SandboxState, Stats, UpdateSandbox};
use http::{Method, StatusCode};

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError, PageQuery};

/// Selects sandboxes.
#[derive(Clone, Debug, Default)]
pub struct SandboxQuery {
    /// `key=value`; all must match.
    pub labels: Vec<String>,
    pub state: Option<SandboxState>,
}

/// Whether a create request created a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    New,
    /// It existed, and `if_not_exists` was set.
    Existed,
}

pub(crate) fn sandbox_path(sandbox: &str) -> Path {
    Path::new("/v1/sandboxes").part(sandbox)
}

impl Client {
    pub async fn create_sandbox(&self, request: &CreateSandbox) -> Result<Sandbox, ClientError> {
        Ok(self.create_sandbox_or_find(request).await?.1)
    }

    /// The same; also returns whether the sandbox is new or was found by `if_not_exists`.
    pub async fn create_sandbox_or_find(
        &self,
        request: &CreateSandbox,
    ) -> Result<(CreateOutcome, Sandbox), ClientError> {
        let (status, sandbox) = self.create(Path::new("/v1/sandboxes"), request).await?;
        let created = if status == StatusCode::CREATED { CreateOutcome::New } else { CreateOutcome::Existed };
        Ok((created, sandbox))
    }

    /// One page of the matching sandboxes.
    pub async fn list_sandboxes(
        &self,
        query: &SandboxQuery,
        page: &PageQuery,
    ) -> Result<Page<Sandbox>, ClientError> {
        self.page(query_path(query), page).await
    }

    /// All matching sandboxes.
    pub async fn all_sandboxes(&self, query: &SandboxQuery) -> Result<Vec<Sandbox>, ClientError> {
        self.all_pages(query_path(query)).await
    }

    pub async fn sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.get(sandbox_path(sandbox)).await
    }

    pub async fn update_sandbox(
        &self,
        sandbox: &str,
        update: &UpdateSandbox,
    ) -> Result<Sandbox, ClientError> {
        self.send_json(Method::PATCH, sandbox_path(sandbox), update).await
    }

    pub async fn delete_sandbox(&self, sandbox: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, sandbox_path(sandbox))).await
    }

    /// Deletes a sandbox with all its snapshots.
    pub async fn delete_sandbox_with_snapshots(&self, sandbox: &str) -> Result<(), ClientError> {
        let path = sandbox_path(sandbox).flag("snapshots", true);
        self.send_no_content(Call::new(Method::DELETE, path)).await
    }

    pub async fn start_sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("start")).await
    }

    /// Boots a sandbox from its files, and discards the processes of a hibernated one.
    pub async fn start_sandbox_from_files(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("start").flag("files_only", true)).await
    }

    /// Processes have `grace` (by default the daemon's setting) to end by themselves.
    pub async fn stop_sandbox(&self, sandbox: &str, grace: Option<Duration>) -> Result<Sandbox, ClientError> {
        let grace_ms = grace.map(|grace| grace.as_millis());
        self.post_empty(sandbox_path(sandbox).fixed("stop").query_if("grace_ms", grace_ms)).await
    }

    pub async fn pause_sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("pause")).await
    }

    pub async fn resume_sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("resume")).await
    }

    /// Writes its processes to disk and frees its RAM; any use wakes it.
    pub async fn hibernate_sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("hibernate")).await
    }

    /// The same, also where no trial can show whether the processes can be restored.
    pub async fn hibernate_sandbox_untried(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("hibernate").flag("untried", true)).await
    }

    /// Makes it run, whether it is paused, hibernated or stopped.
    pub async fn wake_sandbox(&self, sandbox: &str) -> Result<Sandbox, ClientError> {
        self.post_empty(sandbox_path(sandbox).fixed("wake")).await
    }

    pub async fn stats(&self, sandbox: &str) -> Result<Stats, ClientError> {
        self.get(sandbox_path(sandbox).fixed("stats")).await
    }
}

fn query_path(query: &SandboxQuery) -> Path {
    let path = query.labels.iter().fold(Path::new("/v1/sandboxes"), |path, label| path.query("label", label));
    path.query_if("state", query.state.map(SandboxState::as_str))
}
