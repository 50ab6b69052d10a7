//! Decides about one request: whether it is for the host of its connection, which rule covers it, and which secret
//! may be inserted.
//!
//! Pure. The limits that the secret's owner has set are checked again here, regardless of the rules (E-S15).

use burrow_model::network::{RequestRule, RuleMode};
use burrow_model::{HostName, Slot};
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::scrub::Forms;
use super::slots;
use crate::policy::{Destination, Host};
use crate::{Directives, Grant};

/// Why a request is refused, and how that is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) what: String,
    /// A sign of an attack, not only of a mistake.
    pub(super) alarm: bool,
    /// The secret that the refusal is about.
    pub(super) secret: Option<String>,
    /// Seconds after which the request may be retried.
    pub(super) retry_after_s: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self { status, what: what.into(), alarm: false, secret: None, retry_after_s: None }
    }

    pub(super) fn forbidden(what: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, what)
    }

    fn alarm(what: impl Into<String>, grant: &Grant) -> Self {
        Self { alarm: true, secret: Some(grant.name.to_string()), ..Self::forbidden(what) }
    }
}

/// Refuses a request that is not for the host of its connection (E-T1 to E-T4).
pub(super) fn check_authority(
    uri: &Uri,
    headers: &HeaderMap,
    destination: &Destination,
) -> Result<(), Refusal> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let bad = |what: &str| Refusal::new(StatusCode::BAD_REQUEST, what);
    let mut names = Vec::new();
    if let Some(authority) = uri.authority() {
        names.push(authority.as_str());
    }
    match hosts.as_slice() {
        [] => {}
        [host] => names.push(host.to_str().map_err(|_| bad("the Host is not a host name"))?),
        _ => return Err(bad("there is more than one Host")),
    }
    if names.is_empty() {
        return Err(bad("the request names no host"));
    }
    for text in names {
        let (host, port) = split_authority(text).ok_or_else(|| bad("the Host is not a host name"))?;
        if host != destination.host || port.is_some_and(|port| port != destination.port) {
            let what =
                format!("the connection is for `{}`, but the request is for another host", destination.host);
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, what));
        }
    }
    Ok(())
}

pub(super) fn split_authority(text: &str) -> Option<(Host, Option<u16>)> {
    if text.contains('@') {
        return None;
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            (host, Some(port.parse().ok().filter(|_| digits)?))
        }
        Some(_) | None => (text, None),
    };
    Some((host.parse().ok()?, port))
}

/// Refuses methods that are never forwarded: one opens a tunnel, the other echoes its input (E-T7).
pub(super) fn check_method(method: &Method) -> Result<(), Refusal> {
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(Refusal::forbidden(format!("{method} is not allowed")));
    }
    Ok(())
}

/// Whether the head of a request contains a placeholder. Most contain none; its position matters only if there is
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholders {
    Absent,
    Present,
}

impl Placeholders {
    /// `forms` are those of all placeholders.
    pub(super) fn in_head(forms: &Forms, target: &Uri, headers: &HeaderMap) -> Self {
        let found = !forms.is_empty()
            && (in_text(forms, target.path())
                || in_text(forms, target.query().unwrap_or_default())
                || headers.iter().any(|(name, value)| {
                    in_value(forms, value.as_bytes()) || forms.are_in(name.as_str().as_bytes())
                }));
        if found { Self::Present } else { Self::Absent }
    }
}

/// The properties of a request that rules match.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTarget<'a> {
    pub(super) host: &'a HostName,
    pub(super) port: u16,
    pub(super) method: &'a str,
    /// In its normal form.
    pub(super) path: &'a str,
}

/// The rule that covers a request, and the secret to insert.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRule<'a> {
    pub(super) rule: &'a RequestRule,
    pub(super) grant: Option<&'a Grant>,
}

