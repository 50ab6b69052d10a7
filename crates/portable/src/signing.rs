//! Signatures of exporting hosts over the identities of files.
//!
//! Processes are restored by a program with root privileges, which trusts their dump. So they are
//! accepted only from hosts whose key is trusted; files of a sandbox do not require that trust.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD as BASE64;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::{Identity, PortableError};

/// Precedes the identity in the signed message, so that signatures for other purposes are not valid here.
const PURPOSE: &[u8] = b"burrow-export-v1\n";

const PREFIX: &str = "burrow-export+";

/// The key with which a host signs its exports.
pub struct ExportKey(Ed25519KeyPair);

/// The public part of a host's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// A signature and the key that verifies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    pub key: String,
    pub signature: String,
}

impl ExportKey {
    /// Reads the key from this file, or creates it.
    pub fn open(path: &Path) -> Result<Self, PortableError> {
        let failed = |step| {
            let path = path.display().to_string();
            move |source| PortableError::KeyFile { step, path, source }
        };
        match fs::read(path) {
            Ok(seed) => {
                Self::from_seed(&seed).ok_or(io::ErrorKind::InvalidData.into()).map_err(failed("use"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut seed = [0; 32];
                getrandom::fill(&mut seed).map_err(io::Error::other).map_err(failed("make"))?;
                write_new(path, &seed).map_err(failed("write"))?;
                Self::from_seed(&seed).ok_or(io::ErrorKind::InvalidData.into()).map_err(failed("use"))
            }
            Err(error) => Err(failed("read")(error)),
        }
    }

    /// From 32 bytes.
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed).ok().map(Self)
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    pub fn sign(&self, identity: &Identity) -> Signature {
        let signature = self.0.sign(&message(identity));
        Signature { key: self.public().to_string(), signature: BASE64.encode(signature.as_ref()) }
    }
}

impl Signature {
    /// The key, if the signature over this identity is valid; otherwise `None`.
    pub fn verify(&self, identity: &Identity) -> Option<PublicKey> {
        let key: PublicKey = self.key.parse().ok()?;
        let signature = BASE64.decode(self.signature.as_bytes()).ok()?;
        UnparsedPublicKey::new(&ED25519, key.0).verify(&message(identity), &signature).ok()?;
        Some(key)
    }
}

fn message(identity: &Identity) -> Vec<u8> {
    [PURPOSE, identity.as_bytes()].concat()
}

/// Creates the file completely and durably, or not at all.
fn write_new(path: &Path, seed: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(seed)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

impl FromStr for PublicKey {
    type Err = PortableError;

    fn from_str(text: &str) -> Result<Self, PortableError> {
        let bytes = text.strip_prefix(PREFIX).and_then(|text| BASE64.decode(text.as_bytes()).ok());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(PortableError::KeyForm)
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}", BASE64.encode(&self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Debug for ExportKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExportKey").field(&self.public()).finish()
    }
}
