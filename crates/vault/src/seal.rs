//! Encrypts (seals) values and decrypts (opens) them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::{SecretBytes, TenantId};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{DataKey, Sealer, VaultError};

/// Unwrapped data keys kept in RAM: there is one for each start of a daemon that sealed a value.
const KEYS_KEPT: usize = 64;

/// Part of the authenticated data, so that nothing sealed for another purpose or in a later format can be opened
/// here.
const FORMAT: &str = "burrow-vault-1";

/// Identifies a value: it can be opened only under the label under which it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    pub tenant: &'a TenantId,
    pub kind: Kind,
    pub name: &'a str,
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Secret,
    /// The key of a lineage's certificate authority.
    Authority,
    /// Headers that are set on a sandbox's requests.
    Headers,
}

/// An encrypted value with its wrapped data key. Stored as JSON.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret {
    /// The id of the key that wrapped the data key.
    pub key: String,
    #[serde(with = "base64")]
    wrapped: Vec<u8>,
    #[serde(with = "base64")]
    nonce: Vec<u8>,
    #[serde(with = "base64")]
    text: Vec<u8>,
}

/// Encrypts and decrypts values. Clones share one state.
#[derive(Clone)]
pub struct Vault {
    inner: Arc<Inner>,
}

struct Inner {
    /// The first one seals; a sealer opens values whose key it knows.
    sealers: Vec<Arc<dyn Sealer>>,
    /// The current data key, wrapped and plain.
    current: tokio::sync::Mutex<Option<(Vec<u8>, DataKey)>>,
    /// Data keys that were unwrapped before, by their wrapped form.
    known: Mutex<VecDeque<(Vec<u8>, DataKey)>>,
}

// === impl Vault ===

impl Vault {
    /// `first` seals; the others only open values that they sealed before.
    pub fn new(first: Arc<dyn Sealer>, others: Vec<Arc<dyn Sealer>>) -> Self {
        let sealers = std::iter::once(first).chain(others).collect();
        let inner = Inner { sealers, current: tokio::sync::Mutex::default(), known: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The id of the key that seals now.
    pub fn key_id(&self) -> String {
        self.inner.sealers[0].key_id()
    }

    /// Whether a value that was sealed with this key can be opened.
    pub fn knows(&self, key_id: &str) -> bool {
        self.inner.sealers.iter().any(|sealer| sealer.knows(key_id))
    }

    pub async fn seal(&self, label: &Label<'_>, value: &SecretBytes) -> Result<SealedSecret, VaultError> {
        let (wrapped, key) = self.current().await?;
        let mut nonce = vec![0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| VaultError::Random)?;
        let mut text = value.expose().to_vec();
        let aad = Aad::from(label.bytes());
        // Encrypted in place: afterwards the buffer holds no plaintext.
        cipher(&key)
            .seal_in_place_append_tag(nonce_of(&nonce)?, aad, &mut text)
            .map_err(|_| label.forged())?;
        Ok(SealedSecret { key: self.key_id(), wrapped, nonce, text })
    }

    pub async fn open(&self, label: &Label<'_>, sealed: &SealedSecret) -> Result<SecretBytes, VaultError> {
        let key = self.unwrap(sealed).await?;
        let mut text = Zeroizing::new(sealed.text.clone());
        let aad = Aad::from(label.bytes());
        let plain = cipher(&key)
            .open_in_place(nonce_of(&sealed.nonce).map_err(|_| label.forged())?, aad, &mut text)
            .map_err(|_| label.forged())?;
        Ok(SecretBytes::new(plain.to_vec()))
    }

    async fn current(&self) -> Result<(Vec<u8>, DataKey), VaultError> {
        let mut current = self.inner.current.lock().await;
        if let Some(current) = &*current {
            return Ok(current.clone());
        }
        let key = DataKey::generate()?;
        let wrapped = self.inner.sealers[0].wrap(&key).await?;
        self.keep(&wrapped, &key);
        Ok(current.insert((wrapped, key)).clone())
    }

    async fn unwrap(&self, sealed: &SealedSecret) -> Result<DataKey, VaultError> {
        let known = self.known().iter().find(|(wrapped, _)| *wrapped == sealed.wrapped).cloned();
        if let Some((_, key)) = known {
            return Ok(key);
        }
        let unknown = || VaultError::UnknownKey { key: shown(&sealed.key) };
        let sealer =
            self.inner.sealers.iter().find(|sealer| sealer.knows(&sealed.key)).ok_or_else(unknown)?;
        let key = sealer.unwrap(&sealed.key, &sealed.wrapped).await?;
        self.keep(&sealed.wrapped, &key);
        Ok(key)
    }

    fn keep(&self, wrapped: &[u8], key: &DataKey) {
        let mut known = self.known();
        known.truncate(KEYS_KEPT - 1);
        known.push_front((wrapped.to_vec(), key.clone()));
    }

    fn known(&self) -> std::sync::MutexGuard<'_, VecDeque<(Vec<u8>, DataKey)>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("key", &self.key_id()).finish_non_exhaustive()
    }
}

fn cipher(key: &DataKey) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("a data key has the cipher's length"))
}

