//! The `[secrets]` keys.

use std::path::{Path, PathBuf};

use super::file::Settings;

/// The default file name, in the directory of the configuration.
const KEY_FILE: &str = "vault.key";

#[derive(Clone, Debug)]
pub struct SecretsConfig {
    pub key_file: PathBuf,
    /// Encrypts data keys instead of the file, which then only decrypts older secrets.
    pub command: Option<SealerCommand>,
}

#[derive(Clone, Debug)]
pub struct SealerCommand {
    pub program: PathBuf,
    /// The name of the key, an argument of the program.
    pub key: String,
}

impl SecretsConfig {
    pub(super) fn of(settings: &Settings, config: &Path) -> Self {
        let beside = || config.with_file_name(KEY_FILE);
        let program = settings.path_if_any("secrets.sealer_command");
        Self {
            key_file: settings.path_if_any("secrets.key_file").unwrap_or_else(beside),
            command: program
                .map(|program| SealerCommand { program, key: settings.text("secrets.sealer_key") }),
        }
    }
}