/// Finds the first rule that covers a request. `headers_only` is the rule of a host that is decrypted only for its
/// headers; it applies if no rule is about the host, and inserts no secret.
pub(super) fn rule<'a>(
    directives: &'a Directives,
    headers_only: Option<&'a RequestRule>,
    asked: RequestTarget<'_>,
    placeholders: Placeholders,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<MatchedRule<'a>, Refusal> {
    let covers = |rule: &&RequestRule| rule.scope.covers(asked.host, asked.port, asked.method, asked.path);
    if let Some(rule) = headers_only
        && !directives.rules.iter().any(|rule| rule.scope.covers_host(asked.host, asked.port))
    {
        return Ok(MatchedRule { rule, grant: None });
    }
    let rule = directives.rules.iter().find(covers).ok_or_else(|| {
        let RequestTarget { host, method, path, .. } = asked;
        Refusal::forbidden(format!("no rule allows {method} {path} of `{host}`"))
    })?;
    // Only on connections that are not decrypted does such a rule allow unseen requests; here its scope applies like
    // any other.
    if rule.mode == RuleMode::Sni {
        return Ok(MatchedRule { rule, grant: None });
    }
    let grant =
        match &rule.secret {
            Some(name) => {
                let grant = directives.grants.iter().find(|grant| grant.name == *name);
                Some(grant.ok_or_else(|| {
                    Refusal::forbidden(format!("there is no secret `{name}` for this sandbox"))
                })?)
            }
            None if placeholders == Placeholders::Absent => None,
            None => directives.grants.iter().find(|grant| is_in_its_slot(grant, headers, query)),
        };
    if let Some(grant) = grant {
        let within = |scope: &burrow_model::network::RequestScope| {
            scope.covers(asked.host, asked.port, asked.method, asked.path)
        };
        if !grant.allow.iter().any(within) {
            let what = format!("the owner of the secret `{}` does not allow it for this request", grant.name);
            return Err(Refusal { secret: Some(grant.name.to_string()), ..Refusal::forbidden(what) });
        }
    }
    Ok(MatchedRule { rule, grant })
}

/// Whether the placeholder of a secret is in the position where the secret would be inserted.
fn is_in_its_slot(grant: &Grant, headers: &HeaderMap, query: Option<&str>) -> bool {
    let Some(placeholder) = &grant.placeholder else { return false };
    let forms = Forms::any_case([placeholder.expose()]);
    match (&grant.slot, slots::header_of(&grant.slot)) {
        (_, Some(name)) => headers.get_all(name).iter().any(|value| in_value(&forms, value.as_bytes())),
        (Slot::Query { name }, None) => {
            let query = query.unwrap_or_default();
            let rest = slots::without_parameter(query, name.as_str());
            rest.len() != query.len() && in_text(&forms, query) && !in_text(&forms, &rest)
        }
        (_, None) => false,
    }
}

/// Refuses a request whose head contains a placeholder in any position other than that of the inserted secret, or
/// another credential header, which the insertion removes (E-S6).
pub(super) fn check_placeholders(
    directives: &Directives,
    going: Option<&Grant>,
    target: &Uri,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    for grant in &directives.grants {
        let Some(placeholder) = &grant.placeholder else { continue };
        let forms = Forms::any_case([placeholder.expose()]);
        let own = going.is_some_and(|going| going.name == grant.name);
        let slot = own.then(|| slots::header_of(&grant.slot)).flatten();
        let elsewhere = |(name, value): (&HeaderName, &http::HeaderValue)| {
            slot.as_ref() != Some(name)
                && !(own && slots::is_for_keys(name))
                && (in_value(&forms, value.as_bytes()) || forms.are_in(name.as_str().as_bytes()))
        };
        if headers.iter().any(elsewhere) {
            return Err(Refusal::alarm("a placeholder is in the wrong header", grant));
        }
        let query = target.query().unwrap_or_default();
        let query = match &grant.slot {
            Slot::Query { name } if own => slots::without_parameter(query, name.as_str()),
            Slot::Query { .. }
            | Slot::Header { .. }
            | Slot::GrpcMetadata { .. }
            | Slot::Basic { .. }
            | Slot::ClientCert => query.to_owned(),
        };
        if in_text(&forms, target.path()) || in_text(&forms, &query) {
            return Err(Refusal::alarm("a placeholder is in the URL", grant));
        }
    }
    Ok(())
}

