//! Inserts secrets into requests, after removing the credentials that the program sent (E-S1).

use burrow_model::network::HeaderTransform;
use burrow_model::{SecretBytes, Slot};
use data_encoding::{BASE64, BASE64_NOPAD};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::Grant;

/// Headers in which APIs expect credentials. When a secret is inserted, the program's own credentials are removed
/// from all of them: a host could otherwise use those and answer for another account.
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

/// Of those, headers that programs other than SDKs fill: a placeholder must not appear there.
const NEVER_PLACEHOLDERS: [&str; 2] = ["proxy-authorization", "cookie"];

/// Headers that make some servers use another method or path than the one that was checked (E-S9).
const OVERRIDES: [&str; 6] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];

/// Hop-by-hop headers (RFC 9110, 7.6.1), and headers that the proxy sets itself.
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
    #[error("its secret is gRPC metadata, and the request is not gRPC")]
    NotGrpc,
    #[error("its secret cannot be part of a request")]
    Value,
}

/// Removes hop-by-hop headers, and headers that would override the method or path that was checked.
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
        // The framing stays as it was checked.
        if name != header::CONTENT_LENGTH && name != header::HOST {
            headers.remove(name);
        }
    }
    for name in OVERRIDES {
        headers.remove(name);
    }
    // gRPC servers require it.
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether a credential may appear in this header even if the secret is inserted elsewhere: the header is removed
/// then. Versions of one SDK differ in which headers they fill.
pub(super) fn is_for_keys(name: &HeaderName) -> bool {
    CREDENTIALS.contains(&name.as_str()) && !NEVER_PLACEHOLDERS.contains(&name.as_str())
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a secret can be inserted into a request at all.
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

/// The header into which a secret of this slot is inserted.
pub(super) fn header_of(slot: &Slot) -> Option<HeaderName> {
    match slot {
        Slot::Header { name, .. } | Slot::GrpcMetadata { name, .. } => name.as_str().parse().ok(),
        Slot::Basic { .. } => Some(header::AUTHORIZATION),
        Slot::Query { .. } | Slot::ClientCert => None,
    }
}

/// Requests a response that can be scrubbed: not compressed, and complete (E-S3).
pub(super) fn ask_for_readable(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    if is_grpc(headers) {
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
}

/// Sets the headers of `transform`, replacing those of the program. The header of the inserted secret is kept.
pub(super) fn set_headers(transform: &HeaderTransform, grant: Option<&Grant>, headers: &mut HeaderMap) {
    let of_secret = grant.and_then(|grant| header_of(&grant.slot));
    for header in &transform.headers {
        // Both were validated when they were parsed.
        let name = HeaderName::from_bytes(header.name.as_str().as_bytes());
        let value = HeaderValue::from_bytes(header.value.expose());
        if let (Ok(name), Ok(mut value)) = (name, value)
            && of_secret.as_ref() != Some(&name)
        {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
}

/// Inserts the secret of `grant` into a request. Returns the query to use from now on.
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

/// A query without the parameter, however its name is encoded.
pub(super) fn without_parameter(query: &str, name: &str) -> String {
    let is_other = |pair: &&str| {
        let given = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !decoded(given).eq_ignore_ascii_case(name.as_bytes())
    };
    query.split('&').filter(is_other).collect::<Vec<_>>().join("&")
}

/// Decodes percent-encoding; invalid escapes are kept unchanged.
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
            former: Vec::new(),
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
    fn e_s1_the_programs_credentials_are_replaced_by_the_secret() {
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
    fn configured_headers_replace_the_programs_but_never_a_secret() {
        let header = |name: &str, value: &str| burrow_model::network::TransformHeader {
            name: name.parse().unwrap(),
            value: SecretBytes::new(value.into()),
        };
        let transform = HeaderTransform {
            host: "a.example".parse().unwrap(),
            headers: vec![
                header("X-Key", "of the transform"),
                header("X-Team", "blue"),
                header("X-None", ""),
            ],
        };
        let all = |given: &HeaderMap| {
            let mut all: Vec<_> =
                given.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            all.sort();
            all
        };
        let mut given = headers(&[("x-team", "red"), ("x-team", "green"), ("x-other", "stays")]);
        set_headers(&transform, None, &mut given);
        assert_eq!(all(&given), ["x-key: of the transform", "x-none: ", "x-other: stays", "x-team: blue"]);
        assert!(given["x-key"].is_sensitive());

        let slot = Slot::Header { name: "X-Key".parse().unwrap(), format: "Token {}".parse().unwrap() };
        let (grant, mut given) = (grant(slot, "secret-1"), HeaderMap::new());
        inject(&grant, &mut given, None).unwrap();
        set_headers(&transform, Some(&grant), &mut given);
        assert_eq!(all(&given), ["x-key: Token secret-1", "x-none: ", "x-team: blue"]);
    }

    #[test]
    fn every_slot_is_filled_in_the_format_of_its_protocol() {
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
    fn e_s9_headers_that_override_method_or_path_are_removed() {
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
