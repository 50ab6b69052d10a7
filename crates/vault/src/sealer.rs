//! The seam: holders of the key that wraps data keys.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::VaultError;

pub(crate) const KEY_BYTES: usize = 32;

/// A key that encrypts values. Stored only in wrapped form, and zeroed when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

/// Wraps and unwraps data keys.
///
/// Idempotent: a wrapped key always unwraps to the same data key, as long as this sealer knows the key that wrapped
/// it. A cancelled future has changed nothing.
#[async_trait]
pub trait Sealer: fmt::Debug + Send + Sync {
    /// The id of the key that wraps now. Stored with everything that it seals.
    fn key_id(&self) -> String;
    /// Whether this sealer can unwrap data keys that were wrapped with a key.
    fn knows(&self, key_id: &str) -> bool;
    /// Wraps with the key that [`Sealer::key_id`] names.
    async fn wrap(&self, key: &DataKey) -> Result<Vec<u8>, VaultError>;
    /// Fails with [`VaultError::UnknownKey`] for an unknown key, and with another error if that key did not wrap
    /// these bytes.
    async fn unwrap(&self, key_id: &str, wrapped: &[u8]) -> Result<DataKey, VaultError>;
}

impl DataKey {
    pub fn generate() -> Result<Self, VaultError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| VaultError::Random)?;
        Ok(Self(bytes))
    }

    /// `None` unless there are exactly 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut own = Zeroizing::new([0; KEY_BYTES]);
        if bytes.len() != KEY_BYTES {
            return None;
        }
        own.copy_from_slice(bytes);
        Some(Self(own))
    }

    pub fn expose(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
