//! The DNS wire format, limited to a non-forwarding resolver: one question in, one answer out.
//!
//! Pure; the input is hostile. Questions contain no compressed names, so a pointer in one is an error, and parsing
//! cannot loop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use burrow_model::HostName;

/// Longest question that is read. A question with one name and a few options is far shorter.
pub const QUESTION_BYTES_MAX: usize = 4096;

/// The largest UDP answer that we advertise and send (DNS flag day 2020).
const UDP_SIZE: u16 = 1232;

/// Additional records after the question: an OPT, perhaps a signature.
const ADDITIONAL_MAX: u16 = 4;

const HEADER: usize = 12;
const NAME_BYTES_MAX: usize = 255;

/// How long clients may cache an answer. Addresses are stable for the life of a sandbox, policies are not.
const TTL_SECONDS: u32 = 30;

const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
const OPTION_EDE: u16 = 15;

/// The record type of a question. All types without their own variant get the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    A,
    Aaaa,
    Ptr,
    Other(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    id: u16,
    recursion_desired: bool,
    checking_disabled: bool,
    /// Name, type and class as received, including letter case, which some clients check.
    question: Vec<u8>,
    pub name: QueryName,
    pub kind: Kind,
    pub class_is_internet: bool,
    pub opcode_is_query: bool,
    edns: Option<Edns>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryName {
    Host(HostName),
    /// Labels with other bytes, the root, or a number: not a valid host name.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edns {
    version: u8,
}

/// Why a message is not a valid question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionError {
    /// Too short for a header, or itself an answer: no reply is sent.
    Silence,
    /// Answered with FORMERR.
    Form { id: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseCode {
    Success,
    FormatError,
    NameError,
    NotImplemented,
    Refused,
    BadVersion,
}

impl ResponseCode {
    fn number(self) -> u16 {
        match self {
            Self::Success => 0,
            Self::FormatError => 1,
            Self::NameError => 3,
            Self::NotImplemented => 4,
            Self::Refused => 5,
            Self::BadVersion => 16,
        }
    }
}

/// The contents of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: ResponseCode,
    pub records: Vec<Record>,
    /// RFC 8914: a code and a text for people.
    pub error: Option<(u16, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Address(IpAddr),
    Pointer(HostName),
}

/// RFC 8914 codes: blocked by a policy of the resolver's operator; prohibited for this client.
pub const EDE_BLOCKED: u16 = 15;
pub const EDE_PROHIBITED: u16 = 18;

impl Query {
    pub fn parse(bytes: &[u8]) -> Result<Self, QuestionError> {
        let header = bytes.get(..HEADER).ok_or(QuestionError::Silence)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, flags) = (word(0), word(2));
        // Answering an answer could cause an endless exchange.
        if flags & 0x8000 != 0 || bytes.len() > QUESTION_BYTES_MAX {
            return Err(QuestionError::Silence);
        }
        let form = QuestionError::Form { id };
        let (questions, answers, authorities, additional) = (word(4), word(6), word(8), word(10));
        if questions != 1 || answers != 0 || authorities != 0 || additional > ADDITIONAL_MAX {
            return Err(form);
        }
        let mut at = HEADER;
        let name = read_name(bytes, &mut at).ok_or(form)?;
        let (kind, class) = (read_u16(bytes, &mut at).ok_or(form)?, read_u16(bytes, &mut at).ok_or(form)?);
        let question = bytes[HEADER..at].to_vec();
        let mut edns = None;
        for _ in 0..additional {
            let record = read_additional(bytes, &mut at).ok_or(form)?;
            if let Some(found) = record
                && edns.replace(found).is_some()
            {
                return Err(form);
            }
        }
        if at != bytes.len() {
            return Err(form);
        }
        Ok(Self {
            id,
            recursion_desired: flags & 0x0100 != 0,
            checking_disabled: flags & 0x0010 != 0,
            question,
            name,
            kind: match kind {
                1 => Kind::A,
                28 => Kind::Aaaa,
                12 => Kind::Ptr,
                other => Kind::Other(other),
            },
            class_is_internet: class == CLASS_IN,
            opcode_is_query: flags & 0x7800 == 0,
            edns,
        })
    }

    /// Whether the client uses an EDNS version newer than ours.
    pub fn edns_is_newer(&self) -> bool {
        self.edns.is_some_and(|edns| edns.version > 0)
    }

    /// Encodes the answer. With at most one name and a few addresses it fits the smallest UDP answer; the text of a
    /// refusal is sent only to clients with EDNS.
    pub fn answer(&self, answer: &Answer) -> Vec<u8> {
        let code = answer.code.number();
        let mut flags = 0x8080 | (code & 0xf);
        flags |= if self.recursion_desired { 0x0100 } else { 0 };
        flags |= if self.checking_disabled { 0x0010 } else { 0 };
        let records = u16::try_from(answer.records.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(512);
        for word in [self.id, flags, 1, records, 0, u16::from(self.edns.is_some())] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(&self.question);
        for record in answer.records.iter().take(records.into()) {
            write_record(&mut bytes, record);
        }
        if self.edns.is_some() {
            write_opt(&mut bytes, code, answer.error.as_ref());
        }
        bytes
    }
}

/// The answer to an unreadable question: only a header.
pub fn format_error(id: u16) -> Vec<u8> {
    [id, 0x8080 | ResponseCode::FormatError.number(), 0, 0, 0, 0]
        .into_iter()
        .flat_map(u16::to_be_bytes)
        .collect()
}

fn read_u16(bytes: &[u8], at: &mut usize) -> Option<u16> {
    let word = bytes.get(*at..*at + 2)?;
    *at += 2;
    Some(u16::from_be_bytes([word[0], word[1]]))
}

/// Reads an uncompressed name.
fn read_name(bytes: &[u8], at: &mut usize) -> Option<QueryName> {
    let start = *at;
    let mut text = String::new();
    let mut usable = true;
    loop {
        let length = usize::from(*bytes.get(*at)?);
        *at += 1;
        if length == 0 {
            break;
        }
        // The two highest bits mark a pointer or an undefined label type.
        if length > 63 || *at + length + 1 - start > NAME_BYTES_MAX {
            return None;
        }
        let label = bytes.get(*at..*at + length)?;
        *at += length;
        // A dot inside a label would split it into two labels.
        usable &= label.iter().all(|b| b.is_ascii_graphic() && *b != b'.');
        if usable {
            if !text.is_empty() {
                text.push('.');
            }
            text.extend(label.iter().map(|b| char::from(*b)));
        }
    }
    let host = usable.then(|| text.parse().ok()).flatten();
    Some(host.map_or(QueryName::Unusable, QueryName::Host))
}

/// Reads one additional record: an OPT, or a record to skip.
fn read_additional(bytes: &[u8], at: &mut usize) -> Option<Option<Edns>> {
    let root = *bytes.get(*at)? == 0;
    // Here a name may end in a pointer, which is skipped and not followed.
    loop {
        let length = *bytes.get(*at)?;
        *at += 1;
        match length {
            0 => break,
            1..=63 => *at += usize::from(length),
            0xc0.. => {
                *at += 1;
                break;
            }
            64..=0xbf => return None,
        }
    }
    let kind = read_u16(bytes, at)?;
    let _class = read_u16(bytes, at)?;
    let (high, _low) = (read_u16(bytes, at)?, read_u16(bytes, at)?);
    let length = usize::from(read_u16(bytes, at)?);
    bytes.get(*at..*at + length)?;
    *at += length;
    match (kind, root) {
        (TYPE_OPT, true) => Some(Some(Edns { version: high.to_be_bytes()[1] })),
        (TYPE_OPT, false) => None,
        (_, true | false) => Some(None),
    }
}

fn write_record(bytes: &mut Vec<u8>, record: &Record) {
    let (kind, data): (u16, Vec<u8>) = match record {
        Record::Address(IpAddr::V4(address)) => (1, address.octets().to_vec()),
        Record::Address(IpAddr::V6(address)) => (28, address.octets().to_vec()),
        Record::Pointer(name) => (12, wire_name(name)),
    };
    // A pointer to the name in the question, right after the header.
    bytes.extend(0xc00c_u16.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(CLASS_IN.to_be_bytes());
    bytes.extend(TTL_SECONDS.to_be_bytes());
    bytes.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
    bytes.extend(data);
}

fn wire_name(name: &HostName) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.as_str().split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

fn write_opt(bytes: &mut Vec<u8>, code: u16, error: Option<&(u16, String)>) {
    bytes.push(0);
    bytes.extend(TYPE_OPT.to_be_bytes());
    bytes.extend(UDP_SIZE.to_be_bytes());
    bytes.extend(u32::from(code >> 4).wrapping_shl(24).to_be_bytes());
    let mut options = Vec::new();
    if let Some((number, text)) = error {
        let text: Vec<u8> = text.bytes().take(400).collect();
        options.extend(OPTION_EDE.to_be_bytes());
        options.extend(u16::try_from(text.len() + 2).unwrap_or(0).to_be_bytes());
        options.extend(number.to_be_bytes());
        options.extend(text);
    }
    bytes.extend(u16::try_from(options.len()).unwrap_or(0).to_be_bytes());
    bytes.extend(options);
}

/// The address in a reverse name: `1.0.18.198.in-addr.arpa`, `….ip6.arpa`.
pub fn reversed(name: &HostName) -> Option<IpAddr> {
    let text = name.as_str();
    if let Some(digits) = text.strip_suffix(".in-addr.arpa") {
        let mut octets = [0u8; 4];
        let mut labels = digits.rsplit('.');
        for octet in &mut octets {
            *octet = labels.next()?.parse().ok()?;
        }
        return labels.next().is_none().then_some(Ipv4Addr::from(octets).into());
    }
    let digits = text.strip_suffix(".ip6.arpa")?;
    let mut value = 0u128;
    let mut count = 0;
    for label in digits.rsplit('.') {
        count += 1;
        let digit =
            (label.len() == 1 && count <= 32).then(|| char::from(label.as_bytes()[0]).to_digit(16))??;
        value = value << 4 | u128::from(digit);
    }
    (count == 32).then_some(Ipv6Addr::from(value).into())
}

#[cfg(test)]
pub(crate) mod tests;
