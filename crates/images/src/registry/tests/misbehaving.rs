//! Tokens, redirects, broken connections, and registries with wrong content.

use ::http::{Response, StatusCode};

use super::fake::{Body, ReceivedRequest, ServedImage, Server, respond, respond_broken};
use super::*;

fn with_header(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

async fn serve(served: ServedImage) -> Server {
    Server::start(move |request| served.answer(request)).await
}

async fn pull(server: &Server, credentials: Credentials, image: &Image) -> Result<(), ImageError> {
    check_pull(&puller(credentials), &format!("{}/app:v1", server.address), image).await
}

/// A server that requires a token, which it issues itself: to `user` with `secret`, or to every client.
async fn with_tokens(served: ServedImage, for_everybody: bool) -> Server {
    Server::start(move |request| {
        if request.path == "/token" {
            let known = request.header("authorization") == Some("Basic dXNlcjpzZWNyZXQ=");
            let refreshed =
                request.method == "POST" && request.body.contains("refresh_token=identity%2Ftoken&");
            return match known || refreshed || for_everybody {
                true => respond(StatusCode::OK, r#"{"token":"the-token","expires_in":60}"#),
                false => respond(StatusCode::UNAUTHORIZED, "{}"),
            };
        }
        if request.header("authorization") != Some("Bearer the-token") {
            let host = request.header("host").unwrap();
            let challenge = format!(r#"Bearer realm="http://{host}/token",service="the service",scope="x""#);
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", &challenge);
        }
        served.answer(request)
    })
    .await
}

#[tokio::test]
async fn a_token_is_fetched_and_used() {
    let image = Image::new();
    let server = with_tokens(ServedImage::new(&image), true).await;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
    let tokens: Vec<ReceivedRequest> =
        server.requests().into_iter().filter(|request| request.path == "/token").collect();
    assert_eq!(tokens.len(), 1, "a token is kept");
    assert_eq!(tokens[0].query, "scope=repository%3Aapp%3Apull&service=the%20service");
    assert_eq!(tokens[0].header("authorization"), None);

    let server = with_tokens(ServedImage::new(&image), false).await;
    pull(&server, password("user", "secret"), &image).await.unwrap();
    // The password is sent to the token server only.
    for request in server.requests().iter().filter(|request| request.path != "/token") {
        assert_ne!(request.header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="), "{request:?}");
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
    let served = ServedImage::new(&image);
    let layer = served.layer.clone();
    let given = Mutex::new(0);
    let server = Server::start(move |request| {
        let mut given = given.lock().unwrap();
        if request.path == "/token" {
            *given += 1;
            return respond(StatusCode::OK, format!(r#"{{"access_token":"token-{given}"}}"#));
        }
        let wanted = if request.path == layer { "Bearer token-2" } else { "Bearer token-" };
        if !request.header("authorization").is_some_and(|value| value.starts_with(wanted)) {
            let challenge = format!(r#"Bearer realm="http://{}/token""#, request.header("host").unwrap());
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", &challenge);
        }
        served.answer(request)
    })
    .await;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
}

#[tokio::test]
async fn a_redirect_to_another_host_does_not_receive_the_password() {
    let image = Image::new();
    let store = serve(ServedImage::new(&image)).await;
    let served = ServedImage::new(&image);
    let address = store.address;
    let server = Server::start(move |request| {
        if request.header("authorization") != Some("Basic dXNlcjpzZWNyZXQ=") {
            return with_header(respond(StatusCode::UNAUTHORIZED, ""), "www-authenticate", "Basic realm=x");
        }
        match request.path.contains("/blobs/") {
            true => with_header(
                respond(StatusCode::TEMPORARY_REDIRECT, ""),
                "location",
                &format!("http://{address}{}?signature=x", request.path),
            ),
            false => served.answer(request),
        }
    })
    .await;
    pull(&server, password("user", "secret"), &image).await.unwrap();
    assert_eq!(store.requests().len(), 3, "the configuration and two layers");
    for request in store.requests() {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.query, "signature=x");
    }
}

#[tokio::test]
async fn forbidden_redirects_are_not_followed() {
    let image = Image::new();
    for (location, word) in [
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
        ("ftp://example.org/x", "not a valid URL"),
        ("http://user:password@127.0.0.1:1/x", "user name"),
        ("/v2/app/blobs/again", "too many redirects"),
    ] {
        let served = ServedImage::new(&image);
        let server = Server::start(move |request| match request.path.contains("/blobs/") {
            true => with_header(respond(StatusCode::FOUND, ""), "location", location),
            false => served.answer(request),
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
async fn a_broken_download_resumes_at_its_offset() {
    let image = Image::new();
    let served = ServedImage::new(&image);
    let layer = served.layer.clone();
    let server = Server::start(move |request| {
        if request.path != layer {
            return served.answer(request);
        }
        let blob = &served.blobs[&layer];
        let Some(range) = request.header("range") else {
            return respond_broken(StatusCode::OK, blob, 200_000);
        };
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
    let layer = ServedImage::new(&image).layer;
    pull(&server, Credentials::Anonymous, &image).await.unwrap();
    let ranges: Vec<bool> = server
        .blob_requests()
        .iter()
        .filter(|request| request.path == layer)
        .map(|request| request.header("range").is_some())
        .collect();
    assert!(!ranges[0] && ranges.len() > 2 && ranges[1..].iter().all(|resumed| *resumed), "{ranges:?}");
}

#[tokio::test]
async fn a_download_restarts_if_the_server_cannot_resume() {
    let image = Image::new();
    for status in [StatusCode::OK, StatusCode::RANGE_NOT_SATISFIABLE] {
        let served = ServedImage::new(&image);
        let layer = served.layer.clone();
        let tries = Mutex::new(0);
        let server = Server::start(move |request| {
            if request.path != layer {
                return served.answer(request);
            }
            let blob = &served.blobs[&layer];
            let mut tries = tries.lock().unwrap();
            *tries += 1;
            match (*tries, request.header("range").is_some()) {
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
    let served = ServedImage::new(&image);
    let layer = served.layer.clone();
    let server = Server::start(move |request| match request.path == layer {
        true => respond(StatusCode::FORBIDDEN, r#"{"errors":[{"code":"DENIED","message":"no"}]}"#),
        false => served.answer(request),
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
async fn content_with_a_wrong_digest_is_refused() {
    let image = Image::new();
    let whole = ServedImage::new(&image);
    let digest = Digest::of(&whole.manifest);
    // Every blob one after the other, with one bit changed.
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
async fn content_longer_than_announced_is_refused() {
    let image = Image::new();
    let mut served = ServedImage::new(&image);
    let layer = served.layer.clone();
    served.blobs.get_mut(&layer).unwrap().extend_from_slice(b"more");
    let server = serve(served).await;
    let error = pull(&server, Credentials::Anonymous, &image).await.unwrap_err();
    assert!(matches!(error, ImageError::Size { .. }), "{error}");
}

#[tokio::test]
async fn documents_that_are_too_large_or_too_old_are_refused() {
    let image = Image::new();
    let whole = ServedImage::new(&image);
    let resolve = async |served: ServedImage| {
        let server = serve(served).await;
        let reference = Reference::parse(&format!("{}/app:v1", server.address)).unwrap();
        puller(Credentials::Anonymous).resolve(&reference).await.unwrap_err()
    };
    let huge = ServedImage { manifest: vec![b' '; 5 << 20], ..whole.clone() };
    assert!(matches!(resolve(huge).await, ImageError::TooLarge { .. }));
    let old = ServedImage {
        manifest: br#"{"schemaVersion":1,"fsLayers":[]}"#.to_vec(),
        media_type: "application/vnd.docker.distribution.manifest.v1+prettyjws".to_owned(),
        ..whole.clone()
    };
    assert!(matches!(resolve(old).await, ImageError::SchemaOne { .. }));
    let page = ServedImage { manifest: b"<html>".to_vec(), media_type: "text/html".to_owned(), ..whole };
    assert!(matches!(resolve(page).await, ImageError::Json { .. }));
}

#[tokio::test]
async fn error_messages_of_the_registry_are_shown() {
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
async fn remote_registries_are_not_accessed_over_plain_http() {
    let puller = puller(Credentials::Anonymous);
    // A documentation address: nothing is sent to it.
    let base = puller.base("192.0.2.1:5000").await.unwrap();
    assert_eq!(base.url, "https://192.0.2.1:5000");
    assert!(is_loopback("localhost:5000") && is_loopback("127.0.0.2") && is_loopback("[::1]:5000"));
    assert!(!is_loopback("localhost.example:5000") && !is_loopback("10.0.0.1:5000"));
    assert_eq!(split("[::1]"), ("::1".to_owned(), None));
    assert_eq!(split("a.example:5"), ("a.example".to_owned(), Some(5)));
}