fn nonce_of(bytes: &[u8]) -> Result<Nonce, VaultError> {
    Nonce::try_assume_unique_for_key(bytes).map_err(|_| VaultError::Random)
}

/// Shortens and escapes text from the catalog, which may be damaged.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_default).collect()
}

/// Encrypts a data key with another key, for sealers that hold the key themselves.
pub(crate) fn wrap_by(key: &DataKey, id: &str, inner: &DataKey) -> Result<Vec<u8>, VaultError> {
    let mut wrapped = vec![0; NONCE_LEN];
    getrandom::fill(&mut wrapped).map_err(|_| VaultError::Random)?;
    let mut text = inner.expose().to_vec();
    let nonce = nonce_of(&wrapped)?;
    cipher(key)
        .seal_in_place_append_tag(nonce, Aad::from(format!("{FORMAT} key {id}")), &mut text)
        .map_err(|_| VaultError::Random)?;
    wrapped.append(&mut text);
    Ok(wrapped)
}

/// Reverses [`wrap_by`]; `None` if this key did not wrap these bytes.
pub(crate) fn unwrap_by(key: &DataKey, id: &str, wrapped: &[u8]) -> Option<DataKey> {
    let (nonce, text) = wrapped.split_at_checked(NONCE_LEN)?;
    let mut text = Zeroizing::new(text.to_vec());
    let aad = Aad::from(format!("{FORMAT} key {id}"));
    let plain = cipher(key).open_in_place(nonce_of(nonce).ok()?, aad, &mut text).ok()?;
    DataKey::from_bytes(plain)
}

// === impl Label ===

