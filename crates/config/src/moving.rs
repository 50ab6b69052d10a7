//! The `[moving]` keys: export and import of snapshots.

use burrow_portable::PublicKey;

use super::ConfigError;
use super::file::Settings;

/// Maximum number of trusted keys of other hosts.
const TRUSTED_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct MovingConfig {
    /// Maximum unpacked size of one import.
    pub import_bytes: u64,
    pub at_once: usize,
    pub trusted: Vec<PublicKey>,
}

impl MovingConfig {
    pub(super) fn of(settings: &Settings) -> Result<Self, ConfigError> {
        let text = settings.text_if_any("moving.trusted_keys").unwrap_or_default();
        let refuse = |error: burrow_portable::PortableError| {
            settings.refuse("moving.trusted_keys", format!("is invalid: {error}"))
        };
        let trusted = text.split_whitespace().map(|key| key.parse().map_err(refuse));
        let trusted = trusted.collect::<Result<Vec<PublicKey>, _>>()?;
        if trusted.len() > TRUSTED_MAX {
            return Err(settings.refuse("moving.trusted_keys", format!("has more than {TRUSTED_MAX} keys")));
        }
        Ok(Self {
            import_bytes: settings.number("moving.import"),
            at_once: settings.count("moving.at_once"),
            trusted,
        })
    }
}
