//! Encryption with age on the client: the daemon never sees the keys.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use age::secrecy::SecretString;
use age::{Decryptor, Encryptor, Identity, Recipient};
use clap::Args;
use zeroize::Zeroizing;

use crate::failure::{Failure, Stop};

/// A file with a passphrase or with identities.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Maximum work factor of a passphrase: that of other programs, up to some seconds.
const WORK_FACTOR_MAX: u8 = 22;

/// Recipients of the encryption.
#[derive(Debug, Args)]
pub(crate) struct EncryptFlags {
    /// Encrypt with age for this recipient (age1…); may be repeated
    #[arg(long, value_name = "AGE1", conflicts_with = "passphrase_file")]
    recipient: Vec<String>,
    /// Encrypt with age and the passphrase in the first line of this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    passphrase_file: Option<PathBuf>,
}

/// Keys for the decryption.
#[derive(Debug, Args)]
pub(crate) struct DecryptFlags {
    /// Decrypt with the age identities in this file (AGE-SECRET-KEY-1…); may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    identity: Vec<PathBuf>,
    /// Decrypt with the passphrase in the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "identity", value_hint = clap::ValueHint::FilePath)]
    passphrase_file: Option<PathBuf>,
}

impl EncryptFlags {
    /// `None`: no encryption.
    pub(crate) fn encryptor(&self) -> Result<Option<Encryptor>, Stop> {
        if let Some(path) = &self.passphrase_file {
            return Ok(Some(Encryptor::with_user_passphrase(passphrase(path)?)));
        }
        if self.recipient.is_empty() {
            return Ok(None);
        }
        let mut recipients = Vec::with_capacity(self.recipient.len());
        for text in &self.recipient {
            let parsed = text.parse::<age::x25519::Recipient>();
            recipients.push(parsed.map_err(|why| {
                Failure::new(format!("could not encrypt for `{text}`: {why}"))
                    .hint("`age-keygen` prints the recipient (age1…) of a new identity")
            })?);
        }
        let given = recipients.iter().map(|recipient| recipient as &dyn Recipient);
        let made = Encryptor::with_recipients(given);
        Ok(Some(
            made.map_err(|error| Failure::new("could not encrypt for these recipients").because(&error))?,
        ))
    }
}

impl DecryptFlags {
    /// The identities that decrypt the file. `None`: the file is not encrypted.
    pub(crate) fn identities(&self) -> Result<Option<Vec<Box<dyn Identity + Send>>>, Stop> {
        if let Some(path) = &self.passphrase_file {
            let mut identity = age::scrypt::Identity::new(passphrase(path)?);
            identity.set_max_work_factor(WORK_FACTOR_MAX);
            return Ok(Some(vec![Box::new(identity)]));
        }
        if self.identity.is_empty() {
            return Ok(None);
        }
        let mut identities: Vec<Box<dyn Identity + Send>> = Vec::new();
        for path in &self.identity {
            let text = read_small(path)?;
            let unusable = |why: &str| {
                Failure::new(format!("could not use the identities in `{}`: {why}", path.display()))
                    .hint("`age-keygen` writes such a file")
            };
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            for line in lines {
                let identity: age::x25519::Identity = line.parse().map_err(|why: &str| unusable(why))?;
                identities.push(Box::new(identity));
            }
        }
        Ok(Some(identities))
    }
}

/// Encrypts a stream. Blocks.
pub(crate) fn encrypt(encryptor: Encryptor, from: &mut impl Read, into: impl Write) -> io::Result<()> {
    let mut sealed = encryptor.wrap_output(into)?;
    io::copy(from, &mut sealed)?;
    sealed.finish()?.flush()
}

/// Decrypts a stream. Blocks.
pub(crate) fn decrypt(
    identities: &[Box<dyn Identity + Send>],
    from: impl Read,
    into: &mut impl Write,
) -> io::Result<()> {
    let refused = |error: age::DecryptError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let decryptor = Decryptor::new_buffered(BufReader::new(from)).map_err(refused)?;
    let known = identities.iter().map(|identity| identity.as_ref() as &dyn Identity);
    let mut opened = decryptor.decrypt(known).map_err(refused)?;
    io::copy(&mut opened, into)?;
    into.flush()
}

fn passphrase(path: &Path) -> Result<SecretString, Stop> {
    let text = read_small(path)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(Failure::new(format!("the first line of `{}` is empty", path.display())).into());
    }
    Ok(SecretString::from(line.to_owned()))
}

fn read_small(path: &Path) -> Result<Zeroizing<String>, Stop> {
    let mut text = Zeroizing::new(String::new());
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| Failure::new(format!("could not read `{}`", path.display())).because(&error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(recipient: &str) -> EncryptFlags {
        EncryptFlags { recipient: vec![recipient.to_owned()], passphrase_file: None }
    }

    #[test]
    fn only_the_recipient_can_decrypt() {
        use age::secrecy::ExposeSecret as _;
        let folder = tempfile::tempdir().unwrap();
        let (ours, others) = (age::x25519::Identity::generate(), age::x25519::Identity::generate());
        let files = [&ours, &others].map(|identity| {
            let path = folder.path().join(identity.to_public().to_string());
            std::fs::write(&path, format!("# mine\n{}\n", identity.to_string().expose_secret())).unwrap();
            DecryptFlags { identity: vec![path], passphrase_file: None }.identities().unwrap().unwrap()
        });
        let plain = vec![7; 300_000];
        let mut sealed = Vec::new();
        let encryptor = flags(&ours.to_public().to_string()).encryptor().unwrap().unwrap();
        encrypt(encryptor, &mut plain.as_slice(), &mut sealed).unwrap();
        assert!(sealed.starts_with(b"age-encryption.org/v1"));
        let mut opened = Vec::new();
        decrypt(&files[0], sealed.as_slice(), &mut opened).unwrap();
        assert_eq!(opened, plain);
        assert!(decrypt(&files[1], sealed.as_slice(), &mut Vec::new()).is_err());
        sealed.truncate(sealed.len() - 1);
        assert!(decrypt(&files[0], sealed.as_slice(), &mut Vec::new()).is_err(), "it was cut off");
    }

    #[test]
    fn a_passphrase_is_the_first_line_and_a_recipient_is_an_age_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passphrase");
        std::fs::write(&path, "correct horse\nsecond line\n").unwrap();
        assert!(passphrase(&path).is_ok());
        std::fs::write(&path, "\n").unwrap();
        assert!(passphrase(&path).is_err() && passphrase(&folder.path().join("missing")).is_err());
        assert!(flags("age1nonsense").encryptor().is_err());
        let nothing = EncryptFlags { recipient: Vec::new(), passphrase_file: None };
        assert!(nothing.encryptor().unwrap().is_none());
    }
}
