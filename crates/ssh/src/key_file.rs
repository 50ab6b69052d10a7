//! A key pair in its own file, created once: a host key, or the key that a user logs in with.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, HashAlg, PrivateKey};

/// A key file is less than a page; a larger file is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// An ed25519 key pair.
#[derive(Clone)]
pub struct KeyFile {
    pub(crate) key: PrivateKey,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyFile").field(&self.fingerprint()).finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("could not {step} `{}`", .path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is accessible to other users", .path.display())]
    Open { path: PathBuf },
    #[error("`{}` is not a private key in OpenSSH format", .path.display())]
    Bad { path: PathBuf, source: russh::keys::ssh_key::Error },
    #[error("could not generate a key")]
    Generate { source: russh::keys::ssh_key::Error },
}

impl KeyFile {
    /// Reads the key in `path`. If the file does not exist, a key is generated.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        match fs::metadata(path) {
            Ok(metadata) => Self::read(path, &metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::generate(path),
            Err(source) => Err(KeyFileError::File { step: "inspect", path: path.to_owned(), source }),
        }
    }

    fn read(path: &Path, metadata: &fs::Metadata) -> Result<Self, KeyFileError> {
        let failed = |source| KeyFileError::File { step: "read", path: path.to_owned(), source };
        if metadata.mode() & 0o077 != 0 {
            return Err(KeyFileError::Open { path: path.to_owned() });
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let key = PrivateKey::from_openssh(&text)
            .map_err(|source| KeyFileError::Bad { path: path.to_owned(), source })?;
        Ok(Self { key })
    }

    /// The file is complete and synced before it gets its name: a crash leaves no partial key behind, and if two processes
    /// generate a key at the same time, both use the first one.
    fn generate(path: &Path) -> Result<Self, KeyFileError> {
        let failed = |source| KeyFileError::File { step: "write", path: path.to_owned(), source };
        let mut random = russh::keys::key::safe_rng();
        let key = PrivateKey::random(&mut random, Algorithm::Ed25519)
            .map_err(|source| KeyFileError::Generate { source })?;
        let text = key.to_openssh(LineEnding::LF).map_err(|source| KeyFileError::Generate { source })?;
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let linked = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::hard_link(&temporary, path)
        };
        let linked = linked();
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let metadata = fs::metadata(path).map_err(failed)?;
                return Self::read(path, &metadata);
            }
            linked => linked.map_err(failed)?,
        }
        let synced = path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all());
        synced.map_err(failed)?;
        Ok(Self { key })
    }

    /// `ssh-ed25519 AAAA…`, as it follows the host in a line of `known_hosts`.
    pub fn public(&self) -> String {
        let mut public = self.key.public_key().clone();
        public.set_comment("");
        public.to_openssh().expect("an ed25519 key can be written").trim_end().to_owned()
    }

    /// `SHA256:…`, as clients show it.
    pub fn fingerprint(&self) -> String {
        self.key.public_key().fingerprint(HashAlg::Sha256).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_generated_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host_key");
        let generated = KeyFile::open(&path).unwrap();
        assert!(generated.public().starts_with("ssh-ed25519 AAAA"), "{}", generated.public());
        assert!(generated.fingerprint().starts_with("SHA256:"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(KeyFile::open(&path).unwrap().public(), generated.public());
        assert_eq!(
            KeyFile::generate(&path).unwrap().public(),
            generated.public(),
            "another process was first"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyFileError::Open { .. })));
        fs::write(&path, "not a key").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyFileError::Bad { .. })));
    }
}
