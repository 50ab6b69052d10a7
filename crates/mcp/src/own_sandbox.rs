//! The sandbox that a connection works in. It is found or created on first use.

use std::collections::BTreeMap;

use burrow_api::{CreateSandbox, Sandbox};
use burrow_client::Client;
use tokio::sync::Mutex;

use crate::fence::{Fence, FencedClient};
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
    /// Finds, creates and starts the sandbox. Tools get a client from [`OwnSandbox::reach`] instead.
    operator: Client,
    wanted: SandboxSelection,
    fence: Fence,
    /// Locked during the lookup, so that concurrent calls do not create two.
    found: Mutex<Option<FoundSandbox>>,
}

#[derive(Clone, Debug)]
struct FoundSandbox {
    id: String,
    fenced: FencedClient,
}

impl OwnSandbox {
    pub(crate) fn new(operator: Client, wanted: SandboxSelection, fence: Fence) -> Self {
        Self { operator, wanted, fence, found: Mutex::default() }
    }

    /// The sandbox's id, and the client for it and its forks. The first call finds it by its name, or creates it.
    pub(crate) async fn reach(&self) -> Result<(Client, String), String> {
        let mut found = self.found.lock().await;
        let known = match found.take() {
            Some(known) => known,
            None => {
                let id = match self.existing().await? {
                    Some(existing) => existing.id,
                    None => self.create().await?,
                };
                FoundSandbox { fenced: self.fenced(&id).await?, id }
            }
        };
        self.use_it(&mut found, known).await
    }

    /// The same for a sandbox that the model names. Whether that one is reached is decided by the daemon.
    pub(crate) async fn reach_named(&self, named: String) -> Result<(Client, String), String> {
        if self.fence.is_none() {
            return Ok((self.operator.clone(), named));
        }
        Ok((self.reach().await?.0, named))
    }

    /// The same if the sandbox exists: nothing is created or started.
    pub(crate) async fn reach_if_exists(&self) -> Result<Option<(Client, String)>, String> {
        let mut found = self.found.lock().await;
        let known = match found.take() {
            Some(known) => known,
            None => {
                let Some(existing) = self.existing().await? else { return Ok(None) };
                FoundSandbox { fenced: self.fenced(&existing.id).await?, id: existing.id }
            }
        };
        self.use_it(&mut found, known).await.map(Some)
    }

    /// The image of the sandbox, or of the one that would be created. `None` if it is the default one.
    pub(crate) async fn image(&self) -> Result<Option<String>, String> {
        Ok(match self.existing().await? {
            Some(existing) => Some(existing.image),
            None => self.wanted.image.clone(),
        })
    }

    /// The build steps of an image; none if the key may not read them.
    pub(crate) async fn steps_of(&self, image: &str) -> Vec<String> {
        let found = self.operator.image(image).await;
        found.map(|image| image.history.into_iter().map(|step| step.what).collect()).unwrap_or_default()
    }

    /// Whether the sandbox was deleted by another client. If so, the next call creates a new one.
    pub(crate) async fn is_gone(&self) -> bool {
        let mut found = self.found.lock().await;
        let Some(known) = &*found else { return false };
        let gone = self.operator.sandbox(&known.id).await.is_err_and(|error| error.is_not_found());
        if gone && let Some(known) = found.take() {
            known.fenced.revoke().await;
        }
        gone
    }

    /// Revokes the key of the connection, if one was created.
    pub(crate) async fn close(&self) {
        if let Some(known) = self.found.lock().await.take() {
            known.fenced.revoke().await;
        }
    }

    async fn fenced(&self, id: &str) -> Result<FencedClient, String> {
        self.fence.client(&self.operator, id).await.map_err(failed("create a key for the sandbox"))
    }

    /// Keeps it, with a new key if the present one is old. The old one may be in use by another call, and expires.
    async fn use_it(
        &self,
        found: &mut Option<FoundSandbox>,
        mut known: FoundSandbox,
    ) -> Result<(Client, String), String> {
        if known.fenced.is_old() {
            known.fenced = self.fenced(&known.id).await?;
        }
        let reached = (known.fenced.client.clone(), known.id.clone());
        *found = Some(known);
        Ok(reached)
    }

    async fn existing(&self) -> Result<Option<Sandbox>, String> {
        let Some(name) = &self.wanted.sandbox else { return Ok(None) };
        match self.operator.sandbox(name).await {
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
        self.operator
            .create_sandbox(&request)
            .await
            .map(|created| created.id)
            .map_err(failed("create the sandbox"))
    }
}
