//! The sandbox that a connection works in. It is found or created on first use.

use std::collections::BTreeMap;

use burrow_api::{CreateSandbox, Sandbox};
use burrow_client::Client;
use tokio::sync::Mutex;

use crate::results::failed;

/// Selects the sandbox of a connection.
#[derive(Clone, Debug, Default)]
pub struct SandboxSelection {
    /// The name or id of an existing one, or the name for a new one. If absent, each connection gets a new sandbox.
    pub sandbox: Option<String>,
    /// The image of a new one; the daemon's default if absent.
    pub image: Option<String>,
}

#[derive(Debug)]
pub(crate) struct OwnSandbox {
    pub(crate) client: Client,
    wanted: SandboxSelection,
    /// Its id. Locked during the lookup, so that concurrent calls do not create two.
    found: Mutex<Option<String>>,
}

impl OwnSandbox {
    pub(crate) fn new(client: Client, wanted: SandboxSelection) -> Self {
        Self { client, wanted, found: Mutex::default() }
    }

    /// The sandbox's id. The first call finds it by its name, or creates it.
    pub(crate) async fn sandbox(&self) -> Result<String, String> {
        let mut found = self.found.lock().await;
        if let Some(id) = &*found {
            return Ok(id.clone());
        }
        let id = match self.existing().await? {
            Some(existing) => existing.id,
            None => self.create().await?,
        };
        *found = Some(id.clone());
        Ok(id)
    }

    /// The sandbox's id, if it exists: nothing is created or started.
    pub(crate) async fn id_if_exists(&self) -> Result<Option<String>, String> {
        let found = self.found.lock().await.clone();
        match found {
            Some(id) => Ok(Some(id)),
            None => Ok(self.existing().await?.map(|existing| existing.id)),
        }
    }

    /// Whether the sandbox was deleted by another client. If so, the next call creates a new one.
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
            Err(error) => Err(failed("find the sandbox")(error)),
        }
    }

    async fn create(&self) -> Result<String, String> {
        let SandboxSelection { sandbox, image } = &self.wanted;
        let request = CreateSandbox {
            name: sandbox.clone(),
            // Two connections may begin at the same time.
            if_not_exists: sandbox.is_some(),
            image: image.clone(),
            labels: BTreeMap::from([("made-by".to_owned(), "mcp".to_owned())]),
            ..CreateSandbox::default()
        };
        self.client
            .create_sandbox(&request)
            .await
            .map(|created| created.id)
            .map_err(failed("create the sandbox"))
    }
}
