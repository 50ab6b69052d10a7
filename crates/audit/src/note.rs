//! Checkpoints: the size and root of a tenant's tree, signed, as text that can be stored anywhere.
//!
//! ```text
//!  burrow-audit/tenaaaaaaaaaaaaaaaaaaaa          origin: the tenant's log
//!  4711                                          size
//!  CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=  root hash
//!
//!  — burrow-audit Az3grl…                        key name, base64(key id (4) ‖ Ed25519 signature over the lines above)
//! ```
//!
//! This is the format of checkpoints and signed notes that transparency logs use (c2sp.org), including the format of
//! keys, so other tools can read them. The same tree always gives the same text.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use burrow_model::TenantId;
use data_encoding::{BASE64, HEXLOWER};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::tree::Hash;

/// The name of all our keys, which are distinguished by their ids.
const NAME: &str = "burrow-audit";
/// The origin's prefix before the tenant.
const ORIGIN: &str = "burrow-audit/";
/// Ed25519, in signed notes.
const ALGORITHM: u8 = 1;
/// Largest checkpoint in bytes: its lines, and the signatures of some witnesses.
pub const NOTE_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    #[error("not a checkpoint of an audit log")]
    Form,
    #[error("not a public key of an audit log (expected `burrow-audit+…+…`)")]
    KeyForm,
    #[error("the checkpoint is not signed by the key `{key}`")]
    NotSigned { key: String },
    #[error("the signature of the checkpoint is invalid")]
    BadSignature,
    #[error("could not {step} the key of the audit log at `{}`", .path.display())]
    KeyFile { step: &'static str, path: PathBuf, source: io::Error },
    #[error("the key of the audit log at `{}` is damaged", .path.display())]
    KeyDamaged { path: PathBuf },
}

/// The contents of a checkpoint, without its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub tenant: TenantId,
    pub size: u64,
    pub root: Hash,
}

impl Checkpoint {
    /// The lines that are signed.
    fn body(&self) -> String {
        format!("{ORIGIN}{}\n{}\n{}\n", self.tenant, self.size, BASE64.encode(&self.root.0))
    }

    /// Parses a note without checking its signatures: see [`PublicKey::verify`].
    pub fn read(note: &str) -> Result<Self, NoteError> {
        let (body, _) = parts(note)?;
        let mut lines = body.lines();
        let mut next = || lines.next().ok_or(NoteError::Form);
        let (origin, size, root) = (next()?, next()?, next()?);
        let tenant = origin.strip_prefix(ORIGIN).and_then(|tenant| tenant.parse().ok());
        // `+7` and `007` are not valid sizes.
        let size = size.parse().ok().filter(|number: &u64| number.to_string() == size);
        let root = BASE64.decode(root.as_bytes()).ok().and_then(|bytes| Hash::from_slice(&bytes));
        match (tenant, size, root) {
            (Some(tenant), Some(size), Some(root)) => Ok(Self { tenant, size, root }),
            _ => Err(NoteError::Form),
        }
    }
}

/// Splits a note into the signed lines and the signatures.
fn parts(note: &str) -> Result<(&str, &str), NoteError> {
    if note.len() > NOTE_BYTES_MAX {
        return Err(NoteError::Form);
    }
    let at = note.rfind("\n\n").ok_or(NoteError::Form)?;
    let (body, signatures) = (&note[..=at], &note[at + 2..]);
    if body.len() < 2 || !signatures.ends_with('\n') {
        return Err(NoteError::Form);
    }
    Ok((body, signatures))
}

/// A public key as text: `burrow-audit+<key id>+<base64>`.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    fn id(&self) -> [u8; 4] {
        let mut bytes = NAME.as_bytes().to_vec();
        bytes.extend([b'\n', ALGORITHM]);
        bytes.extend(self.0);
        let hash = digest(&SHA256, &bytes);
        let mut id = [0; 4];
        id.copy_from_slice(&hash.as_ref()[..4]);
        id
    }

    /// Parses a note and checks that this key signed it.
    pub fn verify(&self, note: &str) -> Result<Checkpoint, NoteError> {
        let checkpoint = Checkpoint::read(note)?;
        let (body, signatures) = parts(note)?;
        for line in signatures.lines() {
            let Some((name, signature)) = line.strip_prefix("— ").and_then(|line| line.split_once(' '))
            else {
                return Err(NoteError::Form);
            };
            let bytes = BASE64.decode(signature.as_bytes()).map_err(|_| NoteError::Form)?;
            if name == NAME && bytes.starts_with(&self.id()) {
                let key = UnparsedPublicKey::new(&ED25519, &self.0);
                key.verify(body.as_bytes(), &bytes[4..]).map_err(|_| NoteError::BadSignature)?;
                return Ok(checkpoint);
            }
        }
        Err(NoteError::NotSigned { key: self.to_string() })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ALGORITHM];
        bytes.extend(self.0);
        write!(f, "{NAME}+{}+{}", HEXLOWER.encode(&self.id()), BASE64.encode(&bytes))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for PublicKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let rest = text.trim().strip_prefix(NAME).and_then(|rest| rest.strip_prefix('+'));
        let (id, key) = rest.and_then(|rest| rest.split_once('+')).ok_or(NoteError::KeyForm)?;
        let bytes = BASE64.decode(key.as_bytes()).map_err(|_| NoteError::KeyForm)?;
        let [ALGORITHM, key @ ..] = bytes.as_slice() else { return Err(NoteError::KeyForm) };
        let key = Self(key.try_into().map_err(|_| NoteError::KeyForm)?);
        if HEXLOWER.encode(&key.id()) == id { Ok(key) } else { Err(NoteError::KeyForm) }
    }
}