/// Refuses a request whose head contains a placeholder that does not belong to this sandbox: from another lineage, an
/// outdated one, or a guess (E-S7). `any` matches all placeholders, `own` those of the sandbox.
pub(super) fn check_foreign(
    own: &Forms,
    any: &Forms,
    target: &Uri,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let foreign = |bytes: &[u8]| any.are_in(&own.blot(bytes).unwrap_or_else(|| bytes.to_vec()));
    let in_text = |text: &str| foreign(text.as_bytes()) || foreign(&slots::decoded(text));
    let in_header = |(name, value): (&HeaderName, &http::HeaderValue)| {
        foreign(name.as_str().as_bytes())
            || foreign(value.as_bytes())
            || std::str::from_utf8(value.as_bytes()).is_ok_and(|text| foreign(&slots::decoded(text)))
    };
    let in_url = in_text(target.path()) || in_text(target.query().unwrap_or_default());
    if in_url || headers.iter().any(in_header) {
        let what = "the request contains a placeholder that does not belong to this sandbox";
        return Err(Refusal { alarm: true, ..Refusal::forbidden(what) });
    }
    Ok(())
}

/// `text` without placeholders. For unknown ones, the characters after the mark are removed too.
pub(super) fn without_placeholders(placeholders: &Forms, text: &str) -> String {
    let Some(blotted) = placeholders.blot(text.as_bytes()) else { return text.to_owned() };
    let mut clean = String::with_capacity(blotted.len());
    for c in String::from_utf8_lossy(&blotted).chars() {
        let goes = clean.ends_with('*') && c.is_ascii_alphanumeric();
        clean.push(if goes { '*' } else { c });
    }
    clean
}

fn in_text(forms: &Forms, text: &str) -> bool {
    forms.are_in(text.as_bytes()) || forms.are_in(&slots::decoded(text))
}

fn in_value(forms: &Forms, value: &[u8]) -> bool {
    forms.are_in(value) || std::str::from_utf8(value).is_ok_and(|text| forms.are_in(&slots::decoded(text)))
}

#[cfg(test)]
mod tests {
    use burrow_model::SecretBytes;
    use burrow_model::network::RequestScope;

    use super::*;

    fn scope(host: &str, methods: &[&str], paths: &[&str]) -> RequestScope {
        RequestScope {
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
            ..RequestScope::of(host.parse().unwrap())
        }
    }

    fn directives() -> Directives {
        let rule = |scope, secret: Option<&str>| RequestRule {
            scope,
            mode: RuleMode::Intercept,
            secret: secret.map(|name| name.parse().unwrap()),
            budget: None,
            approve: None,
        };
        let grant = Grant {
            name: "key".parse().unwrap(),
            version: 1,
            slot: Slot::Header {
                name: "authorization".parse().unwrap(),
                format: "Bearer {}".parse().unwrap(),
            },
            value: SecretBytes::new(b"the-real-one".to_vec()),
            allow: vec![scope("api.example", &["POST"], &["/v1/**"])],
            placeholder: Some(SecretBytes::new(b"fake-0123456789".to_vec())),
            former: Vec::new(),
        };
        Directives {
            tenant: burrow_model::TenantId::generate(),
            generation: 1,
            authority: None,
            rules: vec![
                rule(scope("api.example", &["POST"], &["/v1/**", "/v2/**"]), Some("key")),
                rule(scope("api.example", &["GET"], &["/public/**"]), None),
                rule(scope("other.example", &[], &[]), Some("gone")),
            ],
            grants: vec![grant],
            transforms: Vec::new(),
        }
    }

    fn decide(method: &str, host: &str, path: &str) -> Result<bool, String> {
        let directives = directives();
        let host = host.parse().unwrap();
        let asked = RequestTarget { host: &host, port: 443, method, path };
        rule(&directives, None, asked, Placeholders::Present, &HeaderMap::new(), None)
            .map(|ruled| ruled.grant.is_some())
            .map_err(|refusal| refusal.what)
    }

