//! Who may open a port: the owner's key, whoever has a signed link, or, if it is published, anybody.
//!
//! ```text
//!   key        X-Burrow-Key, or a Burrow key as X-API-Key or Authorization: Bearer     scope `exec`
//!   link       ?burrow_token=…, on every request                                        until it expires
//!   cookie     the same token, set by opening the link in a browser                     host form only
//!   token      E2B's e2b-traffic-access-token, or X-Access-Token                        while the sandbox exists
//!   public     nothing                                                                  `port publish`, or its lease
//! ```
//!
//! Whoever has no credentials learns nothing: an unknown sandbox, a foreign one and a private port answer alike. (Sandboxes that a
//! client of E2B made are the exception: theirs answer 403 as E2B's do. Their ids hold 100 random bits, so none is guessed.) With
//! a key, a foreign sandbox answers exactly as an unknown one.
//!
//! Everything of ours is taken out of the request before it goes on, also what turned out to be worthless: a sandbox
//! must never see a key of its owner's. Any other `Authorization` or cookie is the application's and passes.

use axum::body::Body;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_catalog::{KeyRow, KeySecret};
use burrow_engine::EngineError;
use burrow_model::{SandboxId, Scope, ScopeSet, TenantId};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, COOKIE, LOCATION, ORIGIN, REFERER, REFERRER_POLICY, SET_COOKIE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::address::{self, Form, Target};
use super::headers::is_upgrade;
use super::page::takes_html;
use super::token::{Claim, TOKEN_PREFIX};
use crate::code::CODE_PORT;
use crate::rest::App;
use crate::rest::error::ApiError;

const BURROW_KEY: HeaderName = HeaderName::from_static("x-burrow-key");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// The query parameter of a signed link.
pub(super) const TOKEN_PARAMETER: &str = "burrow_token";

/// Over TLS the prefix makes browsers refuse a cookie of that name from anybody but this very host.
const COOKIE_SECURE: &str = "__Host-burrow-port";
const COOKIE_PLAIN: &str = "burrow-port";

/// What a request brought along to be let in. Taken out of it.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    key: Option<String>,
    query: Option<String>,
    cookie: Option<String>,
    /// As E2B's clients send it.
    token: Option<String>,
}

/// A request that may go on.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) by: By,
    /// For the audit log; nobody in particular where the port is public.
    pub(super) actor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    Key,
    Link { expires_ms: u64 },
    Cookie,
    Token,
    Public,
}

