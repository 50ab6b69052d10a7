//! Which sandbox a connection works in: made when it is first needed.

use std::collections::BTreeMap;

use burrow_api::{CreateSandbox, Sandbox, SandboxState};
use burrow_client::Client;
use tokio::sync::Mutex;

use crate::said::failed;

/// The sandbox that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// An existing one, or what the new one shall be called. Without it each connection gets one of its own.
    pub sandbox: Option<String>,
    /// What a new one is made from; the daemon's default when absent.
    pub image: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) client: Client,
    wanted: Wanted,
    /// Its id. Held while it is looked for, so that calls at once do not make two.
    found: Mutex<Option<String>>,
}

impl Place {
    pub(crate) fn new(client: Client, wanted: Wanted) -> Self {
        Self { client, wanted, found: Mutex::default() }
    }

    /// The sandbox's id. The first call makes it, or finds it by its name and starts it.
    pub(crate) async fn sandbox(&self) -> Result<String, String> {
        let mut found = self.found.lock().await;
        if let Some(id) = &*found {
            return Ok(id.clone());
        }
        let id = match self.existing().await? {
            Some(existing) => self.ready(existing).await?,
            None => self.make().await?,
        };
        *found = Some(id.clone());
        Ok(id)
    }

    /// Its id, if it is there: nothing is made or started.
    pub(crate) async fn known(&self) -> Result<Option<String>, String> {
        let found = self.found.lock().await.clone();
        match found {
            Some(id) => Ok(Some(id)),
            None => Ok(self.existing().await?.map(|existing| existing.id)),
        }
    }

    /// Whether the sandbox was deleted under us. If so, the next call makes another.
    pub(crate) async fn is_gone(&self) -> bool {
        let mut found = self.found.lock().await;
        let Some(id) = &*found else { return false };
        let gone = self.client.sandbox(id).await.is_err_and(|error| error.is_not_found());
        if gone {
            *found = None;
        }
        gone
    }

    async fn existing(&self) -> Result<Option<Sandbox>, String> {
        let Some(name) = &self.wanted.sandbox else { return Ok(None) };
        match self.client.sandbox(name).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(failed("look up the sandbox")(error)),
        }
    }

    /// Every use wakes a sandbox that sleeps, and none starts one that was stopped.
    async fn ready(&self, found: Sandbox) -> Result<String, String> {
        match found.state {
            SandboxState::Stopped | SandboxState::Failed => {
                self.client.start_sandbox(&found.id).await.map_err(failed("start the sandbox"))?;
            }
            SandboxState::Creating
            | SandboxState::Starting
            | SandboxState::Running
            | SandboxState::Paused
            | SandboxState::Hibernating
            | SandboxState::Hibernated
            | SandboxState::Waking
            | SandboxState::Restoring
            | SandboxState::Stopping
            | SandboxState::Deleting => {}
        }
        Ok(found.id)
    }

    async fn make(&self) -> Result<String, String> {
        let Wanted { sandbox, image } = &self.wanted;
        let request = CreateSandbox {
            name: sandbox.clone(),
            // Two connections may begin at once.
            if_not_exists: sandbox.is_some(),
            image: image.clone(),
            labels: BTreeMap::from([("made-by".to_owned(), "mcp".to_owned())]),
            ..CreateSandbox::default()
        };
        self.client.create_sandbox(&request).await.map(|made| made.id).map_err(failed("make the sandbox"))
    }
}
