//! The default sealer: keys in a file that only root can read.
//!
//! One key per line, 32 random bytes in base64; lines that begin with `#` are comments. The first key seals, all of
//! them unseal. A key is identified by its fingerprint, so lines can be reordered, and a wrong file is distinguished
//! from a damaged one.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::seal::{unwrap_by, wrap_by};
use crate::{DataKey, Sealer, VaultError};

/// Largest number of keys in one file: the current one, and old ones until every secret is sealed again.
pub const KEY_FILE_KEYS_MAX: usize = 64;

/// Many times the size of that many keys.
const FILE_BYTES_MAX: u64 = 64 * 1024;

const FINGERPRINT_BYTES: usize = 8;

pub struct KeyFile {
    keys: Vec<(String, DataKey)>,
}

impl KeyFile {
    /// Opens the key file; creates one with a random key if it does not exist.
    pub fn open_or_create(path: &Path) -> Result<Self, VaultError> {
        if !path.exists() {
            make(path).map_err(failed("make", path))?;
        }
        Self::open(path)
    }

    /// Refuses a file that other users can read: they could decrypt what it seals.
    pub fn open(path: &Path) -> Result<Self, VaultError> {
        let file = File::open(path).map_err(failed("open", path))?;
        let about = file.metadata().map_err(failed("inspect", path))?;
        if about.mode() & 0o077 != 0 {
            return Err(VaultError::KeyFileOpen { path: path.to_owned(), mode: about.mode() & 0o777 });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed("read", path))?;
        let mut keys = Vec::new();
        for (line, content) in (1..).zip(text.lines().map(str::trim)) {
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let bad = || VaultError::KeyFileLine { path: path.to_owned(), line };
            let bytes = Zeroizing::new(BASE64.decode(content.as_bytes()).map_err(|_| bad())?);
            let key = DataKey::from_bytes(&bytes).ok_or_else(bad)?;
            keys.push((name_of(&key), key));
        }
        if keys.is_empty() || keys.len() > KEY_FILE_KEYS_MAX {
            return Err(VaultError::KeyFileCount { path: path.to_owned(), max: KEY_FILE_KEYS_MAX });
        }
        Ok(Self { keys })
    }
}

/// The file is complete and synced under a temporary name before it is renamed: a truncated key could seal values
/// that nothing can decrypt.
fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // The parent of a bare file name is empty, which is not a usable directory.
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    fs::create_dir_all(directory)?;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let key = DataKey::generate().map_err(|_| io::ErrorKind::Other)?;
    let line = Zeroizing::new(BASE64.encode(key.expose()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    writeln!(
        file,
        "# Opens every secret of this daemon. Keep a copy of it apart from backups; see docs/secrets.md.\n{}",
        line.as_str()
    )?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(directory)?.sync_all()
}

fn failed<'a>(step: &'static str, path: &'a Path) -> impl Fn(io::Error) -> VaultError + 'a {
    move |source| VaultError::KeyFile { step, path: path.to_owned(), source }
}

fn name_of(key: &DataKey) -> String {
    let digest = Sha256::new().chain_update(b"burrow-vault-key-id\0").chain_update(key.expose()).finalize();
    format!("file:{}", HEXLOWER.encode(&digest[..FINGERPRINT_BYTES]))
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

#[async_trait]
impl Sealer for KeyFile {
    fn key_id(&self) -> String {
        self.keys[0].0.clone()
    }

    fn knows(&self, key_id: &str) -> bool {
        self.keys.iter().any(|(id, _)| id == key_id)
    }

    async fn wrap(&self, key: &DataKey) -> Result<Vec<u8>, VaultError> {
        let (id, own) = &self.keys[0];
        wrap_by(own, id, key)
    }

    async fn unwrap(&self, key_id: &str, wrapped: &[u8]) -> Result<DataKey, VaultError> {
        let unknown = || VaultError::UnknownKey { key: key_id.to_owned() };
        let (id, own) = self.keys.iter().find(|(id, _)| id == key_id).ok_or_else(unknown)?;
        unwrap_by(own, id, wrapped).ok_or_else(|| VaultError::Forged { label: "a data key".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_created_once_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etc/vault.key");
        let first = KeyFile::open_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(KeyFile::open_or_create(&path).unwrap().key_id(), first.key_id());
        let text = fs::read_to_string(&path).unwrap();
        let key = text.lines().last().unwrap();
        assert!(!format!("{first:?}").contains(key));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        KeyFile::open_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o666, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::open_or_create(&path).unwrap_err();
            assert!(matches!(error, VaultError::KeyFileOpen { .. }), "{mode:o}: {error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        KeyFile::open(&path).unwrap();
    }

    #[test]
    fn an_invalid_key_is_reported_by_line_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        KeyFile::open_or_create(&path).unwrap();
        for (text, line) in [("# x\n\nnonsense\n", Some(3)), ("c2hvcnQ=\n", Some(1)), ("# nothing\n", None)] {
            fs::write(&path, text).unwrap();
            let error = KeyFile::open(&path).unwrap_err();
            match line {
                Some(line) => assert!(error.to_string().starts_with(&format!("line {line} ")), "{error}"),
                None => assert!(matches!(error, VaultError::KeyFileCount { .. }), "{error}"),
            }
            assert!(!error.to_string().contains("nonsense"), "{error}");
        }
    }

    #[tokio::test]
    async fn it_meets_the_contract() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| KeyFile::open_or_create(&directory.path().join(name)).unwrap();
        crate::conformance::check(&open("a"), &open("a"), &open("b")).await;
    }
}