impl Label<'_> {
    /// Encodes every part with its length, so that different labels have different bytes.
    fn bytes(&self) -> Vec<u8> {
        let version = self.version.to_string();
        let parts = [FORMAT, self.tenant.as_str(), self.kind.as_str(), self.name, &version];
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }

    fn forged(&self) -> VaultError {
        VaultError::Forged { label: self.to_string() }
    }

    /// Parses the value that the catalog holds under this label.
    pub fn parse(&self, text: &str) -> Result<SealedSecret, VaultError> {
        // The cause is omitted: it could quote the value.
        serde_json::from_str(text).map_err(|_| VaultError::Damaged { label: self.to_string() })
    }
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`, version {}", self.kind.as_str(), self.name, self.version)
    }
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Authority => "authority",
            Self::Headers => "headers",
        }
    }
}

// === impl SealedSecret ===

impl SealedSecret {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("what is sealed is JSON")
    }
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSecret").field("key", &self.key).finish_non_exhaustive()
    }
}

mod base64 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&data_encoding::BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        data_encoding::BASE64.decode(text.as_bytes()).map_err(|_| D::Error::custom("not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyFile;

    const CANARY: &str = "sk-canary-0123456789";

    fn vault(directory: &tempfile::TempDir) -> Vault {
        Vault::new(
            Arc::new(KeyFile::open_or_create(&directory.path().join("vault.key")).unwrap()),
            Vec::new(),
        )
    }

    fn value() -> SecretBytes {
        SecretBytes::new(CANARY.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_sealed_value_opens_and_reveals_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (vault, tenant) = (vault(&directory), TenantId::generate());
        let label = Label { tenant: &tenant, kind: Kind::Secret, name: "openai", version: 3 };
        let sealed = vault.seal(&label, &value()).await.unwrap();
        let again = vault.seal(&label, &value()).await.unwrap();
        assert_ne!(sealed.text, again.text, "a nonce is used once");
        let text = sealed.to_text();
        assert!(!text.contains("canary") && !format!("{sealed:?}{vault:?}").contains("canary"));
        assert!(!text.contains(&data_encoding::BASE64.encode(CANARY.as_bytes())));
        // With a vault that has not seen the data key before.
        let later = self::vault(&directory);
        assert_eq!(later.open(&label, &label.parse(&text).unwrap()).await.unwrap(), value());
    }

    #[tokio::test]
    async fn a_swapped_row_does_not_open() {
        let directory = tempfile::tempdir().unwrap();
        let (vault, tenant, other) = (vault(&directory), TenantId::generate(), TenantId::generate());
        let label = Label { tenant: &tenant, kind: Kind::Secret, name: "a", version: 1 };
        let sealed = vault.seal(&label, &value()).await.unwrap();
        for swapped in [
            Label { tenant: &other, ..label.clone() },
            Label { kind: Kind::Authority, ..label.clone() },
            Label { name: "b", ..label.clone() },
            Label { version: 2, ..label.clone() },
        ] {
            let error = vault.open(&swapped, &sealed).await.unwrap_err();
            assert!(matches!(error, VaultError::Forged { .. }), "{swapped}: {error}");
            assert!(!error.to_string().contains("canary"));
        }
    }

    #[tokio::test]
    async fn every_changed_bit_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let (vault, tenant) = (vault(&directory), TenantId::generate());
        let label = Label { tenant: &tenant, kind: Kind::Secret, name: "a", version: 1 };
        let sealed = vault.seal(&label, &value()).await.unwrap();
        for index in 0..sealed.text.len() {
            let mut changed = sealed.clone();
            changed.text[index] ^= 1;
            assert!(vault.open(&label, &changed).await.is_err(), "byte {index}");
        }
        for part in ["nonce", "wrapped", "key", "short"] {
            let mut changed = sealed.clone();
            match part {
                "nonce" => changed.nonce[0] ^= 1,
                "wrapped" => changed.wrapped[20] ^= 1,
                // The wrapped key is cached, so only another vault asks for the key by this id.
                "key" => changed.key = "file:0000000000000000".to_owned(),
                _ => changed.nonce.truncate(3),
            }
            let fresh = self::vault(&directory);
            assert!(fresh.open(&label, &changed).await.is_err(), "{part}");
        }
        for bad in ["", "{}", "null", r#"{"key":"k","wrapped":"?","nonce":"","text":""}"#] {
            assert!(matches!(label.parse(bad), Err(VaultError::Damaged { .. })), "{bad}");
        }
    }

    #[tokio::test]
    async fn another_key_opens_nothing_and_an_extended_file_opens_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        let (vault, tenant) = (vault(&directory), TenantId::generate());
        let label = Label { tenant: &tenant, kind: Kind::Authority, name: "spc", version: 1 };
        let sealed = vault.seal(&label, &value()).await.unwrap();
        let stranger = tempfile::tempdir().unwrap();
        let error = self::vault(&stranger).open(&label, &sealed).await.unwrap_err();
        assert!(matches!(error, VaultError::UnknownKey { .. }), "{error}");
        // A new key above the old one: it seals, the old one still opens.
        let old = std::fs::read_to_string(&path).unwrap();
        let new = data_encoding::BASE64.encode(DataKey::generate().unwrap().expose());
        std::fs::write(&path, format!("{new}\n{old}")).unwrap();
        let renewed = self::vault(&directory);
        assert_ne!(renewed.key_id(), vault.key_id());
        assert_eq!(renewed.open(&label, &sealed).await.unwrap(), value());
        let resealed = renewed.seal(&label, &value()).await.unwrap();
        assert_eq!(resealed.key, renewed.key_id());
        // Without the old line, values sealed with the new key still open, others do not.
        std::fs::write(&path, format!("{new}\n")).unwrap();
        let last = self::vault(&directory);
        assert_eq!(last.open(&label, &resealed).await.unwrap(), value());
        assert!(last.open(&label, &sealed).await.is_err());
    }
}
