//! Decides who may open a port: clients with the owner's key or a signed link, or, if it is published, everyone.
//!
//! ```text
//!   key        X-Burrow-Key, or a Burrow key as X-API-Key or Authorization: Bearer     scope `exec`
//!   link       ?burrow_token=…, on every request                                        until it expires
//!   cookie     the same token, set by opening the link in a browser                     host form only
//!   token      E2B's e2b-traffic-access-token, or X-Access-Token                        while the sandbox exists
//!   public     nothing                                                                  `port publish`, or its lease
//! ```
//!
//! Clients without credentials learn nothing: the responses for an unknown sandbox, a foreign sandbox and a private
//! port are the same. (Sandboxes that an E2B client created are the exception: private ports respond 403 as in E2B, and
//! with `gateway.e2b_public_ports` a deleted sandbox responds 502. Their ids contain 100 random bits, so they cannot be
//! guessed.) With a key, the response for a foreign sandbox is the same as for an unknown one.
//!
//! All credentials of Burrow are removed from the request before it is forwarded, including invalid ones: a sandbox
//! must never see a key of its owner. Any other `Authorization` or cookie belongs to the application and is forwarded.

use axum::body::Body;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_catalog::{KeyRow, KeySecret};
use burrow_engine::{EngineError, ObjectKind};
use burrow_model::{SandboxId, Scope, ScopeSet, TenantId};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, COOKIE, LOCATION, ORIGIN, REFERER, REFERRER_POLICY, SET_COOKIE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::address::{self, Form, Target};
use super::admitted::{AdmittedBy, AdmittedRequest};
use super::headers::is_upgrade;
use super::page::takes_html;
use crate::gateway::Gateway;
use burrow_http::app::App;
use burrow_http::auth::is_in_family;
use burrow_http::error::ApiError;
use burrow_http::request_target::CODE_PORT;
use burrow_http::signer::{Claim, TOKEN_PREFIX};

const BURROW_KEY: HeaderName = HeaderName::from_static("x-burrow-key");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// The query parameter of a signed link.
pub(super) const TOKEN_PARAMETER: &str = "burrow_token";

/// Over TLS, browsers accept a cookie with this prefix only from this exact host.
const COOKIE_SECURE: &str = "__Host-burrow-port";
const COOKIE_PLAIN: &str = "burrow-port";

/// The credentials of a request, which are removed from it.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    key: Option<String>,
    query: Option<String>,
    cookie: Option<String>,
    /// The token header of E2B's clients.
    token: Option<String>,
}

impl Credentials {
    pub(super) fn take(parts: &mut Parts, form: &Form, https: bool) -> Self {
        let key = take_key(&mut parts.headers);
        let query = take_token(&mut parts.uri);
        let cookie = take_cookie(&mut parts.headers, form, https);
        // A page that was opened by its link sends this address as the referer of everything it loads.
        let tells = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).contains(TOKEN_PARAMETER);
        if parts.headers.get(REFERER).is_some_and(tells) {
            parts.headers.remove(REFERER);
        }
        Self { key, query, cookie, token: take_access_token(&mut parts.headers) }
    }

    /// Whether there is a key, a link or a cookie, which E2B's clients do not send to ports.
    pub(super) fn has_own(&self) -> bool {
        self.key.is_some() || self.query.is_some() || self.cookie.is_some()
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

/// A Burrow key in any of the headers. The first one is used, and all are removed.
fn take_key(headers: &mut HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    let named = headers.get(BURROW_KEY).map(text);
    headers.remove(BURROW_KEY);
    let is_key = |text: &str| text.parse::<KeySecret>().is_ok();
    let api = drain(headers, &API_KEY, |value| Some(text(value)).filter(|text| is_key(text)));
    let bearer = drain(headers, &AUTHORIZATION, |value| {
        let text = text(value);
        let (scheme, secret) = text.split_once(' ')?;
        let secret = secret.trim();
        (scheme.eq_ignore_ascii_case("bearer") && is_key(secret)).then(|| secret.to_owned())
    });
    named.or(api).or(bearer)
}

/// The token for ports, under E2B's name; and the token for envd, which a sandbox must not see either. Headers that
/// select the sandbox are removed as well.
fn take_access_token(headers: &mut HeaderMap) -> Option<String> {
    for name in ["e2b-sandbox-id", "e2b-sandbox-port"] {
        headers.remove(name);
    }
    let mut taken = None;
    for name in [TRAFFIC_TOKEN, ACCESS_TOKEN] {
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        // Applications may have their own tokens with that name.
        let ours = drain(headers, &name, |value| text(value).filter(|text| text.starts_with(TOKEN_PREFIX)));
        taken = taken.or(ours);
    }
    taken
}

/// Removes the values of a header that `ours` recognises; returns the first.
fn drain(
    headers: &mut HeaderMap,
    name: &HeaderName,
    ours: impl Fn(&HeaderValue) -> Option<String>,
) -> Option<String> {
    let found = headers.get_all(name).iter().find_map(&ours)?;
    let others: Vec<HeaderValue> =
        headers.get_all(name).iter().filter(|value| ours(value).is_none()).cloned().collect();
    headers.remove(name);
    for value in others {
        headers.append(name, value);
    }
    Some(found)
}

/// Removes the token from the query; the rest is kept byte by byte.
fn take_token(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let is_token = |pair: &&str| pair.split('=').next() == Some(TOKEN_PARAMETER);
    let token = query.split('&').find(is_token)?;
    let token = token.split_once('=').map_or("", |(_, value)| value).to_owned();
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_token(pair)).collect();
    let target = match rest.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), rest.join("&")),
    };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(target.parse().expect("a part of a query is a query"));
    *uri = Uri::from_parts(parts).expect("the other parts are as they were");
    Some(token)
}

