//! A session with one repository of one registry: authentication, redirects, retries.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use serde::Deserialize;

use super::challenge::{self, Challenge, encode};
use super::connect::TargetPolicy;
use super::credentials::{Login, sensitive};
use super::http::{Http, HttpResponse, check_target, document, shown, status_error, without_secrets};
use crate::manifest::ACCEPTED;
use crate::{Digest, ImageError, MANIFEST_BYTES_MAX, Reference};

/// Attempts for small documents, with these pauses between them.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// The size of a response of a token server.
const TOKEN_BYTES_MAX: u64 = 1024 * 1024;

/// `Authorization` headers by registry and repository, since a token is valid for one repository.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<HashMap<(String, String), HeaderValue>>);

/// How a registry is accessed.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) url: String,
    /// The targets to which it may refer.
    pub(super) elsewhere: TargetPolicy,
}

pub(super) struct Session<'a> {
    pub(super) http: &'a Http,
    pub(super) tokens: &'a Tokens,
    pub(super) base: Base,
    pub(super) login: Login,
    pub(super) reference: &'a Reference,
}

/// A manifest or index in its original bytes, whose digest was verified.
pub(super) struct FetchedDocument {
    pub(super) bytes: Bytes,
    pub(super) media_type: Option<String>,
    pub(super) digest: Digest,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session<'_> {
    /// Fetches a manifest or index, by tag or digest.
    pub(super) async fn manifest(
        &self,
        wanted: &str,
        expected: Option<Digest>,
    ) -> Result<FetchedDocument, ImageError> {
        let mut headers = HeaderMap::new();
        for media_type in ACCEPTED {
            headers.append(ACCEPT, HeaderValue::from_static(media_type));
        }
        let path = format!("/v2/{}/manifests/{wanted}", self.reference.repository());
        let (bytes, answered) = self.document(&path, &headers, MANIFEST_BYTES_MAX).await?;
        let digest = Digest::of(&bytes);
        let stated = answered.get("docker-content-digest").and_then(|value| value.to_str().ok());
        // The digest that a registry states for a tag proves nothing, but a contradiction is an error.
        let stated = stated.and_then(|text| text.parse::<Digest>().ok());
        if let Some(expected) = expected.or(stated).filter(|expected| *expected != digest) {
            return Err(ImageError::Mismatch { what: self.reference.to_string(), expected, found: digest });
        }
        let media_type = answered.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.map(|text| text.split(';').next().unwrap_or_default().trim().to_owned());
        Ok(FetchedDocument { bytes, media_type, digest })
    }

    /// Fetches a small blob.
    pub(super) async fn blob(&self, digest: Digest, size: u64, limit: u64) -> Result<Bytes, ImageError> {
        let what = || format!("{digest} of {}", self.reference);
        if size > limit {
            return Err(ImageError::TooLarge { what: what(), limit, unit: "bytes" });
        }
        let (bytes, _) = self.document(&self.blob_path(digest), &HeaderMap::new(), limit).await?;
        if bytes.len() as u64 != size {
            return Err(ImageError::Size { what: what(), expected: size, found: bytes.len() as u64 });
        }
        match Digest::of(&bytes) {
            found if found == digest => Ok(bytes),
            found => Err(ImageError::Mismatch { what: what(), expected: digest, found }),
        }
    }

    pub(super) fn blob_path(&self, digest: Digest) -> String {
        format!("/v2/{}/blobs/{digest}", self.reference.repository())
    }