impl Credentials {
    pub(super) fn take(parts: &mut Parts, form: &Form, https: bool) -> Self {
        let key = take_key(&mut parts.headers);
        let query = take_token(&mut parts.uri);
        let cookie = take_cookie(&mut parts.headers, form, https);
        // A page that was opened by its link tells the address it came from to whatever it loads.
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

/// A Burrow key, wherever it stands. Of several, the first counts and all go.
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

/// What opens ports, by E2B's name; and what opens envd, which a sandbox must not get to see either. Where the sandbox stands
/// in headers, they have done their work.
fn take_access_token(headers: &mut HeaderMap) -> Option<String> {
    for name in ["e2b-sandbox-id", "e2b-sandbox-port"] {
        headers.remove(name);
    }
    let mut taken = None;
    for name in [TRAFFIC_TOKEN, ACCESS_TOKEN] {
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        // Applications may have tokens of that name themselves.
        let ours = drain(headers, &name, |value| text(value).filter(|text| text.starts_with(TOKEN_PREFIX)));
        taken = taken.or(ours);
    }
    taken
}

/// Removes the values of a header that `ours` recognises; answers the first.
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

/// The token of the query, which goes on without it, otherwise byte by byte as it came.
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

/// The token of the cookie. Cookies of several header lines become one, as HTTP/1.1 wants them; on the path form all
/// are the API origin's, and none of the sandbox's business. Over HTTPS only the name with the prefix counts: any page below the
/// same domain can set a cookie of the other one.
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

/// The one name that is set and read.
fn cookie_name(https: bool) -> &'static str {
    if https { COOKIE_SECURE } else { COOKIE_PLAIN }
}

/// Whether a cookie that a sandbox wants to set has our own name.
pub(super) fn is_own_cookie(set_cookie: &[u8]) -> bool {
    let name = set_cookie.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
    name == COOKIE_SECURE.as_bytes() || name == COOKIE_PLAIN.as_bytes()
}

pub(super) async fn admit(
    app: &App,
    target: &Target,
    credentials: &Credentials,
    parts: &Parts,
) -> Result<Admitted, ApiError> {
    let refusal = match by_credentials(app, target, credentials, parts).await {
        Ok(admitted) => return Ok(admitted),
        Err(refusal) => refusal,
    };
    // Running code is as much as a command: that port is not for anybody, whatever else is public.
    if target.port == CODE_PORT {
        return Err(refusal);
    }
    // Anybody is anybody, also one whose key or link is worth nothing here.
    match public(app, target).await? {
        Some(admitted) => Ok(admitted),
        None => Err(refusal),
    }
}

/// Whether a request brings the token of a sandbox that is gone. Who has the token may know that.
pub(super) async fn opens_gone(
    app: &App,
    target: &Target,
    credentials: &Credentials,
) -> Result<bool, ApiError> {
    let (Some(token), Ok(sandbox)) = (&credentials.token, target.sandbox.parse::<SandboxId>()) else {
        return Ok(false);
    };
    Ok(app.engine.owner(&sandbox).is_none() && crate::e2b::access::opens_ports(app, &sandbox, token).await?)
}

async fn by_credentials(
    app: &App,
    target: &Target,
    credentials: &Credentials,
    parts: &Parts,
) -> Result<Admitted, ApiError> {
    if let Some(secret) = &credentials.key {
        return by_key(app, target, secret).await;
    }
    if let Some(token) = &credentials.query {
        let claim = read(app, target, token).await?;
        let by = By::Link { expires_ms: claim.expires_ms };
        return by_claim(app, target, claim, by).await;
    }
    if let Some(token) = &credentials.cookie {
        let claim = read(app, target, token).await?;
        check_origin(parts)?;
        return by_claim(app, target, claim, By::Cookie).await;
    }
    if let (Some(token), Ok(sandbox)) = (&credentials.token, target.sandbox.parse::<SandboxId>())
        && crate::e2b::access::opens_ports(app, &sandbox, token).await?
        && let Some(tenant) = app.engine.owner(&sandbox)
    {
        let actor = Some(format!("token of {sandbox}"));
        return Ok(Admitted { tenant, sandbox, by: By::Token, actor });
    }
    let message = format!("port {} of sandbox `{}` is private", target.port, target.sandbox);
    Err(unauthorized(&message))
}

async fn by_key(app: &App, target: &Target, secret: &str) -> Result<Admitted, ApiError> {
    let key = app.engine.catalog().authenticate(secret, app.engine.now_ms());
    let key = key.ok_or_else(|| unauthorized("the API key is unknown, expired or revoked"))?;
    if !ScopeSet::new(key.scope).allows(Scope::Exec) {
        let message = format!("this key has the scope `{}`, and opening a port needs `exec`", key.scope);
        let hint = "`burrow key ls` shows what each key may do";
        return Err(ApiError::new(ErrorCode::Forbidden, message).hint(hint));
    }
    let sandbox = owned(app, &key, &target.sandbox).await?;
    let actor = Some(format!("{} {}", key.id, key.name));
    Ok(Admitted { tenant: key.tenant, sandbox, by: By::Key, actor })
}

/// The sandbox of this text, if it is one that the key reaches. A foreign one answers as an unknown one.
async fn owned(app: &App, key: &KeyRow, text: &str) -> Result<SandboxId, ApiError> {
    let unknown = || ApiError::from(EngineError::NotFound { what: text.to_owned() });
    let id = match text.parse::<SandboxId>() {
        // One that runs needs no look into the catalog, which is what makes requests cheap.
        Ok(id) if app.engine.running(&key.tenant, &id).is_some() => id,
        Ok(id) => app.engine.get(&key.tenant, &id).await?.id,
        Err(_) => app.engine.resolve(&key.tenant, text).await?.id,
    };
    match &key.sandbox {
        Some(bound) if *bound != id => Err(unknown()),
        Some(_) | None => Ok(id),
    }
}

async fn read(app: &App, target: &Target, token: &str) -> Result<Claim, ApiError> {
    let claim = app.gateway.signer(app).await?.read(token);
    let claim = claim.filter(|claim| claim.port == target.port && claim.expires_ms > app.engine.now_ms());
    claim.ok_or_else(|| unauthorized("this link does not open this port, or not any more"))
}

async fn by_claim(app: &App, target: &Target, claim: Claim, by: By) -> Result<Admitted, ApiError> {
    let dead = || unauthorized("this link does not open this port, or not any more");
    let key = app.engine.catalog().usable_key(&claim.key, app.engine.now_ms()).ok_or_else(dead)?;
    if !ScopeSet::new(key.scope).allows(Scope::Exec) {
        return Err(dead());
    }
    let sandbox = owned(app, &key, &target.sandbox).await.map_err(|_| dead())?;
    if sandbox != claim.sandbox {
        return Err(dead());
    }
    let actor = Some(format!("{} {} by link", key.id, key.name));
    Ok(Admitted { tenant: key.tenant, sandbox, by, actor })
}

/// By whole id whoever owns it; by name only in the default tenant, since names are each tenant's own.
async fn public(app: &App, target: &Target) -> Result<Option<Admitted>, ApiError> {
    let catalog = app.engine.catalog();
    let sandbox = match target.sandbox.parse::<SandboxId>() {
        Ok(id) => id,
        Err(_) => match app.engine.resolve(&catalog.default_tenant(), &target.sandbox).await {
            Ok(row) if row.name.as_ref().is_some_and(|name| name.as_str() == target.sandbox) => row.id,
            Ok(_) | Err(EngineError::NotFound { .. } | EngineError::Catalog(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        },
    };
    let tenant = match catalog.publisher(&sandbox, target.port) {
        Some(tenant) => Some(tenant),
        None => leased_out(app, &sandbox).await?,
    };
    Ok(tenant.map(|tenant| Admitted { tenant, sandbox, by: By::Public, actor: None }))
}

/// The owner of a sandbox all of whose ports are open to whoever knows its id, as E2B's clients take for granted.
async fn leased_out(app: &App, sandbox: &SandboxId) -> Result<Option<TenantId>, ApiError> {
    let Some(tenant) = app.engine.owner(sandbox) else { return Ok(None) };
    match app.engine.get(&tenant, sandbox).await {
        Ok(row) if row.spec.lease.as_ref().is_some_and(|lease| lease.public) => Ok(Some(tenant)),
        Ok(_) | Err(EngineError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Browsers send cookies along with what other origins ask for. Reading across origins they prevent by themselves; a
/// WebSocket, and a request that changes something, they do not.
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
    let message = "another site may not act with this browser's cookie";
    Err(ApiError::new(ErrorCode::Forbidden, message)
        .hint("give the other site a link of its own: `burrow port url` makes one"))
}

fn unauthorized(message: &str) -> ApiError {
    let hint = "its owner opens it with the header `X-Burrow-Key: e2b_…`, by a link from `burrow open`, or for \
                everybody with `burrow port publish`";
    ApiError::new(ErrorCode::Unauthorized, message).hint(hint)
}

/// A browser that opened a link gets the token as a cookie, and the address without it: an address is copied, kept and
/// shown. Programs, and WebSockets, go on as they are.
pub(super) fn remember(
    app: &App,
    target: &Target,
    admitted: &Admitted,
    credentials: &Credentials,
    parts: &Parts,
) -> Option<Response> {
    let By::Link { expires_ms } = admitted.by else { return None };
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
    // Two slashes in front would send the browser to another host.
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
    fn a_key_is_taken_from_wherever_it_stands() {
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
    fn what_belongs_to_the_application_passes() {
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
    fn a_token_leaves_the_query_as_it_was() {
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
    fn our_cookie_is_taken_out_and_the_others_become_one_line() {
        let lines = [("cookie", "a=1; burrow-port=tok"), ("cookie", "b=2;c")];
        let (credentials, parts) = taken("/", &Form::Host, &lines);
        assert_eq!(credentials.cookie.as_deref(), Some("tok"));
        assert_eq!(left(&parts), [("cookie".to_owned(), "a=1; b=2; c".to_owned())]);
        // Over HTTPS only the name that no other host can set counts; the other goes too.
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
        assert_eq!((credentials.cookie, left(&parts)), (None, Vec::new()), "the path form knows no cookies");
    }

    #[test]
    fn another_origin_may_not_act_with_a_cookie() {
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
        assert!(check("GET", &[upgrade, connection]), "no browser");
        assert!(!check("POST", &[other]));
        assert!(!check("GET", &[upgrade, connection, other]));
        assert!(!check("GET", &[upgrade, connection, ("origin", "null")]));
        assert!(!check("GET", &[upgrade, connection, ("origin", "http://80-x.localhost:7700.evil")]));
    }
}