/// Removes our cookie. Several header lines with cookies become one, as HTTP/1.1 requires; with the path form all
/// cookies belong to the API's origin, and are not forwarded to the sandbox. Over HTTPS only the name with the prefix
/// is used: any page below the same domain can set a cookie with the other name.
fn take_cookie(headers: &mut HeaderMap, form: &Form, https: bool) -> Option<String> {
    if !headers.contains_key(COOKIE) {
        return None;
    }
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    if matches!(form, Form::Path { .. }) {
        return None;
    }
    let mut token = None;
    let mut rest: Vec<u8> = Vec::new();
    for pair in lines.iter().flat_map(|line| line.as_bytes().split(|b| *b == b';')) {
        let pair = pair.trim_ascii();
        let (name, value) = match pair.iter().position(|b| *b == b'=') {
            Some(place) => (&pair[..place], &pair[place + 1..]),
            None => (&[][..], pair),
        };
        if name == COOKIE_SECURE.as_bytes() || name == COOKIE_PLAIN.as_bytes() {
            let counts = name == cookie_name(https).as_bytes();
            token = token.or_else(|| String::from_utf8(value.to_vec()).ok().filter(|_| counts));
        } else if !pair.is_empty() {
            if !rest.is_empty() {
                rest.extend_from_slice(b"; ");
            }
            rest.extend_from_slice(pair);
        }
    }
    if !rest.is_empty() {
        headers.insert(COOKIE, HeaderValue::from_bytes(&rest).expect("parts of a header value are one"));
    }
    token
}

/// The cookie name that is set and read.
fn cookie_name(https: bool) -> &'static str {
    if https { COOKIE_SECURE } else { COOKIE_PLAIN }
}

/// Whether a cookie that a sandbox sets has our name.
pub(super) fn is_own_cookie(set_cookie: &[u8]) -> bool {
    let name = set_cookie.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
    name == COOKIE_SECURE.as_bytes() || name == COOKIE_PLAIN.as_bytes()
}

pub(super) async fn admit(
    app: &App,
    target: &Target,
    credentials: &Credentials,
    parts: &Parts,
) -> Result<AdmittedRequest, ApiError> {
    let refusal = match by_credentials(app, target, credentials, parts).await {
        Ok(admitted) => return Ok(admitted),
        Err(refusal) => refusal,
    };
    // Running code is as powerful as running a command: that port always requires credentials.
    if target.port == CODE_PORT {
        return Err(refusal);
    }
    // A public port is open to everyone, including clients with invalid credentials.
    match public(app, target).await? {
        Some(admitted) => Ok(admitted),
        None => Err(refusal),
    }
}

/// Whether a request has the token of a sandbox that was deleted. Clients with the token may learn that.
pub(super) async fn opens_gone(
    app: &App,
    target: &Target,
    credentials: &Credentials,
) -> Result<bool, ApiError> {
    let (Some(token), Ok(sandbox)) = (&credentials.token, target.sandbox.parse::<SandboxId>()) else {
        return Ok(false);
    };
    Ok(app.engine.owner(&sandbox).is_none() && crate::e2b::tokens::opens_ports(app, &sandbox, token).await?)
}

