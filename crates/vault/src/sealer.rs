//! The seam: who keeps the key that wraps data keys.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::VaultError;

pub(crate) const KEY_BYTES: usize = 32;

/// Seals values. Never stored but wrapped, and cleared when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; KEY_BYTES]>);

/// Wraps data keys and unwraps them.
///
/// Idempotent: the same wrapped key always unwraps to the same data key, for as long as this sealer knows the key that
/// wrapped it. A future dropped midway has changed nothing.
#[async_trait]
pub trait Sealer: fmt::Debug + Send + Sync {
    /// Names the key that wraps now. Stored with everything that is sealed by it.
    fn key_id(&self) -> String;
    /// Whether this sealer can unwrap what a key wrapped.
    fn knows(&self, key_id: &str) -> bool;
    /// By the key that [`Sealer::key_id`] names.
    async fn wrap(&self, key: &DataKey) -> Result<Vec<u8>, VaultError>;
    /// [`VaultError::UnknownKey`] of a key it does not know; any other error where it was not this key that wrapped.
    async fn unwrap(&self, key_id: &str, wrapped: &[u8]) -> Result<DataKey, VaultError>;
}

impl DataKey {
    pub fn generate() -> Result<Self, VaultError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| VaultError::Random)?;
        Ok(Self(bytes))
    }

    /// `None` unless there are 32 of them.
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
