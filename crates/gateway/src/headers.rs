//! Rewrites headers of forwarded requests and responses. Pure.
//!
//! Requests: hop-by-hop headers are removed, `X-Forwarded-*` describe the client and replace its own claims, `Host`
//! stays. Responses: hop-by-hop headers are removed. A cookie belongs to the host that set it, so `Domain` is removed;
//! a sandbox cannot set our cookie.
//!
//! The path form shares its origin with the API and with the path forms of all other sandboxes. Therefore a sandbox
//! cannot set or clear cookies there, nor extend the scope of a service worker, and its pages run in an opaque origin
//! (`Content-Security-Policy: sandbox`).

use std::net::IpAddr;

use http::header::{
    ALT_SVC, CONNECTION, CONTENT_SECURITY_POLICY, EXPECT, FORWARDED, HOST, LOCATION, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::access::is_own_cookie;
use super::address::Form;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");
const SERVICE_WORKER_ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");

/// Everything that a page needs except the origin.
const SANDBOX_POLICY: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

/// The client, the requested host, and the scheme.
#[derive(Clone, Debug)]
pub(super) struct Origin<'a> {
    pub(super) peer: Option<IpAddr>,
    pub(super) host: &'a str,
    /// The host that the server inside sees: the requested one, unless the sandbox masks it.
    pub(super) shown: &'a str,
    pub(super) https: bool,
}

/// Whether the client requests to leave HTTP on this connection.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && names(headers).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// The protocol to switch to. `h2c` is ignored: it would change the protocol in the middle of a request.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = headers.get(UPGRADE).filter(|_| is_upgrade(headers))?;
    let h2c = wanted.to_str().is_ok_and(|text| {
        text.split(',').any(|protocol| protocol.trim().to_ascii_lowercase().starts_with("h2c"))
    });
    (!h2c).then(|| wanted.clone())
}

/// The headers that `Connection` lists.
fn names(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

fn drop_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = names(headers).filter_map(|name| name.parse().ok()).collect();
    for name in &named {
        // A client could otherwise remove a header that is set for it here.
        if *name != HOST {
            headers.remove(name);
        }
    }
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove(PROXY_AUTHENTICATE);
    headers.remove(PROXY_AUTHORIZATION);
}

/// Rewrites a client's headers for the request to the sandbox.
pub(super) fn inward(headers: &mut HeaderMap, origin: &Origin<'_>, form: &Form) {
    let upgrade = upgrade(headers);
    let trailers = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers")));
    drop_hop_headers(headers);
    for name in
        [FORWARDED, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, FORWARDED_PORT, FORWARDED_PREFIX, REAL_IP]
    {
        headers.remove(name);
    }
    // The receiver of the body, which is this daemon, decides when it may be sent.
    headers.remove(EXPECT);
    headers.remove(HTTP2_SETTINGS);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
    let set = |headers: &mut HeaderMap, name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    if let Some(peer) = origin.peer {
        set(headers, FORWARDED_FOR, &peer.to_string());
    }
    set(headers, FORWARDED_HOST, origin.host);
    set(headers, FORWARDED_PROTO, if origin.https { "https" } else { "http" });
    set(headers, HOST, origin.shown);
    if let Form::Path { prefix } = form {
        set(headers, FORWARDED_PREFIX, prefix);
    }
}

/// Rewrites a sandbox's headers for the response to the client. `upgrade` is the protocol of a 101 response.
pub(super) fn outward(headers: &mut HeaderMap, form: &Form, upgrade: Option<HeaderValue>) {
    drop_hop_headers(headers);
    // This header distinguishes our own errors from a sandbox's responses.
    headers.remove(super::page::ERROR);
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
    match form {
        Form::Host => keep_cookies_home(headers),
        Form::Path { prefix } => {
            for name in
                [SET_COOKIE, CLEAR_SITE_DATA, SERVICE_WORKER_ALLOWED, STRICT_TRANSPORT_SECURITY, ALT_SVC]
            {
                headers.remove(name);
            }
            headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX_POLICY));
            keep_inside(headers, prefix);
        }
    }
}

