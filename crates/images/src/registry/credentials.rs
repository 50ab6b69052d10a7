//! The credentials for a registry: given explicitly, or from the file that `docker login` writes.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;

use crate::ImageError;

/// Such a file has only a few entries.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The credentials of the user.
#[derive(Clone, Debug)]
pub enum Credentials {
    Anonymous,
    Password {
        username: String,
        password: Secret,
    },
    /// The file of `docker login`: its entry for the registry, else anonymous. Helpers are not run.
    DockerConfig {
        path: PathBuf,
    },
}

/// A password or token. Formatted as `***`.
#[derive(Clone)]
pub struct Secret(pub String);

/// The credentials to use if a registry requests authentication.
#[derive(Clone, Debug)]
pub(super) enum Login {
    Anonymous,
    Password {
        username: String,
        password: Secret,
    },
    /// Exchanged for a token, as cloud registries do it.
    Identity {
        token: Secret,
    },
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, Auth>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Login {
    /// Reads the file, if the credentials are in one: a short file on a local disk.
    pub(super) fn find(credentials: &Credentials, registry: &str) -> Result<Self, ImageError> {
        match credentials {
            Credentials::Anonymous => Ok(Self::Anonymous),
            Credentials::Password { username, password } => {
                Ok(Self::Password { username: username.clone(), password: password.clone() })
            }
            Credentials::DockerConfig { path } => {
                let refused = |reason| ImageError::Credentials { path: path.clone(), reason };
                from_config(&read(path)?, registry).map_err(refused)
            }
        }
    }

    /// A description for a message.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Anonymous => "anonymous users".to_owned(),
            Self::Password { username, .. } => format!("the user `{}`", crate::error::shortened(username)),
            Self::Identity { .. } => "the identity in the credentials file".to_owned(),
        }
    }

    /// The `Authorization` header for Basic authentication; `None` without a password.
    pub(super) fn basic(&self) -> Option<HeaderValue> {
        match self {
            Self::Password { username, password: Secret(password) } => {
                let encoded = STANDARD.encode(format!("{username}:{password}"));
                sensitive(&format!("Basic {encoded}"))
            }
            Self::Anonymous | Self::Identity { .. } => None,
        }
    }
}

/// A header that is not shown in logs.
pub(super) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ImageError::io("open", path.display()))?;
    let mut limited = file.take(FILE_BYTES_MAX);
    limited.read_to_end(&mut bytes).map_err(ImageError::io("read", path.display()))?;
    Ok(bytes)
}

fn from_config(bytes: &[u8], registry: &str) -> Result<Login, &'static str> {
    let config: DockerConfig =
        serde_json::from_slice(bytes).map_err(|_| "it is not in the format of `docker login`")?;
    let entry = config.auths.iter().find(|(key, _)| host_of(key) == canonical(registry));
    let Some((_, auth)) = entry else { return Ok(Login::Anonymous) };
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(token) = some(&auth.identitytoken) {
        return Ok(Login::Identity { token: Secret(token) });
    }
    if let (Some(username), Some(password)) = (some(&auth.username), some(&auth.password)) {
        return Ok(Login::Password { username, password: Secret(password) });
    }
    let Some(encoded) = some(&auth.auth) else { return Ok(Login::Anonymous) };
    let decoded = STANDARD.decode(encoded.trim()).map_err(|_| "an `auth` in it is not base64")?;
    let text = String::from_utf8(decoded).map_err(|_| "an `auth` in it is not text")?;
    let (username, password) = text.split_once(':').ok_or("an `auth` in it has no password")?;
    let password = Secret(password.trim_end_matches('\0').to_owned());
    Ok(Login::Password { username: username.to_owned(), password })
}

/// Keys are hosts, or URLs as in the first version of the protocol.
fn host_of(key: &str) -> String {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    canonical(rest.split('/').next().unwrap_or_default()).to_owned()
}

/// One host with three names.
fn canonical(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, registry: &str, expected: Option<(&str, &str)>) {
        let login = from_config(config.as_bytes(), registry).unwrap();
        let found = match &login {
            Login::Password { username, password } => Some((username.as_str(), password.0.as_str())),
            Login::Identity { token } => Some(("", token.0.as_str())),
            Login::Anonymous => None,
        };
        assert_eq!(found, expected, "{registry}");
        assert!(!format!("{login:?}").contains("pass:word"), "{login:?}");
    }

    #[test]
    fn a_login_is_found_for_every_spelling_of_its_registry() {
        let encoded = STANDARD.encode("user:pass:word");
        let config = format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{encoded}"}},"registry.example.com":{{"auth":"{encoded}"}},
                "https://r.example:5000":{{"username":"a","password":"b"}},"az.example":{{"identitytoken":"t"}},
                "empty.example":{{}}}},"credsStore":"desktop"}}"#
        );
        check(&config, "docker.io", Some(("user", "pass:word")));
        check(&config, "registry.example.com", Some(("user", "pass:word")));
        check(&config, "r.example:5000", Some(("a", "b")));
        check(&config, "az.example", Some(("", "t")));
        check(&config, "empty.example", None);
        check(&config, "r.example", None);
        check(&config, "evilregistry.example.com", None);
        check("{}", "registry.example.com", None);
    }

    #[test]
    fn a_malformed_credentials_file_is_refused() {
        for config in ["", "7", r#"{"auths":{"a":{"auth":"?"}}}"#, r#"{"auths":{"a":{"auth":"YQ=="}}}"#] {
            assert!(from_config(config.as_bytes(), "a").is_err(), "{config}");
        }
    }
}
