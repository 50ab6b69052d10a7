//! Values that no attack may read or change: a host file, a token in the daemon's environment, a neighbour's secret.

use std::path::{Path, PathBuf};

use crate::ground::fingerprint;
use crate::report::{RowFailure, ensure};

pub(crate) struct Canaries {
    folder: tempfile::TempDir,
    file: PathBuf,
    before: String,
    content: String,
    token: String,
    secret: String,
}

impl Canaries {
    /// The token in the daemon's environment.
    pub(crate) const VARIABLE: &str = "BURROW_ATTACKS_TOKEN";
    /// The secret in the neighbour.
    pub(crate) const NEIGHBOUR_FILE: &str = "/root/secret";

    pub(crate) fn plant() -> Self {
        let folder = tempfile::Builder::new().prefix("burrow-canary-").tempdir().unwrap();
        let file = folder.path().join("canary");
        // Assembled here, so that no source or command line contains the searched value.
        let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "");
        let content = format!("host-canary-{random}");
        std::fs::write(&file, &content).unwrap();
        let before = fingerprint(folder.path());
        let (token, secret) = (format!("token-canary-{random}"), format!("secret-canary-{random}"));
        Self { folder, file, before, content, token, secret }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The content of the host file.
    pub(crate) fn content(&self) -> &str {
        &self.content
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn check(&self, said: &str) -> Result<(), RowFailure> {
        let after = fingerprint(self.folder.path());
        ensure(after == self.before, || {
            format!("the host's canary changed from {} to {after}", self.before)
        })?;
        for (name, value) in [
            ("host file", &self.content),
            ("daemon's token", &self.token),
            ("neighbour's secret", &self.secret),
        ] {
            ensure(!said.contains(value.as_str()), || {
                format!("the {name} leaked into the sandbox's output")
            })?;
        }
        Ok(())
    }
}