/// Limits cookies to the host that set them, without its siblings.
fn keep_cookies_home(headers: &mut HeaderMap) {
    if !headers.contains_key(SET_COOKIE) {
        return;
    }
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies.iter().filter(|cookie| !is_own_cookie(cookie.as_bytes())) {
        let parts = cookie.as_bytes().split(|b| *b == b';');
        let kept: Vec<&[u8]> = parts.filter(|part| !is_domain(part)).collect();
        if let Ok(cookie) = HeaderValue::from_bytes(&kept.join(&b';')) {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

fn is_domain(attribute: &[u8]) -> bool {
    let name = attribute.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
    attribute.contains(&b'=') && name.eq_ignore_ascii_case(b"domain")
}

/// A redirect to a path of the sandbox gets the prefix.
fn keep_inside(headers: &mut HeaderMap, prefix: &str) {
    let Some(place) = headers.get(LOCATION).and_then(|place| place.to_str().ok()) else { return };
    let own = place.starts_with('/') && !place.starts_with("//");
    if own && let Ok(inside) = HeaderValue::try_from(format!("{prefix}{place}")) {
        headers.insert(LOCATION, inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse::<HeaderValue>().unwrap()))
            .collect()
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    const ORIGIN: Origin<'static> = Origin {
        peer: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        host: "80-x.localhost:7700",
        shown: "80-x.localhost:7700",
        https: false,
    };

    #[test]
    fn a_masked_host_is_sent_inside_and_the_requested_one_forwarded() {
        let mut headers = map(&[("host", "80-x.localhost:7700")]);
        inward(&mut headers, &Origin { shown: "localhost:80", ..ORIGIN }, &Form::Host);
        assert_eq!(text(&headers, "host"), Some("localhost:80"));
        assert_eq!(text(&headers, "x-forwarded-host"), Some("80-x.localhost:7700"));
    }

    #[test]
    fn hop_by_hop_headers_are_removed_and_claims_replaced() {
        let mut headers = map(&[
            ("host", "80-x.localhost:7700"),
            ("connection", "keep-alive, X-Secret, host"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "6.6.6.6"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("x-forwarded-prefix", "/evil"),
            ("accept", "*/*"),
        ]);
        inward(&mut headers, &ORIGIN, &Form::Host);
        let mut left: Vec<String> =
            headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "accept: */*",
                "host: 80-x.localhost:7700",
                "te: trailers",
                "x-forwarded-for: 127.0.0.1",
                "x-forwarded-host: 80-x.localhost:7700",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn upgrades_are_forwarded_except_to_other_http_versions() {
        let mut headers = map(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
        ]);
        assert!(is_upgrade(&headers));
        inward(&mut headers, &ORIGIN, &Form::Host);
        assert_eq!(
            (text(&headers, "connection"), text(&headers, "upgrade")),
            (Some("upgrade"), Some("websocket"))
        );
        assert_eq!(text(&headers, "sec-websocket-key"), Some("k"));
        let mut headers =
            map(&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "x")]);
        assert_eq!(upgrade(&headers), None);
        inward(&mut headers, &ORIGIN, &Form::Host);
        assert_eq!((text(&headers, "upgrade"), text(&headers, "http2-settings")), (None, None));
        assert!(!is_upgrade(&map(&[("upgrade", "websocket")])), "not listed in `Connection`");
    }

    #[test]
    fn cookies_stay_with_the_host_that_set_them() {
        let mut headers = map(&[]);
        for cookie in [
            "a=1; Domain=localhost; Path=/; HttpOnly",
            "b=2; domain = .boxes.example.com",
            "c=domain=3; Path=/x",
            "burrow-port=evil; Path=/",
            " __Host-burrow-port =evil",
        ] {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        outward(&mut headers, &Form::Host, None);
        let left: Vec<&str> = headers.get_all(SET_COOKIE).iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(left, ["a=1; Path=/; HttpOnly", "b=2", "c=domain=3; Path=/x"]);
    }

    #[test]
    fn on_the_path_form_a_sandbox_cannot_act_as_the_origin_of_the_api() {
        let form = Form::Path { prefix: "/p/x/80".to_owned() };
        let mut headers = map(&[
            ("set-cookie", "a=1"),
            ("clear-site-data", "\"*\""),
            ("service-worker-allowed", "/"),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3=\":1\""),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'self'"),
            ("location", "/login?x=1"),
        ]);
        outward(&mut headers, &form, None);
        let policies: Vec<&str> =
            headers.get_all(CONTENT_SECURITY_POLICY).iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(policies, ["default-src 'self'", SANDBOX_POLICY]);
        assert_eq!(text(&headers, "location"), Some("/p/x/80/login?x=1"));
        assert_eq!(text(&headers, "x-content-type-options"), Some("nosniff"));
        assert_eq!(headers.len(), 4);
        for place in ["https://elsewhere/", "//elsewhere/", "relative"] {
            let mut headers = map(&[("location", place)]);
            outward(&mut headers, &form, None);
            assert_eq!(text(&headers, "location"), Some(place));
        }
    }
}