/// Whether no sandbox has this id, if ports of E2B sandboxes are public. Then, as in E2B, a request requires no
/// credentials to learn that a sandbox was deleted.
pub(super) fn is_open_and_gone(app: &App, target: &Target) -> bool {
    app.config.gateway.e2b_public_ports
        && target.port != CODE_PORT
        && target.sandbox.parse::<SandboxId>().is_ok_and(|sandbox| app.engine.owner(&sandbox).is_none())
}

async fn by_credentials(
    app: &App,
    target: &Target,
    credentials: &Credentials,
    parts: &Parts,
) -> Result<AdmittedRequest, ApiError> {
    if let Some(secret) = &credentials.key {
        return by_key(app, target, secret).await;
    }
    if let Some(token) = &credentials.query {
        let claim = read(app, target, token).await?;
        let by = AdmittedBy::Link { expires_ms: claim.expires_ms };
        return by_claim(app, target, claim, by).await;
    }
    if let Some(token) = &credentials.cookie {
        let claim = read(app, target, token).await?;
        check_origin(parts)?;
        return by_claim(app, target, claim, AdmittedBy::Cookie).await;
    }
    if let (Some(token), Ok(sandbox)) = (&credentials.token, target.sandbox.parse::<SandboxId>())
        && crate::e2b::tokens::opens_ports(app, &sandbox, token).await?
        && let Some(tenant) = app.engine.owner(&sandbox)
    {
        let actor = Some(format!("token of {sandbox}"));
        return Ok(AdmittedRequest { tenant, sandbox, by: AdmittedBy::Token, actor });
    }
    let message = format!("port {} of sandbox `{}` is private", target.port, target.sandbox);
    Err(unauthorized(&message))
}

async fn by_key(app: &App, target: &Target, secret: &str) -> Result<AdmittedRequest, ApiError> {
    let key = app.engine.catalog().authenticate(secret, app.engine.now_ms());
    let key = key.ok_or_else(|| unauthorized("the API key is unknown, expired or revoked"))?;
    if !ScopeSet::new(key.scope).allows(Scope::Exec) {
        let message = format!("this key has the scope `{}`, and opening a port requires `exec`", key.scope);
        let hint = "list the scopes of keys with `burrow key ls`";
        return Err(ApiError::new(ErrorCode::Forbidden, message).hint(hint));
    }
    let sandbox = owned(app, &key, &target.sandbox).await?;
    let actor = Some(format!("{} {}", key.id, key.name));
    Ok(AdmittedRequest { tenant: key.tenant, sandbox, by: AdmittedBy::Key, actor })
}

/// The sandbox with this id or name, if the key may use it. The error for a foreign one is that for an unknown one.
async fn owned(app: &App, key: &KeyRow, text: &str) -> Result<SandboxId, ApiError> {
    let unknown =
        || ApiError::from(EngineError::NotFound { kind: ObjectKind::Sandbox, what: text.to_owned() });
    let id = match text.parse::<SandboxId>() {
        // A running sandbox is found without reading the catalog, which keeps requests cheap.
        Ok(id) if app.engine.running(&key.tenant, &id).is_some() => id,
        Ok(id) => app.engine.get(&key.tenant, &id).await?.id,
        Err(_) => app.engine.resolve(&key.tenant, text).await?.id,
    };
    match &key.sandbox {
        Some(bound) if *bound == id => Ok(id),
        Some(bound) if key.forks && is_in_family(app, &key.tenant, bound, &id).await? => Ok(id),
        Some(_) => Err(unknown()),
        None => Ok(id),
    }
}

async fn read(app: &App, target: &Target, token: &str) -> Result<Claim, ApiError> {
    let claim = app.part::<Gateway>().signer(app).await?.read(token);
    let claim = claim.filter(|claim| claim.port == target.port && claim.expires_ms > app.engine.now_ms());
    claim.ok_or_else(|| unauthorized("this link is not valid for this port, or has expired"))
}

async fn by_claim(
    app: &App,
    target: &Target,
    claim: Claim,
    by: AdmittedBy,
) -> Result<AdmittedRequest, ApiError> {
    let dead = || unauthorized("this link is not valid for this port, or has expired");
    let key = app.engine.catalog().usable_key(&claim.key, app.engine.now_ms()).ok_or_else(dead)?;
    if !ScopeSet::new(key.scope).allows(Scope::Exec) {
        return Err(dead());
    }
    let sandbox = owned(app, &key, &target.sandbox).await.map_err(|_| dead())?;
    if sandbox != claim.sandbox {
        return Err(dead());
    }
    let actor = Some(format!("{} {} by link", key.id, key.name));
    Ok(AdmittedRequest { tenant: key.tenant, sandbox, by, actor })
}

