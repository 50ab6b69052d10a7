//! Opens the vault according to the configuration.

use std::sync::Arc;

use burrow_vault::{CommandSealer, KeyFile, Sealer, Vault, VaultError};

use burrow_config::SecretsConfig;

/// Creates the key file if it encrypts and does not exist. Blocks for a moment.
pub(crate) fn open(config: &SecretsConfig) -> Result<Vault, VaultError> {
    let Some(command) = &config.command else {
        return Ok(Vault::new(Arc::new(KeyFile::open_or_create(&config.key_file)?), Vec::new()));
    };
    let sealer = CommandSealer::new(command.program.clone(), command.key.clone());
    let mut others: Vec<Arc<dyn Sealer>> = Vec::new();
    if config.key_file.exists() {
        others.push(Arc::new(KeyFile::open(&config.key_file)?));
    }
    Ok(Vault::new(Arc::new(sealer), others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_config::SealerCommand;

    #[test]
    fn the_key_file_is_created_only_if_it_encrypts() {
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("vault.key");
        let command = SealerCommand { program: "/bin/false".into(), key: "main".to_owned() };
        let by_command = SecretsConfig { key_file: key_file.clone(), command: Some(command) };
        assert_eq!(open(&by_command).unwrap().key_id(), "command:main");
        assert!(!key_file.exists());
        let by_file = SecretsConfig { command: None, ..by_command.clone() };
        let file = open(&by_file).unwrap().key_id();
        assert!(
            open(&by_command).unwrap().knows(&file),
            "secrets encrypted by the file can still be decrypted"
        );
    }
}