    #[test]
    fn the_first_covering_rule_decides_within_the_owners_limits() {
        assert_eq!(decide("POST", "api.example", "/v1/chat"), Ok(true));
        assert_eq!(decide("GET", "api.example", "/public/x"), Ok(false));
        assert_eq!(
            decide("GET", "api.example", "/v1/chat").unwrap_err(),
            "no rule allows GET /v1/chat of `api.example`"
        );
        // E-S15: the rule allows it, the owner does not.
        assert_eq!(
            decide("POST", "api.example", "/v2/chat").unwrap_err(),
            "the owner of the secret `key` does not allow it for this request"
        );
        assert_eq!(
            decide("GET", "other.example", "/").unwrap_err(),
            "there is no secret `gone` for this sandbox"
        );
    }

    #[test]
    fn a_host_decrypted_for_its_headers_gets_no_secret_and_other_rules_take_precedence() {
        let directives = directives();
        let headers_only =
            RequestRule { scope: scope("*.example", &[], &[]), secret: None, ..directives.rules[1].clone() };
        let decide = |host: &str, method: &str, path: &str| {
            let host = host.parse().unwrap();
            let asked = RequestTarget { host: &host, port: 443, method, path };
            let headers = HeaderMap::from_iter([(
                header::AUTHORIZATION,
                http::HeaderValue::from_static("Bearer fake-0123456789"),
            )]);
            rule(&directives, Some(&headers_only), asked, Placeholders::Present, &headers, None)
                .map(|ruled| (ruled.rule.to_string(), ruled.grant.is_some()))
                .map_err(|refusal| refusal.status.as_u16())
        };
        let by_headers = Ok(("https://*.example".to_owned(), false));
        assert_eq!(decide("free.example", "GET", "/x"), by_headers);
        assert!(decide("api.example", "POST", "/v1/chat").unwrap().1, "the rule about requests decides");
        assert_eq!(decide("api.example", "DELETE", "/x"), Err(403), "headers allow nothing");
    }

