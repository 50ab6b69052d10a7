//! Puts secrets where they belong, after taking away whatever a program put there (E-S1).

use burrow_model::{SecretBytes, Slot};
use data_encoding::{BASE64, BASE64_NOPAD};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::Grant;

/// Where APIs look for credentials. With a secret of ours in one of them, none of the program's own goes along: a host
/// might take that one, and answer for another account.
const CREDENTIALS: [&str; 14] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "x-amz-security-token",
    "x-vault-token",
    "private-token",
    "job-token",
    "x-functions-key",
];

/// Of those, the ones that programs other than SDKs fill: a placeholder has no business there.
const NOT_FOR_KEYS: [&str; 2] = ["proxy-authorization", "cookie"];

/// Headers by which some servers take another method or path than the one that was judged (E-S9).
const OVERRIDES: [&str; 6] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];

/// What is about one connection only (RFC 9110, 7.6.1), and what we do ourselves.
const HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("http2-settings"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SlotError {
    #[error("its secret is for gRPC, and the request is not gRPC")]
    NotGrpc,
    #[error("its secret cannot stand in a request")]
    Value,
}

/// Takes away what is about the connection alone, and what would override what was judged.
pub(super) fn strip_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let trailers = headers.get_all(header::TE).iter().any(|value| value.as_bytes() == b"trailers");
    for name in HOP.into_iter().chain(named) {
        // Framing stays as it was judged.
        if name != header::CONTENT_LENGTH && name != header::HOST {
            headers.remove(name);
        }
    }
    for name in OVERRIDES {
        headers.remove(name);
    }
    // gRPC servers insist on it.
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether a key may stand in this header, wherever the secret itself goes: it is taken away then. Versions of one SDK differ
/// in which of them they fill.
pub(super) fn is_for_keys(name: &HeaderName) -> bool {
    CREDENTIALS.contains(&name.as_str()) && !NOT_FOR_KEYS.contains(&name.as_str())
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a secret can go along with a request at all.
pub(super) fn check_fits(grant: &Grant, headers: &HeaderMap) -> Result<(), SlotError> {
    match &grant.slot {
        Slot::GrpcMetadata { .. } if !is_grpc(headers) => Err(SlotError::NotGrpc),
        Slot::GrpcMetadata { .. }
        | Slot::Header { .. }
        | Slot::Query { .. }
        | Slot::Basic { .. }
        | Slot::ClientCert => Ok(()),
    }
}

/// The header that a secret of this slot stands in.
pub(super) fn header_of(slot: &Slot) -> Option<HeaderName> {
    match slot {
        Slot::Header { name, .. } | Slot::GrpcMetadata { name, .. } => name.as_str().parse().ok(),
        Slot::Basic { .. } => Some(header::AUTHORIZATION),
        Slot::Query { .. } | Slot::ClientCert => None,
    }
}

/// Asks the host for an answer that can be scrubbed: not compressed, and whole (E-S3).
pub(super) fn ask_for_readable(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    if is_grpc(headers) {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
}

/// Puts the secret of `grant` into a request. Answers with the query to use from now on.
pub(super) fn inject(
    grant: &Grant,
    headers: &mut HeaderMap,
    query: Option<&str>,
) -> Result<Option<String>, SlotError> {
    check_fits(grant, headers)?;
    for name in CREDENTIALS {
        headers.remove(name);
    }
    let value = match &grant.slot {
        Slot::Header { format, .. } => formatted(format.around(), &grant.value),
        Slot::GrpcMetadata { name, format } => {
            let text = formatted(format.around(), &grant.value);
            if name.as_str().ends_with("-bin") {
                Zeroizing::new(BASE64_NOPAD.encode(&text).into_bytes())
            } else {
                text
            }
        }
        Slot::Basic { user } => {
            let pair = formatted((&format!("{}:", user.as_str()), ""), &grant.value);
            Zeroizing::new(format!("Basic {}", BASE64.encode(&pair)).into_bytes())
        }
        Slot::Query { name } => return Ok(Some(set_query(query, name.as_str(), &grant.value))),
        Slot::ClientCert => return Ok(query.map(str::to_owned)),
    };
    let name = header_of(&grant.slot).ok_or(SlotError::Value)?;
    let mut value = HeaderValue::from_bytes(&value).map_err(|_| SlotError::Value)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(query.map(str::to_owned))
}

fn formatted((before, behind): (&str, &str), value: &SecretBytes) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(before.len() + value.expose().len() + behind.len()));
    text.extend_from_slice(before.as_bytes());
    text.extend_from_slice(value.expose());
    text.extend_from_slice(behind.as_bytes());
    text
}

fn set_query(query: Option<&str>, name: &str, value: &SecretBytes) -> String {
    let mut set = without_parameter(query.unwrap_or_default(), name);
    if !set.is_empty() {
        set.push('&');
    }
    set.push_str(name);
    set.push('=');
    for &b in value.expose() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            set.push(char::from(b));
        } else {
            set.push_str(&format!("%{b:02X}"));
        }
    }
    set
}

