//! Tokens, redirects, broken lines, and registries that lie.

use ::http::{Response, StatusCode};

use super::fake::{Asked, Body, Served, Server, respond, respond_broken};
use super::*;

fn with_header(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

async fn serve(served: Served) -> Server {
    Server::start(move |asked| served.answer(asked)).await
}

async fn pull(server: &Server, credentials: Credentials, image: &Image) -> Result<(), ImageError> {
    check_pull(&puller(credentials), &format!("{}/app:v1", server.address), image).await
}

/// A server that wants a token, which it gives out itself: to `user` with `secret`, or to everybody.
async fn with_tokens(served: Served, for_everybody: bool) -> Server {
    Server::start(move |asked| {
        if asked.path == "/token" {
            let known = asked.header("authorization") == Some("Basic dXNlcjpzZWNyZXQ=");
            let refreshed = asked.method == "POST" && asked.body.contains("refresh_token=identity%2Ftoken&");
            return match known || refreshed || for_everybody {
                true => respond(StatusCode::OK, r#"{"token":"the-token","expires_in":60}"#),
                false => respond(StatusCode::UNAUTHORIZED, "{}"),
            };
        }
        if asked.header("authorization") != Some("Bearer the-token") {
            let host = asked.header("host").unwrap();
            let challenge = format!(r#"Bearer realm="http://{host}/token",service="the service",scope="x""#);
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", &challenge);
        }
        served.answer(asked)
    })
    .await
}

#[tokio::test]
async fn a_token_is_fetched_and_used() {
    let image = Image::new();
    let server = with_tokens(Served::new(&image), true).await;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
    let tokens: Vec<Asked> = server.asked().into_iter().filter(|asked| asked.path == "/token").collect();
    assert_eq!(tokens.len(), 1, "a token is kept");
    assert_eq!(tokens[0].query, "scope=repository%3Aapp%3Apull&service=the%20service");
    assert_eq!(tokens[0].header("authorization"), None);

    let server = with_tokens(Served::new(&image), false).await;
    pull(&server, password("user", "secret"), &image).await.unwrap();
    // The password goes to the token's server only.
    for asked in server.asked().iter().filter(|asked| asked.path != "/token") {
        assert_ne!(asked.header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="), "{asked:?}");
    }
    let denied = pull(&server, password("user", "wrong"), &image).await.unwrap_err();
    assert!(matches!(denied, ImageError::Denied { .. }), "{denied}");
    assert!(matches!(pull(&server, Credentials::Anonymous, &image).await, Err(ImageError::Denied { .. })));

    let path = image.folder.path().join("config.json");
    let auths = format!(r#"{{"auths":{{"{}":{{"identitytoken":"identity/token"}}}}}}"#, server.address);
    fs::write(&path, auths).unwrap();
    pull(&server, Credentials::DockerConfig { path }, &image).await.unwrap();
}

#[tokio::test]
async fn a_token_that_expires_midway_is_renewed() {
    let image = Image::new();
    let served = Served::new(&image);
    let layer = served.layer.clone();
    let given = Mutex::new(0);
    let server = Server::start(move |asked| {
        let mut given = given.lock().unwrap();
        if asked.path == "/token" {
            *given += 1;
            return respond(StatusCode::OK, format!(r#"{{"access_token":"token-{given}"}}"#));
        }
        let wanted = if asked.path == layer { "Bearer token-2" } else { "Bearer token-" };
        if !asked.header("authorization").is_some_and(|value| value.starts_with(wanted)) {
            let challenge = format!(r#"Bearer realm="http://{}/token""#, asked.header("host").unwrap());
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", &challenge);
        }
        served.answer(asked)
    })
    .await;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
}

#[tokio::test]
async fn a_redirect_to_another_host_does_not_carry_the_password() {
    let image = Image::new();
    let store = serve(Served::new(&image)).await;
    let served = Served::new(&image);
    let address = store.address;
    let server = Server::start(move |asked| {
        if asked.header("authorization") != Some("Basic dXNlcjpzZWNyZXQ=") {
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", "Basic realm=x");
        }
        match asked.path.contains("/blobs/") {
            true => with_header(
                respond(StatusCode::TEMPORARY_REDIRECT, ""),
                "location",
                &format!("http://{address}{}?signature=x", asked.path),
            ),
            false => served.answer(asked),
        }
    })
    .await;
    pull(&server, password("user", "secret"), &image).await.unwrap();
    assert_eq!(store.asked().len(), 3, "the configuration and two layers");
    for asked in store.asked() {
        assert_eq!(asked.header("authorization"), None);
        assert_eq!(asked.query, "signature=x");
    }
}

#[tokio::test]
async fn where_a_registry_may_not_point_nothing_is_asked() {
    let image = Image::new();
    for (location, word) in [
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
        ("ftp://example.org/x", "no address"),
        ("http://user:password@127.0.0.1:1/x", "names a user"),
        ("/v2/app/blobs/again", "on and on"),
    ] {
        let served = Served::new(&image);
        let server = Server::start(move |asked| match asked.path.contains("/blobs/") {
            true => with_header(respond(StatusCode::FOUND, ""), "location", location),
            false => served.answer(asked),
        })
        .await;
        let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error} {cause}").contains(word), "{error} {cause}");
        assert!(!format!("{error} {cause}").contains("password"), "{error}");
    }
    let server = Server::start(|_| {
        let challenge = r#"Bearer realm="http://169.254.169.254/token""#;
        with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", challenge)
    })
    .await;
    let error = pull(&server, password("user", "secret"), &image).await.unwrap_err();
    assert!(matches!(error, ImageError::Connect { .. }), "{error}");
    let server = Server::start(|_| {
        with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", "Negotiate")
    })
    .await;
    let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err();
    assert!(matches!(error, ImageError::Challenge { .. }), "{error}");
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_broke() {
    let image = Image::new();
    let served = Served::new(&image);
    let layer = served.layer.clone();
    let server = Server::start(move |asked| {
        if asked.path != layer {
            return served.answer(asked);
        }
        let blob = &served.blobs[&layer];
        let Some(range) = asked.header("range") else { return respond_broken(StatusCode::OK, blob, 200_000) };
        let start: usize = range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
        let rest = &blob[start..];
        let range = format!("bytes {start}-{}/{}", blob.len() - 1, blob.len());
        let response = match start < 300_000 {
            true => respond_broken(StatusCode::PARTIAL_CONTENT, rest, 150_000),
            false => respond(StatusCode::PARTIAL_CONTENT, rest.to_vec()),
        };
        with_header(response, "content-range", &range)
    })
    .await;
    let layer = Served::new(&image).layer;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
    let ranges: Vec<bool> = server
        .blobs_asked()
        .iter()
        .filter(|asked| asked.path == layer)
        .map(|asked| asked.header("range").is_some())
        .collect();
    assert!(!ranges[0] && ranges.len() > 2 && ranges[1..].iter().all(|resumed| *resumed), "{ranges:?}");
}

#[tokio::test]
async fn a_server_that_cannot_go_on_is_asked_for_everything() {
    let image = Image::new();
    for status in [StatusCode::OK, StatusCode::RANGE_NOT_SATISFIABLE] {
        let served = Served::new(&image);
        let layer = served.layer.clone();
        let tries = Mutex::new(0);
        let server = Server::start(move |asked| {
            if asked.path != layer {
                return served.answer(asked);
            }
            let blob = &served.blobs[&layer];
            let mut tries = tries.lock().unwrap();
            *tries += 1;
            match (*tries, asked.header("range").is_some()) {
                (1, _) => respond_broken(StatusCode::OK, blob, 100_000),
                (_, true) if status != StatusCode::OK => respond(status, ""),
                (_, _) => respond(StatusCode::OK, blob.clone()),
            }
        })
        .await;
        pull(&server, Credentials::Anonymous, &image).await.unwrap();
    }
}

#[tokio::test]
async fn a_download_that_always_breaks_ends_and_leaves_nothing() {
    let image = Image::new();
    let served = Served::new(&image);
    let layer = served.layer.clone();
    let server = Server::start(move |asked| match asked.path == layer {
        true => respond(StatusCode::FORBIDDEN, r#"{"errors":[{"code":"DENIED","message":"no"}]}"#),
        false => served.answer(asked),
    })
    .await;
    let puller = puller(Credentials::Anonymous);
    let reference = Reference::parse(&format!("{}/app:v1", server.address)).unwrap();
    let resolved = puller.resolve(&reference).await.unwrap();
    let cache = tempfile::tempdir().unwrap();
    assert!(puller.fetch(&resolved, &[0], &fetch_options(cache.path())).await.is_err());
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn whatever_does_not_have_its_digest_is_refused() {
    let image = Image::new();
    let whole = Served::new(&image);
    let digest = Digest::of(&whole.manifest);
    // Every blob in turn, with one bit changed.
    for path in whole.blobs.keys().filter(|path| !path.ends_with(&digest.hex())) {
        let mut served = whole.clone();
        let blob = served.blobs.get_mut(path).unwrap();
        let middle = blob.len() / 2;
        blob[middle] ^= 1;
        let server = serve(served).await;
        let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err();
        assert!(matches!(error, ImageError::Mismatch { .. }), "{error}");
    }
    let mut served = whole.clone();
    served.manifest.push(b' ');
    let server = serve(served).await;
    let named = format!("{}/app@{digest}", server.address);
    let error = check_pull(&puller(Credentials::Anonymous), &named, &image).await.unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { .. }), "{error}");
}

#[tokio::test]
async fn more_than_was_promised_is_refused() {
    let image = Image::new();
    let mut served = Served::new(&image);
    let layer = served.layer.clone();
    served.blobs.get_mut(&layer).unwrap().extend_from_slice(b"more");
    let server = serve(served).await;
    let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err();
    assert!(matches!(error, ImageError::Size { .. }), "{error}");
}

#[tokio::test]
async fn documents_that_are_too_large_or_too_old_are_refused() {
    let image = Image::new();
    let whole = Served::new(&image);
    let resolve = async |served: Served| {
        let server = serve(served).await;
        let reference = Reference::parse(&format!("{}/app:v1", server.address)).unwrap();
        puller(Credentials::Anonymous).resolve(&reference).await.unwrap_err()
    };
    let huge = Served { manifest: vec![b' '; 5 << 20], ..whole.clone() };
    assert!(matches!(resolve(huge).await, ImageError::TooLarge { .. }));
    let old = Served {
        manifest: br#"{"schemaVersion":1,"fsLayers":[]}"#.to_vec(),
        media_type: "application/vnd.docker.distribution.manifest.v1+prettyjws".to_owned(),
        ..whole.clone()
    };
    assert!(matches!(resolve(old).await, ImageError::SchemaOne { .. }));
    let page = Served { manifest: b"<html>".to_vec(), media_type: "text/html".to_owned(), ..whole };
    assert!(matches!(resolve(page).await, ImageError::Json { .. }));
}

#[tokio::test]
async fn what_a_registry_says_about_an_error_is_told() {
    let image = Image::new();
    let server = Server::start(|_| {
        let body = r#"{"errors":[{"code":"UNSUPPORTED","message":"not on\u0007 sundays"}]}"#;
        respond(StatusCode::BAD_REQUEST, body)
    })
    .await;
    let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err().to_string();
    assert!(error.contains("400") && error.contains("not on\\u{7} sundays"), "{error}");
}

#[tokio::test]
async fn a_registry_elsewhere_is_not_spoken_to_in_the_clear() {
    let puller = puller(Credentials::Anonymous);
    // An address for documentation: nothing is sent there, and nothing needs to be to know this.
    let base = puller.base("192.0.2.1:5000").await.unwrap();
    assert_eq!(base.url, "https://192.0.2.1:5000");
    assert!(is_loopback("localhost:5000") && is_loopback("127.0.0.2") && is_loopback("[::1]:5000"));
    assert!(!is_loopback("localhost.example:5000") && !is_loopback("10.0.0.1:5000"));
    assert_eq!(split("[::1]"), ("::1".to_owned(), None));
    assert_eq!(split("a.example:5"), ("a.example".to_owned(), Some(5)));
}