    #[test]
    fn e_t1_e_t2_e_t4_every_host_in_a_request_is_the_connections_host() {
        let destination = Destination { host: "api.example".parse().unwrap(), port: 443 };
        let status = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            let answer = check_authority(&uri.parse().unwrap(), &headers, &destination);
            answer.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
        };
        assert_eq!(status("/x", &["api.example"]), 200);
        assert_eq!(status("/x", &["API.example.:443"]), 200);
        assert_eq!(status("https://api.example/x", &[]), 200);
        assert_eq!(status("https://api.example/x", &["api.example"]), 200);
        assert_eq!(status("/x", &["evil.example"]), 421);
        assert_eq!(status("/x", &["api.example:8443"]), 421);
        assert_eq!(status("https://api.example/x", &["evil.example"]), 421);
        assert_eq!(status("https://evil.example/x", &["api.example"]), 421);
        assert_eq!(status("/x", &[]), 400);
        assert_eq!(status("/x", &["api.example", "api.example"]), 400);
        assert_eq!(status("/x", &["api.example:443@evil.example"]), 400);
        assert_eq!(status("/x", &["api.example:+443"]), 400);
        assert!(check_method(&Method::TRACE).is_err() && check_method(&Method::CONNECT).is_err());
    }

    #[test]
    fn e_s6_a_placeholder_is_allowed_only_in_its_own_position() {
        let directives = directives();
        let check = |going: bool, uri: &str, name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let going = going.then(|| &directives.grants[0]);
            check_placeholders(&directives, going, &uri.parse().unwrap(), &headers)
        };
        let fake = "fake-0123456789";
        assert!(check(true, "/v1/chat", "authorization", &format!("Bearer {fake}")).is_ok());
        // An SDK that fills another header than the one the owner chose: that header is removed when the secret is
        // inserted.
        assert!(check(true, "/v1/chat", "x-api-key", fake).is_ok());
        assert!(check(false, "/v1/chat", "x-api-key", fake).is_err());
        // To another host, or in a request without the secret.
        assert!(check(false, "/v1/chat", "authorization", &format!("Bearer {fake}")).is_err());
        let basic = data_encoding::BASE64.encode(format!("me:{fake}").as_bytes());
        for (uri, name, value) in [
            ("/v1/chat", "x-other", fake.to_owned()),
            ("/v1/chat", "x-other", fake.to_uppercase()),
            ("/v1/chat", "x-other", format!("Basic {basic}")),
            ("/v1/chat", "cookie", "a=fake%2D0123456789".to_owned()),
            ("/v1/fake-0123456789", "x-other", String::new()),
            ("/v1/chat?key=f%61ke-0123456789", "x-other", String::new()),
        ] {
            let refused = check(true, uri, name, &value).unwrap_err();
            assert!(refused.alarm && refused.status == 403, "{uri} {value}");
            assert!(!refused.what.contains("fake"), "{}", refused.what);
        }
    }

    #[test]
    fn e_s7_a_placeholder_of_another_lineage_is_detected_by_its_mark() {
        let mark = burrow_model::PLACEHOLDER_MARK;
        let (ours, theirs) = (format!("sk-{mark}0123456789"), format!("sk-{mark}9876543210"));
        let own = Forms::any_case([ours.as_bytes()]);
        let any = Forms::any_case([ours.as_bytes(), mark.as_bytes()]);
        let check = |uri: &str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            check_foreign(&own, &any, &uri.parse().unwrap(), &headers)
        };
        let base64 = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
        assert!(check("/v1/chat", "Bearer mine").is_ok());
        assert!(check("/v1/chat", &format!("Bearer {ours}")).is_ok());
        assert!(check("/v1/chat", &format!("Basic {}", base64(&format!("me:{ours}")))).is_ok());
        for (uri, value) in [
            ("/v1/chat".to_owned(), format!("Bearer {theirs}")),
            ("/v1/chat".to_owned(), format!("Bearer {}", theirs.to_lowercase())),
            ("/v1/chat".to_owned(), format!("Bearer {ours}, Bearer {theirs}")),
            ("/v1/chat".to_owned(), format!("Basic {}", base64(&format!("me:{theirs}")))),
            ("/v1/chat".to_owned(), format!("Bearer {}", theirs.replace('q', "%71"))),
            (format!("/v1/{theirs}"), String::new()),
            (format!("/v1/chat?key={theirs}"), String::new()),
        ] {
            let refused = check(&uri, &value).unwrap_err();
            assert!(refused.alarm && refused.status == 403, "{uri} {value}");
        }
        assert_eq!(without_placeholders(&any, &format!("/v1/{theirs}/x")), "/v1/sk-**********************/x");
        assert_eq!(without_placeholders(&any, &format!("/v1/{ours}/x")), "/v1/*************************/x");
        assert_eq!(without_placeholders(&any, "/v1/chat"), "/v1/chat");
    }

    #[test]
    fn a_placeholder_in_its_position_causes_injection_without_a_rule() {
        let mut directives = directives();
        directives.rules[0].secret = None;
        let host = "api.example".parse().unwrap();
        let asked = RequestTarget { host: &host, port: 443, method: "POST", path: "/v1/chat" };
        let mut headers = HeaderMap::new();
        assert!(
            rule(&directives, None, asked, Placeholders::Present, &headers, None).unwrap().grant.is_none()
        );
        headers.insert(header::AUTHORIZATION, "Bearer fake-0123456789".parse().unwrap());
        assert!(
            rule(&directives, None, asked, Placeholders::Present, &headers, None).unwrap().grant.is_some()
        );
        let beyond = RequestTarget { path: "/v2/chat", ..asked };
        assert_eq!(
            rule(&directives, None, beyond, Placeholders::Present, &headers, None).unwrap_err().status,
            403
        );
    }
}