/// The private key that signs checkpoints. Created once; it never leaves its file.
pub struct SigningKey {
    pair: Ed25519KeyPair,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

impl SigningKey {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Self { pair: pair.expect("any 32 bytes are a seed of Ed25519") }
    }

    /// Opens the key in a file; creates a new key, readable by its owner only, if the file does not exist.
    pub fn open(path: &Path) -> Result<Self, NoteError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).ok_or_else(|| NoteError::KeyDamaged { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path),
            Err(source) => Err(NoteError::KeyFile { step: "read", path: path.to_owned(), source }),
        }
    }

    fn make(path: &Path) -> Result<Self, NoteError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the kernel's random generator answers");
        let key = Self::from_seed(&seed);
        let mut bytes = vec![ALGORITHM];
        bytes.extend(seed);
        let id = HEXLOWER.encode(&key.public().id());
        let text = format!("PRIVATE+KEY+{NAME}+{id}+{}\n", BASE64.encode(&bytes));
        let written = write_new(path, text.as_bytes());
        written.map_err(|source| NoteError::KeyFile { step: "write", path: path.to_owned(), source })?;
        Ok(key)
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.trim_end().strip_prefix("PRIVATE+KEY+")?.strip_prefix(NAME)?.strip_prefix('+')?;
        let (id, key) = rest.split_once('+')?;
        let bytes = BASE64.decode(key.as_bytes()).ok()?;
        let [ALGORITHM, seed @ ..] = bytes.as_slice() else { return None };
        let key = Self::from_seed(seed.try_into().ok()?);
        (HEXLOWER.encode(&key.public().id()) == id).then_some(key)
    }

    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Signs a checkpoint and returns the note.
    pub fn sign(&self, checkpoint: &Checkpoint) -> String {
        let body = checkpoint.body();
        let mut signature = self.public().id().to_vec();
        signature.extend(self.pair.sign(body.as_bytes()).as_ref());
        format!("{body}\n— {NAME} {}\n", BASE64.encode(&signature))
    }
}

/// Writes the complete file durably, or none: an incomplete key file would be permanent.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tree::leaf_hash;

    fn checkpoint() -> Checkpoint {
        let tenant = "tenaaaaaaaaaaaaaaaaaaaa".parse().unwrap();
        Checkpoint { tenant, size: 4711, root: leaf_hash(b"x") }
    }

    #[test]
    fn a_checkpoint_is_parsed_back_and_verified_by_its_key() {
        let key = SigningKey::from_seed(&[7; 32]);
        let note = key.sign(&checkpoint());
        assert_eq!(key.public().verify(&note).unwrap(), checkpoint());
        let shown: PublicKey = key.public().to_string().parse().unwrap();
        assert_eq!(shown, key.public());
    }

    #[test]
    fn a_checkpoint_of_another_key_or_with_any_byte_changed_is_refused() {
        let key = SigningKey::from_seed(&[7; 32]);
        let note = key.sign(&checkpoint());
        let other = SigningKey::from_seed(&[8; 32]).public();
        assert!(matches!(other.verify(&note), Err(NoteError::NotSigned { .. })));
        for at in 0..note.len() {
            let mut bytes = note.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(key.public().verify(&text).is_err(), "byte {at}: {text}");
            }
        }
    }

    #[test]
    fn text_that_is_not_a_checkpoint_is_refused() {
        for text in ["", "\n\n", "a\n\nb", "burrow-audit/x\n1\nAA==\n\n— a b\n"] {
            assert!(Checkpoint::read(text).is_err(), "{text:?}");
        }
        let note = SigningKey::from_seed(&[7; 32]).sign(&checkpoint());
        for size in ["+4711", "04711", "4711 ", "-1"] {
            assert!(Checkpoint::read(&note.replacen("4711", size, 1)).is_err(), "{size}");
        }
    }

    #[test]
    fn the_key_is_created_once_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = SigningKey::open(&path).unwrap().public();
        assert_eq!(SigningKey::open(&path).unwrap().public(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "PRIVATE+KEY+burrow-audit+00000000+AAAA").unwrap();
        assert!(matches!(SigningKey::open(&path), Err(NoteError::KeyDamaged { .. })));
    }
}