    async fn document(
        &self,
        path: &str,
        headers: &HeaderMap,
        limit: u64,
    ) -> Result<(Bytes, HeaderMap), ImageError> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.document_once(path, headers, limit).await {
                Err(error) if is_retryable(&error) => {
                    tracing::debug!(%error, "retrying the request to the registry");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
        self.document_once(path, headers, limit).await
    }

    async fn document_once(
        &self,
        path: &str,
        headers: &HeaderMap,
        limit: u64,
    ) -> Result<(Bytes, HeaderMap), ImageError> {
        let answer = self.get(path, headers).await?;
        let (parts, body) = answer.response.into_parts();
        let bytes = document(body, &answer.url, limit).await?;
        Ok((bytes, parts.headers))
    }

    /// Requests a path of the registry, and repeats the request after authentication. Returns successful responses
    /// only.
    pub(super) async fn get(&self, path: &str, headers: &HeaderMap) -> Result<HttpResponse, ImageError> {
        let url: Uri = format!("{}{path}", self.base.url).parse().map_err(|_| ImageError::Reference {
            text: self.reference.to_string(),
            reason: "it is not a valid URL",
        })?;
        let mut challenged = false;
        loop {
            let known = self.token();
            let answer = self.http.get(&url, headers, known.as_ref(), self.base.elsewhere).await?;
            match answer.response.status() {
                status if status.is_success() => return Ok(answer),
                StatusCode::UNAUTHORIZED if answer.same_origin && !challenged => {
                    challenged = true;
                    let header = self.answer(&url, &answer).await?;
                    self.keep_token(header);
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if answer.same_origin => {
                    return Err(self.denied());
                }
                StatusCode::NOT_FOUND if answer.same_origin => {
                    return Err(ImageError::NotFound { reference: self.reference.to_string() });
                }
                _ => return Err(status_error(answer).await),
            }
        }
    }

    /// The `Authorization` header that the registry requires.
    async fn answer(&self, url: &Uri, answer: &HttpResponse) -> Result<HeaderValue, ImageError> {
        let chosen = challenge::choose(answer.response.headers()).map_err(|challenge| {
            ImageError::Challenge { registry: self.reference.registry().to_owned(), challenge }
        })?;
        match chosen {
            Challenge::Basic => self.login.basic().ok_or_else(|| self.denied()),
            Challenge::Bearer { realm, service } => self.fetch_token(url, &realm, service.as_deref()).await,
        }
    }

    async fn fetch_token(
        &self,
        registry: &Uri,
        realm: &str,
        service: Option<&str>,
    ) -> Result<HeaderValue, ImageError> {
        let refused =
            |reason| ImageError::Redirect { from: shown(registry), to: without_secrets(realm), reason };
        // Only the necessary scope is requested, whatever the registry suggests.
        let scope = format!("repository:{}:pull", self.reference.repository());
        let mut query = format!("scope={}", encode(&scope));
        if let Some(service) = service {
            query.push_str(&format!("&service={}", encode(service)));
        }
        let separator = if realm.contains('?') { '&' } else { '?' };
        let with_query: Uri =
            format!("{realm}{separator}{query}").parse().map_err(|_| refused("it is not a valid URL"))?;
        check_target(registry, &with_query).map_err(refused)?;
        let reach = match with_query.authority() == registry.authority() {
            true => TargetPolicy::Named,
            false => self.base.elsewhere,
        };
        let mut headers = HeaderMap::new();
        let (method, url, body) = match &self.login {
            Login::Identity { token } => {
                let url: Uri = realm.parse().map_err(|_| refused("it is not a valid URL"))?;
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                headers.insert(CONTENT_TYPE, form);
                let token = encode(&token.0);
                let body = format!("grant_type=refresh_token&client_id=burrow&refresh_token={token}&{query}");
                (Method::POST, url, Bytes::from(body))
            }
            Login::Anonymous | Login::Password { .. } => {
                if let Some(basic) = self.login.basic() {
                    headers.insert(AUTHORIZATION, basic);
                }
                (Method::GET, with_query, Bytes::new())
            }
        };
        let response = self.http.send(method, &url, &headers, body, reach).await?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
            _ => return Err(status_error(HttpResponse { response, same_origin: false, url }).await),
        }
        let bytes = document(response.into_body(), &url, TOKEN_BYTES_MAX).await?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|source| ImageError::Json {
            document: "token",
            of: shown(&url),
            source,
        })?;
        let token = token.token.or(token.access_token).filter(|token| !token.is_empty());
        let header = token.and_then(|token| sensitive(&format!("Bearer {token}")));
        header.ok_or_else(|| self.denied())
    }

    fn denied(&self) -> ImageError {
        ImageError::Denied {
            registry: self.reference.registry().to_owned(),
            repository: self.reference.repository().to_owned(),
            who: self.login.description(),
        }
    }

    fn token(&self) -> Option<HeaderValue> {
        let tokens = self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(&self.token_key()).cloned()
    }

    fn keep_token(&self, header: HeaderValue) {
        let mut tokens = self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(self.token_key(), header);
    }

    fn token_key(&self) -> (String, String) {
        (self.reference.registry().to_owned(), self.reference.repository().to_owned())
    }
}

/// Whether the same request may succeed soon.
pub(super) fn is_retryable(error: &ImageError) -> bool {
    matches!(error, ImageError::Transfer { .. } | ImageError::Status { status: 408 | 429 | 500.., .. })
}
