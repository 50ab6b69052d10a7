//! Which sandbox a login name means.

use burrow_api::{CreateSandbox, SandboxState};
use burrow_client::{Client, ClientError};

use crate::CLAIM;

/// The name that makes one; `new+IMAGE` makes one of an image.
const NEW: &str = "new";

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: String,
    given: Option<String>,
    pub(crate) is_new: bool,
}

impl Found {
    pub(crate) fn name(&self) -> &str {
        self.given.as_ref().unwrap_or(&self.id)
    }
}

#[derive(Debug)]
pub(crate) enum NoSandbox {
    /// There is none of that name; or it is somebody else's, which is the same.
    Unknown,
    /// The login was about a public key, which is the client's from now on.
    Claimed,
    Failed(ClientError),
}

pub(crate) async fn find(client: &Client, login: &str) -> Result<Found, NoSandbox> {
    if let Some(image) = wanted_new(login) {
        let request = CreateSandbox { image, ..CreateSandbox::default() };
        let made = client.create_sandbox(&request).await.map_err(NoSandbox::Failed)?;
        return Ok(Found { id: made.id, given: made.name, is_new: true });
    }
    if login.starts_with(CLAIM) {
        return Err(NoSandbox::Claimed);
    }
    if !is_reference(login) {
        return Err(NoSandbox::Unknown);
    }
    let found = match client.sandbox(login).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return Err(NoSandbox::Unknown),
        Err(error) => return Err(NoSandbox::Failed(error)),
    };
    // One that sleeps is woken by what is done in it; one that is stopped has to be told.
    if found.state == SandboxState::Stopped {
        client.wake_sandbox(&found.id).await.map_err(NoSandbox::Failed)?;
    }
    Ok(Found { id: found.id, given: found.name, is_new: false })
}

/// The image, if it names one.
fn wanted_new(login: &str) -> Option<Option<String>> {
    match login.strip_prefix(NEW)? {
        "" => Some(None),
        rest => rest.strip_prefix('+').filter(|image| !image.is_empty()).map(|image| Some(image.to_owned())),
    }
}

/// What can be a name or an id at all.
fn is_reference(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_makes_one_and_what_merely_begins_so_does_not() {
        assert_eq!(wanted_new("new"), Some(None));
        assert_eq!(wanted_new("new+alpine:3"), Some(Some("alpine:3".to_owned())));
        for other in ["newer", "new+", "new-agent", "web", ""] {
            assert_eq!(wanted_new(other), None, "{other}");
        }
    }
}
