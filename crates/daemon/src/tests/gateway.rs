//! Requests to ports of sandboxes on simulated drivers: who is admitted, and what the server inside receives.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use burrow_catalog::NewKey;
use burrow_model::{SandboxId, Scope};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::world::{Answer, World};

const PORT: u16 = 8080;

/// A server whose response contains the request: method, address, headers, body.
pub(super) async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(async |request: Request| {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let headers: Vec<Value> = parts
            .headers
            .iter()
            .map(|(name, value)| json!([name.as_str(), value.to_str().unwrap()]))
            .collect();
        let seen = json!({
            "method": parts.method.as_str(), "address": parts.uri.to_string(), "headers": headers,
            "body": String::from_utf8_lossy(&body),
        });
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a=1; Domain=localhost; Path=/"));
        headers.append("service-worker-allowed", HeaderValue::from_static("/"));
        headers.append("location", HeaderValue::from_static("/next"));
        (headers, axum::Json(seen))
    });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

struct Site {
    world: World,
    id: String,
}

/// A sandbox `web` with a mirror on its port.
async fn site() -> Site {
    site_with("").await
}

async fn site_with(extra: &str) -> Site {
    let world = World::with(extra).await;
    let id = world.sandbox("web").await;
    world.network.serve_port(PORT, Some(mirror().await));
    world.network.serve_port(9, None);
    Site { world, id }
}

impl Site {
    fn host(&self) -> String {
        format!("{PORT}-{}.localhost:7700", self.id)
    }

    /// Sends a request to the host form, with these headers.
    async fn ask(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", host, path, headers, "").await
    }

    async fn send(
        &self,
        method: &str,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.world.raw(request.body(Body::from(body)).unwrap()).await
    }

    async fn link(&self, key: &str, seconds: u32) -> String {
        let path = format!("/v1/sandboxes/{}/ports/{PORT}/url", self.id);
        let body = format!("{{\"expires_seconds\": {seconds}}}");
        let answer = self.world.send_json_as(key, "POST", &path, body).await.expect(200).json();
        let url = answer["url"].as_str().unwrap();
        url.split_once("burrow_token=").unwrap().1.to_owned()
    }
}

fn header<'a>(seen: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = seen["headers"].as_array().unwrap();
    headers.iter().filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_key_admits_to_a_port_and_is_not_passed_to_the_server() {
    let site = site().await;
    let bearer = format!("Bearer {}", site.world.key);
    let ways = [
        ("x-burrow-key", site.world.key.as_str()),
        ("authorization", &bearer),
        ("x-api-key", &site.world.key),
    ];
    for (name, value) in ways {
        for host in [site.host(), "8080-web.localhost:7700".to_owned(), "8080-WEB.localhost.".to_owned()] {
            let answer = site.ask(&host, "/v1/sandboxes?x=%20y", &[(name, value), ("cookie", "own=1")]).await;
            let seen = answer.expect(200).json();
            assert_eq!(seen["address"], "/v1/sandboxes?x=%20y", "every path is the sandbox's own");
            assert!(!seen.to_string().contains("e2b_"), "{seen}");
            assert_eq!(header(&seen, "host"), [host.as_str()]);
            assert_eq!(header(&seen, "x-forwarded-host"), [host.as_str()]);
            assert_eq!(header(&seen, "x-forwarded-proto"), ["http"]);
            assert_eq!(header(&seen, "cookie"), ["own=1"]);
        }
    }
    let posted =
        site.send("POST", &site.host(), "/", &[("x-burrow-key", &site.world.key)], "some words").await;
    assert_eq!(posted.expect(200).json()["body"], "some words");
    let other = [("x-burrow-key", site.world.key.as_str()), ("authorization", "Bearer own")];
    let seen = site.ask(&site.host(), "/", &other).await.expect(200).json();
    assert_eq!(header(&seen, "authorization"), ["Bearer own"], "the application's own passes");
}

