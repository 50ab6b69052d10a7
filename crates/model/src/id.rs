//! Ids: three letters that name the kind, then 20 base32 characters (100 random bits).
//!
//! They match `^[a-z0-9]+$`, because they appear in host names. `FromStr` refuses an id of another kind with a message
//! that names both kinds.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, Encoding, Specification};
use serde::{Deserialize, Serialize};

/// Characters after the three letters.
const RANDOM_CHARACTERS: usize = 20;

/// Enough bytes for these characters, with a few bits to spare.
pub const RANDOM_BYTES: usize = 13;

/// Why a text is not an id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {article} {kind} id (expected {prefix} and 20 base32 characters)")]
pub struct IdError {
    text: String,
    article: &'static str,
    kind: &'static str,
    prefix: &'static str,
}

fn alphabet() -> Encoding {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 distinct symbols are a valid base32 alphabet")
}

/// Text for messages: bounded and printable, so that a hostile id cannot fill a log or a terminal.
fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(40).flat_map(char::escape_default).collect();
    if text.chars().count() > 40 {
        cut.push('…');
    }
    cut
}

fn mint(prefix: &str) -> String {
    let mut bytes = [0u8; RANDOM_BYTES];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    spell(prefix, bytes)
}

fn spell(prefix: &str, bytes: [u8; RANDOM_BYTES]) -> String {
    debug_assert_eq!(BASE32_NOPAD.encode_len(bytes.len()), 21);
    let mut text = alphabet().encode(&bytes);
    text.truncate(RANDOM_CHARACTERS);
    format!("{prefix}{text}")
}

fn well_formed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == RANDOM_CHARACTERS
            && rest.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b))
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident = $prefix:literal, $article:literal $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The three letters every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// A new id, from the kernel's random generator.
            pub fn generate() -> Self {
                Self(mint($prefix))
            }

            /// The id that encodes these bytes: the same bytes give the same id. They must be as good as random.
            pub fn of_bytes(bytes: [u8; RANDOM_BYTES]) -> Self {
                Self(spell($prefix, bytes))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if well_formed(text, $prefix) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError { text: shown(text), article: $article, kind: $kind, prefix: $prefix })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// A sandbox, for its whole life: stopping and starting keep the id, forking creates a new one.
    SandboxId = "sbx", "a" "sandbox"
}
id! {
    /// An image: what a sandbox starts from. Never changes once it exists.
    ImageId = "img", "an" "image"
}
id! {
    /// One run of one process inside a sandbox.
    ExecId = "exe", "an" "exec"
}
id! {
    /// The public half of an API key: it identifies the key without being the key.
    KeyId = "key", "a" "key"
}
id! {
    /// A public key for logging in over SSH.
    SshKeyId = "ssk", "an" "SSH key"
}
id! {
    /// A journaled change of several steps.
    OperationId = "opn", "an" "operation"
}
id! {
    /// A snapshot: the files of a sandbox, and possibly its processes, at one moment. Never changes, outlives its sandbox.
    SnapshotId = "snp", "a" "snapshot"
}
id! {
    /// A dump of a sandbox's processes, which `wake` restores. A sandbox or a snapshot refers to it; otherwise it is about to be
    /// removed.
    DumpId = "dmp", "a" "dump"
}
id! {
    /// A space: the memory of one sandbox and its forks, or of a space with its own name.
    SpaceId = "spc", "a" "space"
}
id! {
    /// A volume: a named tree of files that outlives sandboxes.
    VolumeId = "vol", "a" "volume"
}
id! {
    /// The files of a volume at one moment.
    VolumeSnapshotId = "vsn", "a" "volume snapshot"
}
id! {
    /// One line of a space's log: the memory of one sandbox.
    BranchId = "brn", "a" "branch"
}
id! {
    /// One memory, across all its versions.
    MemoryId = "mem", "a" "memory"
}
id! {
    /// One merge of a sandbox's work into another.
    MergeId = "mrg", "a" "merge"
}
id! {
    /// A race: several forks attempt the same task, and one of them wins.
    RaceId = "rac", "a" "race"
}
id! {
    /// The owner of rows. An installation starts with one tenant.
    TenantId = "ten", "a" "tenant"
}

impl SpaceId {
    /// The space that a sandbox is created with, derived from the sandbox's id alone.
    pub fn of(sandbox: &SandboxId) -> Self {
        Self(renamed(sandbox.as_str(), Self::PREFIX))
    }
}

impl BranchId {
    /// The branch that a sandbox is created with.
    pub fn of(sandbox: &SandboxId) -> Self {
        Self(renamed(sandbox.as_str(), Self::PREFIX))
    }

    /// The branch of a space that has only one.
    pub fn main(space: &SpaceId) -> Self {
        Self(renamed(space.as_str(), Self::PREFIX))
    }
}

/// The same random characters with the prefix of another kind.
fn renamed(id: &str, prefix: &str) -> String {
    format!("{prefix}{}", &id[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_id_parses_back_and_suits_a_host_name() {
        let id = SandboxId::generate();
        assert_eq!(id.as_str().parse::<SandboxId>().unwrap(), id);
        assert!(id.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    }

    #[test]
    fn an_id_of_another_kind_is_refused_by_name() {
        let image = ImageId::generate();
        let error = image.as_str().parse::<SandboxId>().unwrap_err().to_string();
        assert!(error.contains("is not a sandbox id (expected sbx and 20 base32 characters)"), "{error}");
    }

    #[test]
    fn a_hostile_id_is_shown_bounded_and_escaped() {
        let error = "\u{1b}[31m".repeat(1000).parse::<SandboxId>().unwrap_err().to_string();
        assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn two_ids_differ() {
        assert_ne!(ExecId::generate(), ExecId::generate());
        assert_eq!(ExecId::of_bytes([7; RANDOM_BYTES]), ExecId::of_bytes([7; RANDOM_BYTES]));
        assert!(ExecId::of_bytes([7; RANDOM_BYTES]).as_str().parse::<ExecId>().is_ok());
    }
}
