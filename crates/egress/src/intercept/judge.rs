//! Judges one request: is it for the host the connection is for, which rule covers it, and what may go into it.
//!
//! Pure. What the secret's owner allows is asked again here, whatever the rules say (E-S15).

use burrow_model::network::{RequestRule, RuleMode};
use burrow_model::{HostName, Slot};
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::scrub::Forms;
use super::slots;
use crate::policy::{Destination, Host};
use crate::{Directives, Grant};

/// Why a request is not passed on, and how that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) what: String,
    /// A sign of an attack, and not only of a wrong turn.
    pub(super) alarm: bool,
    /// The secret it is about.
    pub(super) secret: Option<String>,
    /// Seconds after which it may be tried again.
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

/// Refuses a request that is not for the connection's own host (E-T1 to E-T4).
pub(super) fn check_authority(
    uri: &Uri,
    headers: &HeaderMap,
    destination: &Destination,
) -> Result<(), Refusal> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let bad = |what: &str| Refusal::new(StatusCode::BAD_REQUEST, what);
    let mut told = Vec::new();
    if let Some(authority) = uri.authority() {
        told.push(authority.as_str());
    }
    match hosts.as_slice() {
        [] => {}
        [host] => told.push(host.to_str().map_err(|_| bad("the Host is not a host name"))?),
        _ => return Err(bad("there is more than one Host")),
    }
    if told.is_empty() {
        return Err(bad("the request names no host"));
    }
    for text in told {
        let (host, port) = split_authority(text).ok_or_else(|| bad("the Host is not a host name"))?;
        if host != destination.host || port.is_some_and(|port| port != destination.port) {
            let what =
                format!("the connection is for `{}`, and the request for another host", destination.host);
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

/// Methods that are never passed on: one opens a tunnel, the other echoes what it gets (E-T7).
pub(super) fn check_method(method: &Method) -> Result<(), Refusal> {
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(Refusal::forbidden(format!("{method} is not allowed")));
    }
    Ok(())
}

/// Whether there is a placeholder in the head of a request. Most have none, and where it is matters only if there is one.
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) host: &'a HostName,
    pub(super) port: u16,
    pub(super) method: &'a str,
    /// In its normal form.
    pub(super) path: &'a str,
}

/// The rule that decides, and the secret that goes along.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruled<'a> {
    pub(super) rule: &'a RequestRule,
    pub(super) grant: Option<&'a Grant>,
}

/// Finds the first rule that covers a request.
pub(super) fn rule<'a>(
    directives: &'a Directives,
    asked: Asked<'_>,
    placeholders: Placeholders,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Ruled<'a>, Refusal> {
    let covers = |rule: &&RequestRule| rule.scope.covers(asked.host, asked.port, asked.method, asked.path);
    let rule = directives.rules.iter().find(covers).ok_or_else(|| {
        let Asked { host, method, path, .. } = asked;
        Refusal::forbidden(format!("no rule allows {method} {path} of `{host}`"))
    })?;
    // Only where nothing is decrypted does such a rule let through what nobody sees; here it is as good as its scope.
    if rule.mode == RuleMode::Sni {
        return Ok(Ruled { rule, grant: None });
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
            let what = format!("the owner of the secret `{}` does not allow it here", grant.name);
            return Err(Refusal { secret: Some(grant.name.to_string()), ..Refusal::forbidden(what) });
        }
    }
    Ok(Ruled { rule, grant })
}

/// Whether the placeholder of a secret stands where the secret would.
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

/// Refuses a request in whose head a placeholder stands anywhere but in the slot of the secret that goes along, or in
/// another header for keys, which that secret has taken away (E-S6).
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
            return Err(Refusal::alarm("a placeholder stands in a header that is not its own", grant));
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
            return Err(Refusal::alarm("a placeholder stands in the URL", grant));
        }
    }
    Ok(())
}

/// Refuses a request in whose head a placeholder stands that is not this sandbox's own: one of another lineage, one from
/// before, or a guess (E-S7). `any` are the forms of all placeholders, `own` those of the sandbox.
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
        let what = "a placeholder that is not this sandbox's stands in the request";
        return Err(Refusal { alarm: true, ..Refusal::forbidden(what) });
    }
    Ok(())
}

/// `text` without placeholders; of those that are not known, what follows the mark goes with it.
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
        }
    }

    fn decide(method: &str, host: &str, path: &str) -> Result<bool, String> {
        let directives = directives();
        let host = host.parse().unwrap();
        let asked = Asked { host: &host, port: 443, method, path };
        rule(&directives, asked, Placeholders::Present, &HeaderMap::new(), None)
            .map(|ruled| ruled.grant.is_some())
            .map_err(|refusal| refusal.what)
    }

    #[test]
    fn the_first_rule_that_covers_decides_and_the_owners_ceiling_holds() {
        assert_eq!(decide("POST", "api.example", "/v1/chat"), Ok(true));
        assert_eq!(decide("GET", "api.example", "/public/x"), Ok(false));
        assert_eq!(
            decide("GET", "api.example", "/v1/chat").unwrap_err(),
            "no rule allows GET /v1/chat of `api.example`"
        );
        // E-S15: the rule says yes, the owner does not.
        assert_eq!(
            decide("POST", "api.example", "/v2/chat").unwrap_err(),
            "the owner of the secret `key` does not allow it here"
        );
        assert_eq!(
            decide("GET", "other.example", "/").unwrap_err(),
            "there is no secret `gone` for this sandbox"
        );
    }

    #[test]
    fn e_t1_e_t2_e_t4_every_name_in_a_request_is_the_connections() {
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
    fn e_s6_a_placeholder_belongs_into_its_own_slot_and_nowhere_else() {
        let directives = directives();
        let check = |going: bool, uri: &str, name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let going = going.then(|| &directives.grants[0]);
            check_placeholders(&directives, going, &uri.parse().unwrap(), &headers)
        };
        let fake = "fake-0123456789";
        assert!(check(true, "/v1/chat", "authorization", &format!("Bearer {fake}")).is_ok());
        // An SDK that fills another header than the owner chose: it is taken away as the secret is put in.
        assert!(check(true, "/v1/chat", "x-api-key", fake).is_ok());
        assert!(check(false, "/v1/chat", "x-api-key", fake).is_err());
        // To another host, or without the secret going along.
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
    fn e_s7_a_placeholder_of_another_lineage_is_told_by_its_mark() {
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
    fn a_placeholder_in_its_slot_brings_the_secret_along_where_no_rule_names_it() {
        let mut directives = directives();
        directives.rules[0].secret = None;
        let host = "api.example".parse().unwrap();
        let asked = Asked { host: &host, port: 443, method: "POST", path: "/v1/chat" };
        let mut headers = HeaderMap::new();
        assert!(rule(&directives, asked, Placeholders::Present, &headers, None).unwrap().grant.is_none());
        headers.insert(header::AUTHORIZATION, "Bearer fake-0123456789".parse().unwrap());
        assert!(rule(&directives, asked, Placeholders::Present, &headers, None).unwrap().grant.is_some());
        let beyond = Asked { path: "/v2/chat", ..asked };
        assert_eq!(rule(&directives, beyond, Placeholders::Present, &headers, None).unwrap_err().status, 403);
    }
}
