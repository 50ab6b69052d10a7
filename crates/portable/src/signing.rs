//! Who made a file: signatures over identities.
//!
//! Processes are brought back by a program with root's powers, which believes what was written down of them. So they are
//! taken from nobody but hosts whose key is trusted; files need no such trust.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD as BASE64;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::{Identity, PortableError};

/// Before the identity in what is signed, so that no signature for another purpose passes for one of these.
const PURPOSE: &[u8] = b"burrow-export-v1\n";

const PREFIX: &str = "burrow-export+";

/// The key of a host, with which it signs what it exports.
pub struct ExportKey(Ed25519KeyPair);

/// What others know of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// A signature with the key it can be checked by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    pub key: String,
    pub signature: String,
}

impl ExportKey {
    /// The key in this file, which is made if there is none.
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

    /// Of 32 bytes.
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
    /// The key that made it over this identity; `None` where none did.
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

/// Whole and durable, or not there.
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
