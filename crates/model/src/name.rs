//! Names and labels that users choose: validated once, here, and then passed as types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name: it must fit a DNS label, because names may appear in host names.
const NAME_LENGTH_MAX: usize = 63;
const LABEL_KEY_LENGTH_MAX: usize = 63;
const LABEL_VALUE_LENGTH_MAX: usize = 255;

/// A name of a sandbox, snapshot or service: lower-case letters, digits and inner hyphens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name is 1 to 63 lower-case letters, digits and inner hyphens, starting with a letter, and not shaped like an id"
)]
pub struct NameError;

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bytes = text.as_bytes();
        let characters = bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
        let ends = bytes.first().is_some_and(u8::is_ascii_lowercase) && bytes.last() != Some(&b'-');
        // A name shaped like an id would make `burrow rm sbx…` and `burrow snapshot rm snp…` ambiguous. (Volumes were added
        // later: there may be names that look like their ids. Ids of volumes are looked up first.)
        let like_an_id =
            text.parse::<crate::SandboxId>().is_ok() || text.parse::<crate::SnapshotId>().is_ok();
        if characters && ends && bytes.len() <= NAME_LENGTH_MAX && !like_an_id {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A label `key=value` on a sandbox or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("a label key is 1 to 63 letters, digits, `.`, `_`, `/` and `-`")]
    Key,
    #[error("a label value is at most 255 characters without control characters")]
    Value,
    #[error("a label is written `key=value`")]
    Shape,
}

impl Label {
    pub fn new(key: &str, value: &str) -> Result<Self, LabelError> {
        let key_character = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-');
        if key.is_empty() || key.len() > LABEL_KEY_LENGTH_MAX || !key.bytes().all(key_character) {
            return Err(LabelError::Key);
        }
        if value.chars().count() > LABEL_VALUE_LENGTH_MAX || value.chars().any(char::is_control) {
            return Err(LabelError::Value);
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (key, value) = text.split_once('=').ok_or(LabelError::Shape)?;
        Self::new(key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, good: bool) {
        assert_eq!(text.parse::<Name>().is_ok(), good, "{text:?}");
    }

    #[test]
    fn a_name_is_a_dns_label_that_is_not_an_id() {
        for good in ["a", "web-1", "x9"] {
            check(good, true);
        }
        for bad in ["", "-a", "a-", "A", "a_b", "9a", "a\u{7}", "a b", "../a", &"a".repeat(64)] {
            check(bad, false);
        }
        check(crate::SandboxId::generate().as_str(), false);
        check(crate::SnapshotId::generate().as_str(), false);
    }

    #[test]
    fn labels_refuse_control_bytes() {
        assert_eq!("team=a=b".parse::<Label>().unwrap().value, "a=b");
        assert_eq!("team".parse::<Label>(), Err(LabelError::Shape));
        assert_eq!("te am=x".parse::<Label>(), Err(LabelError::Key));
        assert_eq!("team=\u{1b}[0m".parse::<Label>(), Err(LabelError::Value));
    }
}