#[tokio::test]
async fn the_path_form_reaches_the_same_server_without_cookies() {
    let site = site().await;
    let path = format!("/p/web/{PORT}/deep/er?x=1");
    let headers = [("x-burrow-key", site.world.key.as_str()), ("cookie", "dashboard=secret")];
    let answer = site.ask("127.0.0.1:7700", &path, &headers).await.expect(200);
    let seen = answer.json();
    assert_eq!(seen["address"], "/deep/er?x=1");
    assert_eq!(header(&seen, "x-forwarded-prefix"), ["/p/web/8080"]);
    assert!(header(&seen, "cookie").is_empty(), "cookies of the API's origin stay there");
    assert!(
        !answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("service-worker-allowed")
    );
    assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox "));
    assert_eq!(answer.headers["location"], "/p/web/8080/next");
    site.ask("127.0.0.1:7700", &path, &[]).await.refused(401, "unauthorized");
    let answer = site.ask(&site.host(), "/", &headers).await.expect(200);
    assert_eq!(answer.headers["set-cookie"], "a=1; Path=/", "on its own host it keeps its own cookies");
}

#[tokio::test]
async fn without_credentials_nothing_is_revealed() {
    let site = site().await;
    let unknown = format!("{PORT}-{}.localhost", SandboxId::generate());
    let (private, unknown_id) = (site.ask(&site.host(), "/", &[]).await, site.ask(&unknown, "/", &[]).await);
    private.refused(401, "unauthorized");
    let strip = |answer: &Answer| {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let start = text.find("sbx").unwrap();
        format!("{}{}", &text[..start], &text[start + 23..])
    };
    assert_eq!(strip(&private), strip(&unknown_id));
    assert_eq!(private.headers["x-burrow-error"], "unauthorized");
    for key in ["nonsense", &format!("e2b_{}", "0".repeat(40))] {
        site.ask(&site.host(), "/", &[("x-burrow-key", key)]).await.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_foreign_sandbox_is_answered_exactly_like_an_unknown_one() {
    let site = site().await;
    let catalog = site.world.app.engine.catalog();
    let other = catalog.create_tenant("other", 1).await.unwrap();
    let new = NewKey {
        tenant: other,
        name: "x".into(),
        scope: Scope::Admin,
        sandbox: None,
        forks: false,
        parent: None,
        created_ms: 1,
        expires_ms: None,
    };
    let foreign = catalog.create_key(new).await.unwrap().1.expose().to_owned();
    let bound_to = site.world.sandbox("other").await;
    let bound = site.world.new_key(Scope::Exec, Some(&bound_to)).await;
    for key in [foreign, bound] {
        let unknown = SandboxId::generate();
        let theirs = site.ask(&site.host(), "/", &[("x-burrow-key", &key)]).await;
        let nobodys = site.ask(&format!("{PORT}-{unknown}.localhost"), "/", &[("x-burrow-key", &key)]).await;
        theirs.refused(404, "not_found");
        let text = |answer: &Answer| String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(text(&theirs).replace(&site.id, "X"), text(&nobodys).replace(unknown.as_str(), "X"));
        site.ask("8080-web.localhost", "/", &[("x-burrow-key", &key)]).await.refused(404, "not_found");
    }
    let read = site.world.new_key(Scope::Read, None).await;
    site.ask(&site.host(), "/", &[("x-burrow-key", &read)]).await.refused(403, "forbidden");
    let own = site.world.new_key(Scope::Exec, Some(&site.id)).await;
    site.ask(&site.host(), "/", &[("x-burrow-key", &own)]).await.expect(200);
}

#[tokio::test]
async fn a_link_opens_its_port_for_programs_and_sets_a_cookie_for_browsers() {
    let site = site().await;
    let token = site.link(&site.world.key, 60).await;
    let with = |path: &str| format!("{path}burrow_token={token}");
    let seen = site.ask(&site.host(), &with("/a?x=1&"), &[]).await.expect(200).json();
    assert_eq!(seen["address"], "/a?x=1");
    let html = ("accept", "text/html,*/*");
    let redirect = site.ask(&site.host(), &with("/a?x=1&"), &[html]).await.expect(303);
    assert_eq!(redirect.headers["location"], "/a?x=1");
    let cookie = redirect.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; Max-Age=60; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let seen =
        site.ask(&site.host(), "/a", &[("cookie", &format!("own=1; {cookie}"))]).await.expect(200).json();
    assert_eq!(header(&seen, "cookie"), ["own=1"], "the gateway's cookie is not passed on");
    assert!(!seen.to_string().contains(&token));
    let open = site.ask(&site.host(), &with("//evil.example/?"), &[html]).await.expect(303);
    assert_eq!(open.headers["location"], "/.//evil.example/");
    // The path form has no cookies: every request contains its token.
    let path = with(&format!("/p/web/{PORT}/?"));
    site.ask("localhost:7700", &path, &[html]).await.expect(200);
    let path = format!("/p/web/{PORT}/");
    site.ask("localhost:7700", &path, &[("cookie", &cookie)]).await.refused(401, "unauthorized");
    let elsewhere = ("origin", "http://80-other.localhost:7700");
    let posted = site.send("POST", &site.host(), "/", &[("cookie", &cookie), elsewhere], "").await;
    posted.refused(403, "forbidden");
}

#[tokio::test]
async fn access_to_a_port_is_audited_once_per_interval() {
    let site = site().await;
    let token = site.link(&site.world.key, 3600).await;
    let opened = async || {
        for _ in 0..3 {
            site.ask(&site.host(), "/", &[("x-burrow-key", &site.world.key)]).await.expect(200);
            site.ask(&site.host(), &format!("/?burrow_token={token}"), &[]).await.expect(200);
        }
    };
    let of = async |action: &str| {
        let page = site.world.send("GET", &format!("/v1/audit?action={action}")).await.expect(200).json();
        page["items"].as_array().unwrap().clone()
    };
    opened().await;
    let (keys, links) = (of("port.connect").await, of("link.use").await);
    assert_eq!((keys.len(), links.len()), (1, 1), "{keys:?} {links:?}");
    for event in [&keys[0], &links[0]] {
        assert_eq!((&event["sandbox_id"], &event["outcome"]), (&site.id.clone().into(), &"allowed".into()));
    }
    assert!(links[0]["actor"].as_str().unwrap().ends_with(" by link"), "{links:?}");
    site.world.clock.advance(11 * 60 * 1000);
    opened().await;
    assert_eq!((of("port.connect").await.len(), of("link.use").await.len()), (2, 2));
}

#[tokio::test]
async fn a_link_is_valid_for_one_port_and_until_it_expires() {
    let site = site().await;
    let key = site.world.new_key(Scope::Exec, None).await;
    let token = site.link(&key, 60).await;
    let other = site.world.sandbox("other").await;
    let path = format!("/?burrow_token={token}");
    site.ask(&site.host(), &path, &[]).await.expect(200);
    site.ask("8080-web.localhost", &path, &[]).await.expect(200);
    site.ask(&format!("{PORT}-{other}.localhost"), &path, &[]).await.refused(401, "unauthorized");
    site.ask(&format!("8081-{}.localhost", site.id), &path, &[]).await.refused(401, "unauthorized");
    for bad in [&token[..token.len() - 1], "", "x", &token.replace(".8080.", ".8081.")] {
        site.ask(&site.host(), &format!("/?burrow_token={bad}"), &[]).await.refused(401, "unauthorized");
    }
    site.world.clock.advance(60_000);
    site.ask(&site.host(), &path, &[]).await.refused(401, "unauthorized");
    let token = site.link(&key, 60).await;
    let path = format!("/?burrow_token={token}");
    site.ask(&site.host(), &path, &[]).await.expect(200);
    let keys = site.world.send("GET", "/v1/keys").await.json();
    let exec = keys["items"].as_array().unwrap().iter().find(|key| key["scope"] == "exec").unwrap().clone();
    site.world.send("DELETE", &format!("/v1/keys/{}", exec["id"].as_str().unwrap())).await;
    site.ask(&site.host(), &path, &[]).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_published_port_is_public_until_it_is_unpublished() {
    let site = site().await;
    let publish = format!("/v1/sandboxes/web/ports/{PORT}");
    site.world.send("PUT", &publish).await.expect(204);
    site.ask(&site.host(), "/", &[]).await.expect(200);
    site.ask("8080-web.localhost", "/", &[]).await.expect(200);
    site.ask("localhost", &format!("/p/web/{PORT}/"), &[]).await.expect(200);
    let stale = format!("e2b_{}", "0".repeat(40));
    let seen =
        site.ask(&site.host(), "/?burrow_token=old", &[("x-burrow-key", &stale)]).await.expect(200).json();
    assert!(!seen.to_string().contains("e2b_") && seen["address"] == "/");
    site.ask(&format!("9-{}.localhost", site.id), "/", &[]).await.refused(401, "unauthorized");
    site.world.send("DELETE", &publish).await.expect(204);
    site.ask(&site.host(), "/", &[]).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn if_nothing_listens_the_owner_sees_the_listening_ports() {
    let site = site().await;
    let host = format!("9-{}.localhost", site.id);
    let key = ("x-burrow-key", site.world.key.as_str());
    let answer = site.ask(&host, "/", &[key]).await;
    answer.refused(502, "port_closed");
    let hint = answer.json()["error"]["hint"].as_str().unwrap().to_owned();
    assert_eq!(hint, "ports with a listening process: 3000 (`node`)");
    let page = site.ask(&host, "/", &[key, ("accept", "text/html")]).await.expect(502);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let text = String::from_utf8_lossy(&page.body).into_owned();
    assert!(text.contains("3000 (<code>node</code>)") && !text.contains("<script"), "{text}");
    // Users of a public port do not see the other ports.
    site.world.send("PUT", "/v1/sandboxes/web/ports/9").await.expect(204);
    let answer = site.ask(&host, "/", &[]).await;
    answer.refused(502, "port_closed");
    assert!(!String::from_utf8_lossy(&answer.body).contains("3000"));
    site.ask(&format!("7711-{}.localhost", site.id), "/", &[key]).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_paused_and_a_stopped_sandbox_wake() {
    let site = site().await;
    let key = ("x-burrow-key", site.world.key.as_str());
    for way in ["pause", "stop"] {
        site.world.send("POST", &format!("/v1/sandboxes/web/{way}")).await.expect(200);
        site.ask(&site.host(), "/", &[key]).await.expect(200);
        assert_eq!(site.world.send("GET", "/v1/sandboxes/web").await.json()["state"], "running", "{way}");
    }
    site.world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    site.ask(&site.host(), "/", &[]).await.refused(401, "unauthorized");
    assert_eq!(
        site.world.send("GET", "/v1/sandboxes/web").await.json()["state"],
        "stopped",
        "an unauthorized request starts no sandbox"
    );
}

#[tokio::test]
async fn ambiguous_requests_are_rejected() {
    let site = site().await;
    let key = ("x-burrow-key", site.world.key.as_str());
    site.ask(&site.host(), "/", &[key, ("host", "other")]).await.refused(400, "invalid_request");
    let connect =
        Request::builder().method("CONNECT").uri(format!("{}:80", site.host().split(':').next().unwrap()));
    let connect = connect.header(key.0, key.1).body(Body::empty()).unwrap();
    site.world.raw(connect).await.refused(405, "method_not_allowed");
    site.ask("0-web.localhost", "/", &[key]).await.refused(400, "invalid_request");
    site.ask("localhost", "/p/web/x/", &[key]).await.refused(400, "invalid_request");
    let large = "x".repeat(70_000);
    site.ask(&site.host(), "/", &[key, ("x-large", &large)]).await.refused(413, "too_large");
    // A host name that is not of a port belongs to the API.
    site.ask("web.localhost", "/healthz", &[]).await.expect(200);
    site.ask(&site.host(), "/healthz", &[]).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_configured_domain_works_in_addition_to_localhost() {
    let site = site_with("[gateway]\ndomain = \"boxes.example.com\"\nhttps = true\n").await;
    let key = ("x-burrow-key", site.world.key.as_str());
    let host = format!("{PORT}-{}.boxes.example.com", site.id);
    let seen = site.ask(&host, "/", &[key]).await.expect(200).json();
    assert_eq!(header(&seen, "x-forwarded-proto"), ["https"]);
    site.ask(&site.host(), "/", &[key]).await.expect(200);
    let token = site.link(&site.world.key, 60).await;
    let redirect =
        site.ask(&host, &format!("/?burrow_token={token}"), &[("accept", "text/html")]).await.expect(303);
    let cookie = redirect.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-burrow-port=") && cookie.ends_with("; Secure"), "{cookie}");
    let listed = site.world.send("GET", "/v1/sandboxes/web/ports").await.json();
    assert_eq!(listed["items"][0]["url"], format!("https://3000-{}.boxes.example.com/", site.id));
}