/// A query without the parameter, however its name is written.
pub(super) fn without_parameter(query: &str, name: &str) -> String {
    let is_other = |pair: &&str| {
        let given = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !decoded(given).eq_ignore_ascii_case(name.as_bytes())
    };
    query.split('&').filter(is_other).collect::<Vec<_>>().join("&")
}

/// What percent-encoded text stands for; what is no escape stands for itself.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |place: usize| bytes.get(place).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            (b'+', _, _) => {
                plain.push(b' ');
                at += 1;
            }
            (byte, _, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn grant(slot: Slot, value: &str) -> Grant {
        Grant {
            name: "key".parse().unwrap(),
            version: 1,
            slot,
            value: SecretBytes::new(value.into()),
            allow: Vec::new(),
            placeholder: None,
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn e_s1_whatever_credential_was_there_is_gone_and_ours_is_in() {
        let slot = Slot::Header { name: "X-Key".parse().unwrap(), format: "Token {}".parse().unwrap() };
        let mut given = headers(&[
            ("authorization", "Bearer mine"),
            ("cookie", "a=b"),
            ("x-api-key", "mine"),
            ("x-key", "mine"),
            ("x-key", "mine again"),
            ("accept-encoding", "gzip"),
            ("range", "bytes=0-3"),
            ("x-other", "stays"),
        ]);
        ask_for_readable(&mut given);
        let query = inject(&grant(slot, "secret-1"), &mut given, Some("a=1")).unwrap();
        assert_eq!(query.as_deref(), Some("a=1"));
        let mut left: Vec<_> =
            given.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(left, ["accept-encoding: identity", "x-key: Token secret-1", "x-other: stays"]);
        assert!(given["x-key"].is_sensitive());
    }

    #[test]
    fn every_slot_is_filled_as_its_protocol_wants() {
        let basic = Slot::Basic { user: "bob".parse().unwrap() };
        let mut given = HeaderMap::new();
        inject(&grant(basic, "pass word"), &mut given, None).unwrap();
        assert_eq!(given["authorization"], "Basic Ym9iOnBhc3Mgd29yZA==");

        let query = Slot::Query { name: "key".parse().unwrap() };
        let set = inject(&grant(query, "a&b c/1"), &mut HeaderMap::new(), Some("k%65y=1&x=2&KEY=3")).unwrap();
        assert_eq!(set.as_deref(), Some("x=2&key=a%26b%20c%2F1"));

        let format = burrow_model::Format::plain();
        let metadata =
            |name: &str| Slot::GrpcMetadata { name: name.parse().unwrap(), format: format.clone() };
        let mut given = headers(&[("content-type", "application/grpc+proto")]);
        inject(&grant(metadata("x-token"), "secret-1"), &mut given, None).unwrap();
        inject(&grant(metadata("x-token-bin"), "secret-1"), &mut given, None).unwrap();
        assert_eq!(given["x-token"], "secret-1");
        assert_eq!(given["x-token-bin"], "c2VjcmV0LTE");
        let refused = inject(&grant(metadata("x-token"), "secret-1"), &mut HeaderMap::new(), None);
        assert_eq!(refused, Err(SlotError::NotGrpc));
    }

    #[test]
    fn e_s9_what_would_override_what_was_judged_is_gone() {
        let mut given = headers(&[
            ("connection", "close, x-named"),
            ("x-named", "1"),
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/admin"),
            ("te", "trailers"),
            ("content-length", "3"),
        ]);
        strip_hop(&mut given);
        let mut left: Vec<_> = given.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "te"]);
    }
}
