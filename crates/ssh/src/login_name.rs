//! Finds or creates the sandbox that a login name stands for.

use burrow_api::CreateSandbox;
use burrow_client::{Client, ClientError};

/// The login name that creates a sandbox; `new+IMAGE` creates one from an image.
pub(crate) const NEW: &str = "new";

/// Prefix of a code in a login name: the login proves that the client holds a public key, and claims the key.
pub const CLAIM: &str = "claim+";

#[derive(Debug)]
pub(crate) struct LoginSandbox {
    pub(crate) id: String,
    name: Option<String>,
    pub(crate) is_new: bool,
}

impl LoginSandbox {
    pub(crate) fn name(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.id)
    }
}

#[derive(Debug)]
pub(crate) enum NoSandbox {
    /// No sandbox of the user has that name. A sandbox of another tenant is reported in the same way.
    Unknown,
    /// The login was for claiming a public key, which now belongs to the client.
    Claimed,
    Failed(ClientError),
}

pub(crate) async fn resolve(client: &Client, login: &str) -> Result<LoginSandbox, NoSandbox> {
    if let Some(image) = new_sandbox_image(login) {
        let request = CreateSandbox { image, ..CreateSandbox::default() };
        let made = client.create_sandbox(&request).await.map_err(NoSandbox::Failed)?;
        return Ok(LoginSandbox { id: made.id, name: made.name, is_new: true });
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
    Ok(LoginSandbox { id: found.id, name: found.name, is_new: false })
}

/// `Some` if the login name asks for a new sandbox, with the image if it names one.
fn new_sandbox_image(login: &str) -> Option<Option<String>> {
    match login.strip_prefix(NEW)? {
        "" => Some(None),
        rest => rest.strip_prefix('+').filter(|image| !image.is_empty()).map(|image| Some(image.to_owned())),
    }
}

/// Whether the text is syntactically a name or an id.
fn is_reference(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_creates_a_sandbox_and_names_that_only_begin_with_it_do_not() {
        assert_eq!(new_sandbox_image("new"), Some(None));
        assert_eq!(new_sandbox_image("new+alpine:3"), Some(Some("alpine:3".to_owned())));
        for other in ["newer", "new+", "new-agent", "web", ""] {
            assert_eq!(new_sandbox_image(other), None, "{other}");
        }
    }
}
