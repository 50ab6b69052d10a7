//! Secrets: their names, where they may be sent, and how they are inserted. Their values are [`SecretBytes`], which are
//! never printed.
//!
//! The owner of a secret sets its *ceiling*: the hosts, methods and paths that policies of sandboxes cannot exceed.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::Name;
use crate::network::RequestScope;

/// A secret is a token, a password or a certificate with its key; not a file store.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;

/// A shorter value would occur by chance in many responses, and would be removed from them.
pub const SECRET_BYTES_MIN: usize = 8;

/// The maximum number of scopes in one ceiling.
pub const CEILING_MAX: usize = 32;

/// Part of every placeholder, between the prefix chosen by its owner and the random part. It identifies a placeholder
/// wherever it appears, even to an egress process that does not know the sandbox it comes from. Letters and digits, like
/// the rest, in a sequence that nothing else contains.
pub const PLACEHOLDER_MARK: &str = "bwFk7qXz9vJ2";

const FORMAT_LENGTH_MAX: usize = 256;
const HEADER_NAME_LENGTH_MAX: usize = 64;
const VARIABLE_LENGTH_MAX: usize = 128;
const PREFIX_LENGTH_MAX: usize = 64;

/// A secret as declared by its owner, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretSpec {
    pub name: Name,
    /// The ceiling. Never empty: a secret that may go nowhere is useless, and one that may go everywhere is not a secret.
    pub allow: Vec<RequestScope>,
    pub slot: Slot,
    /// What programs inside see instead of the secret, if they need to see something.
    #[serde(default)]
    pub placeholder: Option<PlaceholderSpec>,
}

/// Where a secret is inserted in a request. A value that the program put there itself is removed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Slot {
    Header {
        name: HeaderName,
        format: Format,
    },
    /// The same in gRPC: only in requests with gRPC's content type; a value whose name ends in `-bin` is sent as base64.
    GrpcMetadata {
        name: HeaderName,
        format: Format,
    },
    /// A query parameter.
    Query {
        name: QueryName,
    },
    /// `Authorization: Basic`, with the secret as the password.
    Basic {
        user: BasicUser,
    },
    /// The secret is a certificate chain and its key, in PEM; presented to the host when it requests a certificate.
    ClientCert,
}

/// An environment variable inside with a fake token of the right shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceholderSpec {
    /// The variable's name, such as `OPENAI_API_KEY`.
    pub env: String,
    /// The prefix of the fake, such as `sk-`, because SDKs check it.
    #[serde(default)]
    pub prefix: String,
}

/// `Bearer {}`: the position of the secret in a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Format(Box<str>);

/// The name of a header that a program may set, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderName(Box<str>);

/// The name of a query parameter: letters, digits, `-`, `_`, `.`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QueryName(Box<str>);

/// The user name of basic authentication: visible ASCII without `:`; may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BasicUser(Box<str>);

/// Bytes that are cleared when they are dropped, and never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretBytes(zeroize::Zeroizing<Vec<u8>>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error(
        "a format must contain `{{}}` once, for the secret, and no control characters, as in `Bearer {{}}`"
    )]
    Format,
    #[error("a secret cannot be inserted into the header `{name}`")]
    Header { name: String },
    #[error("a parameter's name may contain letters, digits, `-`, `_` and `.`")]
    Query,
    #[error("a user name may contain visible ASCII characters except `:`")]
    User,
    #[error("a secret is {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")]
    Length,
    #[error(
        "a secret that is inserted into requests may contain ASCII characters only, without control characters"
    )]
    Characters,
    #[error("a secret must have 1 to {CEILING_MAX} allowed destinations")]
    Ceiling,
    #[error("a client certificate cannot have a placeholder")]
    NoPlaceholder,
    #[error("a variable is letters, digits and `_`, and does not begin with a digit")]
    Variable,
    #[error("a placeholder's prefix is at most 64 letters, digits, `-`, `_` and `.`")]
    Prefix,
    #[error("an encoded secret must be base64")]
    Encoding,
}

// === impl SecretBytes ===

impl SecretBytes {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(zeroize::Zeroizing::new(bytes))
    }

    /// The only way to read the value: call it where the value is used, and keep no copy.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl TryFrom<String> for SecretBytes {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        let text = zeroize::Zeroizing::new(text);
        let bytes = data_encoding::BASE64.decode(text.as_bytes()).map_err(|_| SecretError::Encoding)?;
        Ok(Self::new(bytes))
    }
}

impl Serialize for SecretBytes {
    /// Uses one text that is cleared: a formatter would leave parts of it on the stack.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = data_encoding::BASE64.encode_len(self.expose().len());
        let mut text = zeroize::Zeroizing::new(String::with_capacity(length));
        data_encoding::BASE64.encode_append(self.expose(), &mut text);
        serializer.serialize_str(&text)
    }
}

// === impl SecretSpec ===

impl SecretSpec {
    /// Refuses a declaration that would have no effect, or too much.
    pub fn check(&self) -> Result<(), SecretError> {
        if !(1..=CEILING_MAX).contains(&self.allow.len()) {
            return Err(SecretError::Ceiling);
        }
        let Some(placeholder) = &self.placeholder else { return Ok(()) };
        if self.slot == Slot::ClientCert {
            return Err(SecretError::NoPlaceholder);
        }
        placeholder.check()
    }
}

