//! Digests, and the two types that identify layers.
//!
//! A [`Digest`] identifies bytes. A [`DiffId`] is the digest of a layer's tar before compression. A [`ChainId`]
//! identifies the content of a directory after a layer was applied on top of all layers below it, so layers are
//! stored by it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::ImageError;

/// A SHA-256. Other algorithms are refused: registries use none, and weak ones must not become acceptable again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The digest of a layer's uncompressed tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiffId(pub Digest);

/// Identifies the result of a stack of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChainId(pub Digest);

/// Computes a [`Digest`] piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

const ALGORITHM: &str = "sha256:";

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits, without the algorithm. Safe as a file name.
    pub fn hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let refused = || ImageError::Digest { text: crate::error::shortened(text) };
        let hex = text.strip_prefix(ALGORITHM).ok_or_else(refused)?;
        // Lower case only, as the specification requires: two spellings of one digest would be two names.
        let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).map_err(|_| refused())?;
        bytes.try_into().map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for DiffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ChainId {
    /// The chain id of the lowest layer if `below` is `None`, else of the layer on top of it.
    pub fn stack(below: Option<Self>, layer: DiffId) -> Self {
        match below {
            None => Self(layer.0),
            Some(below) => Self(Digest::of(format!("{below} {layer}").as_bytes())),
        }
    }
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_survives_formatting_and_parsing() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse::<Digest>().unwrap(), Digest::of(b""));
        let quoted = format!("\"{EMPTY}\"");
        assert_eq!(serde_json::from_str::<Digest>(&quoted).unwrap(), Digest::of(b""));
        assert_eq!(serde_json::to_string(&Digest::of(b"")).unwrap(), quoted);
    }

    #[test]
    fn other_algorithms_lengths_and_spellings_are_refused() {
        let upper = EMPTY.to_uppercase().replace("SHA256", "sha256");
        for text in
            ["", "sha256:", "sha256:abcd", "md5:d41d8cd98f00b204e9800998ecf8427e", &EMPTY[7..], &upper]
        {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        assert!(format!("{EMPTY}00").parse::<Digest>().is_err());
        assert!("sha256:../../../../etc/passwd".parse::<Digest>().is_err());
    }

    #[test]
    fn a_chain_id_depends_on_all_layers_and_their_order() {
        let [a, b] = [b"a", b"b"].map(|bytes| DiffId(Digest::of(bytes)));
        let first = ChainId::stack(None, a);
        assert_eq!(first.0, a.0);
        let both = ChainId::stack(Some(first), b);
        assert_ne!(both, ChainId::stack(Some(ChainId::stack(None, b)), a));
        assert_eq!(both.0, Digest::of(format!("{} {}", a, b).as_bytes()));
    }
}
