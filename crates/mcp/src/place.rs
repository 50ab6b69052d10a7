//! Which sandbox a connection works in: made when it is first needed.

use std::collections::BTreeMap;

use burrow_api::CreateSandbox;
use burrow_client::Client;
use tokio::sync::OnceCell;

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
    found: OnceCell<String>,
}

impl Place {
    pub(crate) fn new(client: Client, wanted: Wanted) -> Self {
        Self { client, wanted, found: OnceCell::new() }
    }

    /// The sandbox's id. The first call makes it, or finds it by its name and wakes it.
    pub(crate) async fn sandbox(&self) -> Result<&str, String> {
        self.found.get_or_try_init(|| self.find_or_make()).await.map(String::as_str)
    }

    /// Its id, if it was used before.
    pub(crate) fn known(&self) -> Option<&str> {
        self.found.get().map(String::as_str)
    }

    async fn find_or_make(&self) -> Result<String, String> {
        let Wanted { sandbox, image } = &self.wanted;
        if let Some(name) = sandbox {
            match self.client.sandbox(name).await {
                Ok(found) => return Ok(found.id),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(failed("look up the sandbox")(error)),
            }
        }
        let request = CreateSandbox {
            name: sandbox.clone(),
            if_not_exists: sandbox.is_some(),
            image: image.clone(),
            labels: BTreeMap::from([("made-by".to_owned(), "mcp".to_owned())]),
            ..CreateSandbox::default()
        };
        self.client.create_sandbox(&request).await.map(|made| made.id).map_err(failed("make the sandbox"))
    }
}