impl PlaceholderSpec {
    pub fn check(&self) -> Result<(), SecretError> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let named = (1..=VARIABLE_LENGTH_MAX).contains(&self.env.len())
            && self.env.bytes().all(word)
            && !self.env.starts_with(|c: char| c.is_ascii_digit());
        if !named {
            return Err(SecretError::Variable);
        }
        let plain = self.prefix.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if plain && self.prefix.len() <= PREFIX_LENGTH_MAX { Ok(()) } else { Err(SecretError::Prefix) }
    }
}

// === impl Slot ===

impl Slot {
    /// Refuses a value that is invalid in this slot, or would end a header early (E-S8).
    pub fn check(&self, value: &SecretBytes) -> Result<(), SecretError> {
        let bytes = value.expose();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(SecretError::Length);
        }
        match self {
            Self::Header { .. } | Self::Query { .. } | Self::Basic { .. } | Self::GrpcMetadata { .. } => {
                let plain = bytes.iter().all(|b| (0x20..0x7f).contains(b));
                if plain { Ok(()) } else { Err(SecretError::Characters) }
            }
            Self::ClientCert => Ok(()),
        }
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Header { .. } => "header",
            Self::GrpcMetadata { .. } => "grpcMetadata",
            Self::Query { .. } => "query",
            Self::Basic { .. } => "basic",
            Self::ClientCert => "clientCert",
        }
    }
}

// === impl Format ===

impl Format {
    /// Only the secret.
    pub fn plain() -> Self {
        Self("{}".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text before and after the secret.
    pub fn around(&self) -> (&str, &str) {
        self.0.split_once("{}").expect("a format holds `{}`, by its parser")
    }
}

impl std::str::FromStr for Format {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let plain = text.bytes().all(|b| (0x20..0x7f).contains(&b));
        let once = text.matches("{}").count() == 1 && text.matches(['{', '}']).count() == 2;
        if plain && once && text.len() <= FORMAT_LENGTH_MAX {
            Ok(Self(text.into()))
        } else {
            Err(SecretError::Format)
        }
    }
}

// === impl HeaderName ===

/// Headers that define a message's framing or destination: a secret in one of them would break the request.
const RESERVED: [&str; 13] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "expect",
    "accept-encoding",
    "range",
];

impl HeaderName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for HeaderName {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let name = text.to_ascii_lowercase();
        let token =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
        let length = (1..=HEADER_NAME_LENGTH_MAX).contains(&name.len());
        if token && length && !RESERVED.contains(&name.as_str()) {
            Ok(Self(name.into()))
        } else {
            Err(SecretError::Header { name: text.chars().take(60).flat_map(char::escape_default).collect() })
        }
    }
}

impl QueryName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for QueryName {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        let length = (1..=HEADER_NAME_LENGTH_MAX).contains(&text.len());
        if plain && length { Ok(Self(text.into())) } else { Err(SecretError::Query) }
    }
}

impl BasicUser {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for BasicUser {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if plain && text.len() <= FORMAT_LENGTH_MAX { Ok(Self(text.into())) } else { Err(SecretError::User) }
    }
}

macro_rules! as_strings {
    ($($kind:ident),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = SecretError;

            fn try_from(text: String) -> Result<Self, SecretError> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.0.into()
            }
        }
    )+};
}

as_strings!(Format, HeaderName, QueryName, BasicUser);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = SecretBytes::new(b"sk-canary-1234".to_vec());
        let spec = format!("{secret:?} {:?}", Some(&secret));
        assert_eq!(spec, "*** Some(***)");
        let back: SecretBytes = serde_json::from_str(&serde_json::to_string(&secret).unwrap()).unwrap();
        assert_eq!(back, secret);
    }

    #[test]
    fn e_s8_what_would_end_a_header_early_is_refused() {
        let header =
            Slot::Header { name: "Authorization".parse().unwrap(), format: "Bearer {}".parse().unwrap() };
        for bad in ["abcdefgh\r\nX-Evil: 1", "abcdefgh\0", "abcdefgh\n", "pässwörter", "short"] {
            assert!(header.check(&SecretBytes::new(bad.as_bytes().to_vec())).is_err(), "{bad:?}");
        }
        assert_eq!(header.check(&SecretBytes::new(b"sk-abcdefgh".to_vec())), Ok(()));
        for bad in ["Bearer", "{}{}", "a{b}{}", "{}\r\n", "Bearer {}\u{e4}"] {
            assert_eq!(bad.parse::<Format>(), Err(SecretError::Format), "{bad:?}");
        }
        for bad in ["", "Host", "Content-Length", "x y", "x:y", "x\r\ny", "Transfer-Encoding"] {
            assert!(bad.parse::<HeaderName>().is_err(), "{bad:?}");
        }
        assert_eq!("X-API-Key".parse::<HeaderName>().unwrap().as_str(), "x-api-key");
        assert_eq!("Bearer {}".parse::<Format>().unwrap().around(), ("Bearer ", ""));
    }
}