/// By whole id for all tenants; by name only in the default tenant, because names are unique per tenant only.
async fn public(app: &App, target: &Target) -> Result<Option<AdmittedRequest>, ApiError> {
    let catalog = app.engine.catalog();
    let sandbox = match target.sandbox.parse::<SandboxId>() {
        Ok(id) => id,
        Err(_) => match app.engine.resolve(&catalog.default_tenant(), &target.sandbox).await {
            Ok(row) if row.name.as_ref().is_some_and(|name| name.as_str() == target.sandbox) => row.id,
            Ok(_)
            | Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. } | EngineError::Catalog(_)) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        },
    };
    let tenant = match catalog.publisher(&sandbox, target.port) {
        Some(tenant) => Some(tenant),
        None => leased_out(app, &sandbox).await?,
    };
    Ok(tenant.map(|tenant| AdmittedRequest { tenant, sandbox, by: AdmittedBy::Public, actor: None }))
}

/// The owner of a sandbox whose ports are all public, as E2B's clients expect by default.
async fn leased_out(app: &App, sandbox: &SandboxId) -> Result<Option<TenantId>, ApiError> {
    let Some(tenant) = app.engine.owner(sandbox) else { return Ok(None) };
    match app.engine.get(&tenant, sandbox).await {
        Ok(row) if row.spec.lease.as_ref().is_some_and(|lease| lease.public) => Ok(Some(tenant)),
        Ok(_) | Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Browsers add cookies to requests of other origins. They prevent reading the responses across origins, but not
/// WebSockets and requests that change something.
fn check_origin(parts: &Parts) -> Result<(), ApiError> {
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let harmless = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    if harmless && !is_upgrade(&parts.headers) {
        return Ok(());
    }
    let host = address::authority(&parts.uri, &parts.headers).unwrap_or_default();
    let same = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    if same.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let message = "requests from other sites may not use this browser's cookie";
    Err(ApiError::new(ErrorCode::Forbidden, message)
        .hint("create a link for the other site with `burrow port url`"))
}

fn unauthorized(message: &str) -> ApiError {
    let hint = "its owner opens it with the header `X-Burrow-Key: e2b_…`, by a link from `burrow open`, or for \
                all clients with `burrow port publish`";
    ApiError::new(ErrorCode::Unauthorized, message).hint(hint)
}

/// A browser that opened a link gets the token as a cookie and is redirected to the address without it, because
/// addresses are copied, stored and displayed. Other programs, and WebSockets, are not redirected.
pub(super) fn remember(
    app: &App,
    target: &Target,
    admitted: &AdmittedRequest,
    credentials: &Credentials,
    parts: &Parts,
) -> Option<Response> {
    let AdmittedBy::Link { expires_ms } = admitted.by else { return None };
    let page = target.form == Form::Host && parts.method == Method::GET;
    if !page || is_upgrade(&parts.headers) || !takes_html(&parts.headers) {
        return None;
    }
    let token = credentials.query.as_deref()?;
    let seconds = expires_ms.saturating_sub(app.engine.now_ms()) / 1000;
    let https = app.config.gateway.https;
    let (name, secure) = (cookie_name(https), if https { "; Secure" } else { "" });
    let cookie = format!("{name}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let place = parts.uri.path_and_query().map_or("/", |place| place.as_str());
    // A path with two leading slashes would redirect the browser to another host.
    let place = if place.starts_with("//") { format!("/.{place}") } else { place.to_owned() };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(place).ok()?);
    headers.insert(SET_COOKIE, HeaderValue::try_from(cookie).ok()?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const KEY: &str = "e2b_00112233445566778899aabbccddeeff00112233";

    fn taken(uri: &str, form: &Form, headers: &[(&str, &str)]) -> (Credentials, Parts) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        (Credentials::take(&mut parts, form, uri.starts_with("https:")), parts)
    }

    fn left(parts: &Parts) -> Vec<(String, String)> {
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        parts.headers.iter().map(pair).collect()
    }

    #[test]
    fn a_key_is_removed_from_all_headers() {
        for (name, value) in [
            ("x-burrow-key", KEY.to_owned()),
            ("x-api-key", KEY.to_owned()),
            ("authorization", format!("Bearer {KEY}")),
            ("authorization", format!("bearer  {KEY} ")),
        ] {
            let (credentials, parts) = taken("/", &Form::Host, &[(name, &value)]);
            assert_eq!(credentials.key.as_deref(), Some(KEY), "{name}");
            assert_eq!(left(&parts), [], "{name}");
        }
        let (credentials, parts) = taken("/", &Form::Host, &[("x-burrow-key", "nonsense")]);
        assert_eq!((credentials.key.as_deref(), left(&parts)), (Some("nonsense"), Vec::new()));
    }

    #[test]
    fn credentials_of_the_application_are_forwarded() {
        for (name, value) in [
            ("authorization", "Bearer eyJhbGciOi"),
            ("authorization", "Basic dXNlcjpwYXNz"),
            ("authorization", "Bearer e2b_short"),
            ("x-api-key", "sk-123"),
            ("cookie", "a=1; b=2"),
        ] {
            let (credentials, parts) = taken("/?x=1", &Form::Host, &[(name, value)]);
            assert_eq!(credentials.key, None);
            assert_eq!(left(&parts), [(name.to_owned(), value.to_owned())]);
        }
        let bearer = format!("Bearer {KEY}");
        let both = [("authorization", bearer.as_str()), ("authorization", "Basic x")];
        let (_, parts) = taken("/", &Form::Host, &both);
        assert_eq!(left(&parts), [("authorization".to_owned(), "Basic x".to_owned())]);
    }

    #[test]
    fn removing_the_token_keeps_the_rest_of_the_query() {
        for (uri, token, rest) in [
            ("/a?burrow_token=t", Some("t"), "/a"),
            ("/a?x=1&burrow_token=t&y=%2F+2", Some("t"), "/a?x=1&y=%2F+2"),
            ("/a?burrow_token=t&burrow_token=u", Some("t"), "/a"),
            ("/a?burrow_token", Some(""), "/a"),
            ("/a?burrow_tokens=t&&", None, "/a?burrow_tokens=t&&"),
            ("/a", None, "/a"),
            ("http://80-x.localhost/?burrow_token=t", Some("t"), "http://80-x.localhost/"),
        ] {
            let (credentials, parts) = taken(uri, &Form::Host, &[]);
            assert_eq!((credentials.query.as_deref(), parts.uri.to_string().as_str()), (token, rest));
        }
        let from = [("referer", "http://80-x.localhost/?burrow_token=t"), ("x", "y")];
        assert_eq!(left(&taken("/", &Form::Host, &from).1), [("x".to_owned(), "y".to_owned())]);
    }

    #[test]
    fn our_cookie_is_removed_and_the_others_become_one_line() {
        let lines = [("cookie", "a=1; burrow-port=tok"), ("cookie", "b=2;c")];
        let (credentials, parts) = taken("/", &Form::Host, &lines);
        assert_eq!(credentials.cookie.as_deref(), Some("tok"));
        assert_eq!(left(&parts), [("cookie".to_owned(), "a=1; b=2; c".to_owned())]);
        // Over HTTPS only the name that no other host can set is used; the other one is removed too.
        let both = [("cookie", "burrow-port=set-by-another-host; __Host-burrow-port=tok")];
        for (uri, token) in [("https://80-x.boxes.example/", "tok"), ("/", "set-by-another-host")] {
            let (credentials, parts) = taken(uri, &Form::Host, &both);
            assert_eq!((credentials.cookie.as_deref(), left(&parts)), (Some(token), Vec::new()), "{uri}");
        }
        let (credentials, _) =
            taken("https://80-x.boxes.example/", &Form::Host, &[("cookie", "burrow-port=tok")]);
        assert_eq!(credentials.cookie, None);
        let path = Form::Path { prefix: "/p/x/80".to_owned() };
        let (credentials, parts) = taken("/", &path, &lines);
        assert_eq!((credentials.cookie, left(&parts)), (None, Vec::new()), "the path form uses no cookies");
    }

    #[test]
    fn other_origins_may_not_use_the_cookie() {
        let check = |method: &str, headers: &[(&str, &str)]| {
            let mut request =
                Request::builder().method(method).uri("/").header("host", "80-x.localhost:7700");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            check_origin(&request.body(()).unwrap().into_parts().0).is_ok()
        };
        let upgrade = ("upgrade", "websocket");
        let connection = ("connection", "Upgrade");
        let own = ("origin", "http://80-x.localhost:7700");
        let other = ("origin", "http://90-y.localhost:7700");
        assert!(check("GET", &[other]));
        assert!(check("POST", &[own]));
        assert!(check("POST", &[]));
        assert!(check("GET", &[upgrade, connection, own]));
        assert!(check("GET", &[upgrade, connection]), "not a browser");
        assert!(!check("POST", &[other]));
        assert!(!check("GET", &[upgrade, connection, other]));
        assert!(!check("GET", &[upgrade, connection, ("origin", "null")]));
        assert!(!check("GET", &[upgrade, connection, ("origin", "http://80-x.localhost:7700.evil")]));
    }
}
