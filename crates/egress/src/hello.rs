//! Reads the host name (SNI) from the first bytes of a TLS connection.
//!
//! ```text
//! record(22) ┬ record(22) ┬ …   ──► handshake message 1 (client hello) ──► extensions ──► server name
//!            └ a hello may be cut into many records, and each into many segments
//! ```
//!
//! Pure; the input is hostile. Ambiguous input (a repeated extension, two names, inconsistent lengths) is refused,
//! because the server could interpret it differently. With encrypted hellos (ECH) the outer name is checked, because
//! it names the host that receives the connection.

use burrow_model::HostName;

/// Longest hello that is read, including record headers. Hellos with post-quantum key shares have 2 KiB; no client
/// needs 64.
pub const HELLO_BYTES_MAX: usize = 64 * 1024;

/// Largest number of records in a hello; limits the work that one-byte records cause.
const RECORDS_MAX: usize = 256;

/// RFC 8446: the longest record fragment.
const FRAGMENT_MAX: usize = 1 << 14;

const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
const CONTENT_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ECH: u16 = 0xfe0d;
/// The draft that preceded ECH.
const EXTENSION_ESNI: u16 = 0xffce;
const NAME_TYPE_HOST: u8 = 0;

/// The protocol of the first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Hello(Hello),
    /// Not TLS at all.
    NotTls,
    /// Undecided until this many bytes have arrived in total.
    NeedMore {
        at_least: usize,
    },
    /// TLS, but malformed or ambiguous.
    Bad(HelloError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub name: ServerName,
    /// Whether the hello contains a second, encrypted hello (ECH).
    pub encrypted_inside: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    Absent,
    Host(HostName),
    /// A name that is an address, contains a NUL, or is not a valid host name for another reason.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("the TLS hello is longer than 64 KiB")]
    TooLong,
    #[error("the TLS hello is split into too many records")]
    TooManyRecords,
    #[error("malformed TLS record")]
    Record,
    #[error("the TLS handshake does not begin with a client hello")]
    NotAHello,
    #[error("malformed TLS hello")]
    Malformed,
    #[error("the TLS hello repeats an extension")]
    Repeated,
}

/// Reads `bytes`, everything that has arrived so far.
pub fn read(bytes: &[u8]) -> Outcome {
    match message(bytes) {
        Ok(FirstMessage::Message(message)) => match hello(&message) {
            Some(Ok(hello)) => Outcome::Hello(hello),
            Some(Err(error)) => Outcome::Bad(error),
            None => Outcome::Bad(HelloError::Malformed),
        },
        Ok(FirstMessage::NotTls) => Outcome::NotTls,
        Ok(FirstMessage::NeedMore { at_least }) if at_least > HELLO_BYTES_MAX => {
            Outcome::Bad(HelloError::TooLong)
        }
        Ok(FirstMessage::NeedMore { at_least }) => Outcome::NeedMore { at_least },
        Err(error) => Outcome::Bad(error),
    }
}

enum FirstMessage {
    /// The body of the hello.
    Message(Vec<u8>),
    NotTls,
    NeedMore {
        at_least: usize,
    },
}

/// Assembles the first handshake message from its records.
fn message(bytes: &[u8]) -> Result<FirstMessage, HelloError> {
    // Decided as early as possible: a client of another protocol may send a short message and wait for an answer.
    if bytes.first().is_some_and(|first| *first != CONTENT_HANDSHAKE)
        || bytes.get(1).is_some_and(|major| *major != 3)
    {
        return Ok(FirstMessage::NotTls);
    }
    let mut whole = Vec::new();
    let mut rest = bytes;
    for _ in 0..RECORDS_MAX {
        let consumed = bytes.len() - rest.len();
        let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else {
            return Ok(FirstMessage::NeedMore { at_least: consumed + RECORD_HEADER });
        };
        if header[0] != CONTENT_HANDSHAKE || header[1] != 3 {
            return Err(HelloError::Record);
        }
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > FRAGMENT_MAX {
            return Err(HelloError::Record);
        }
        let Some((fragment, after)) = after.split_at_checked(length) else {
            return Ok(FirstMessage::NeedMore { at_least: consumed + RECORD_HEADER + length });
        };
        whole.extend_from_slice(fragment);
        rest = after;
        if whole[0] != MESSAGE_CLIENT_HELLO {
            return Err(HelloError::NotAHello);
        }
        if whole.len() < HANDSHAKE_HEADER {
            continue;
        }
        let body = u32::from_be_bytes([0, whole[1], whole[2], whole[3]]) as usize;
        if body > HELLO_BYTES_MAX {
            return Err(HelloError::TooLong);
        }
        match whole.len().cmp(&(HANDSHAKE_HEADER + body)) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Ok(FirstMessage::Message(whole.split_off(HANDSHAKE_HEADER))),
            // No data may follow a hello before the server has answered it.
            std::cmp::Ordering::Greater => return Err(HelloError::Malformed),
        }
    }
    Err(HelloError::TooManyRecords)
}

/// Parses the body of a hello; `None` if a length is inconsistent.
fn hello(body: &[u8]) -> Option<Result<Hello, HelloError>> {
    let mut body = Reader(body);
    body.take(2 + 32)?; // Version and random.
    let session = body.prefixed_u8()?;
    let ciphers = body.prefixed_u16()?;
    let compressions = body.prefixed_u8()?;
    if session.0.len() > 32 || ciphers.0.len() < 2 || ciphers.0.len() % 2 == 1 || compressions.0.is_empty() {
        return None;
    }
    let mut hello = Hello { name: ServerName::Absent, encrypted_inside: false };
    // Before TLS 1.2, extensions were optional.
    if body.0.is_empty() {
        return Some(Ok(hello));
    }
    let mut extensions = body.prefixed_u16()?;
    if !body.0.is_empty() {
        return None;
    }
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.prefixed_u16()?;
        seen.push(kind);
        match kind {
            EXTENSION_SERVER_NAME => hello.name = server_name(data)?,
            EXTENSION_ECH | EXTENSION_ESNI => hello.encrypted_inside = true,
            _ => {}
        }
    }
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Some(Err(HelloError::Repeated));
    }
    Some(Ok(hello))
}

fn server_name(mut data: Reader<'_>) -> Option<ServerName> {
    let mut list = data.prefixed_u16()?;
    let kind = list.u8()?;
    let name = list.prefixed_u16()?;
    // Exactly one name of the only defined type: given two, server and proxy could choose different ones.
    if !data.0.is_empty() || !list.0.is_empty() || kind != NAME_TYPE_HOST {
        return None;
    }
    let host = std::str::from_utf8(name.0).ok().and_then(|text| text.parse().ok());
    Some(host.map_or(ServerName::Unusable, ServerName::Host))
}

/// The remaining bytes. A read fails if too few are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn prefixed_u8(&mut self) -> Option<Self> {
        let length = self.u8()?;
        self.take(length.into()).map(Reader)
    }

    fn prefixed_u16(&mut self) -> Option<Self> {
        let length = self.u16()?;
        self.take(length.into()).map(Reader)
    }
}

#[cfg(test)]
mod tests;
