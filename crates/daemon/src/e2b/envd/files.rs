//! Whole files over plain HTTP: downloads, uploads, and addresses that were signed for one of either.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_engine::Guest;
use burrow_guest::protocol::{FileEntry, Request as GuestRequest, WriteFile};
use burrow_model::SandboxId;
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RANGE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::super::access::{self, Signed};
use super::super::error::Refusal;
use super::multipart::Multipart;
use super::{Addressee, Inside, User};
use crate::audit::Trace;
use crate::rest::App;
use crate::rest::error::ApiError;
use crate::rest::files::read_file;
use crate::rest::input::Params;
use crate::rest::upload::{linger, upload};

/// Sandboxes whose tokens one signed address is tried with: more are never on one host by default.
const TRIED_MAX: usize = 100_000;

/// Bytes of one key of a file's metadata, so that its attribute's name fits.
const METADATA_KEY_MAX: usize = 200;

/// Bytes of a file's metadata together.
const METADATA_BYTES_MAX: usize = 4096;

/// How many lookups of signed addresses without a sandbox may wait. A lookup needs no API key, so one runs at a time, on a
/// thread of its own, and few may wait.
const LOOKUPS_MAX: usize = 16;

/// Lookups of the sandboxes of signed addresses.
#[derive(Debug)]
pub(crate) struct Lookups {
    places: Semaphore,
    running: Semaphore,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { places: Semaphore::new(LOOKUPS_MAX), running: Semaphore::new(1) }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Query {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    signature_expiration: Option<String>,
    /// Names the sandbox of a signed address where neither its host nor a header does.
    sandbox_id: Option<String>,
}

pub(super) async fn read(State(app): State<Arc<App>>, request: Request) -> Result<Response, Response> {
    let (mut parts, _) = request.into_parts();
    let (query, inside) = admitted(&app, &mut parts, "read").await?;
    let answer = async {
        let path = query.path.as_deref().ok_or_else(|| Refusal::invalid("`path` is missing"))?;
        let guest = inside.guest(&app).await?;
        let path = inside.path(&guest, &inside.as_user(&guest)?, path).await?;
        let range = parts.headers.get(RANGE).and_then(|value| value.to_str().ok());
        Ok::<_, Refusal>(read_file(guest, path, range).await?)
    };
    answer.await.map_err(Refusal::into_response)
}

pub(super) async fn write(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>, Response> {
    let (mut parts, body) = request.into_parts();
    let mut body = Some(body);
    let written = written(&app, &mut parts, &mut body).await;
    let refused = written.is_err();
    if let Some(unread) = body.filter(|_| refused) {
        // Who still sends reads the answer only when it has been listened to for a moment.
        linger(unread);
    }
    written.map(|entries| Json(Value::Array(entries)))
}

/// Takes the body when there is a place for it.
async fn written(app: &Arc<App>, parts: &mut Parts, body: &mut Option<Body>) -> Result<Vec<Value>, Response> {
    let (query, inside) = admitted(app, parts, "write").await?;
    let written = async {
        let metadata = metadata_in(&parts.headers)?;
        let guest = inside.guest(app).await?;
        let target = Target { user: inside.as_user(&guest)?, guest: &guest, inside: &inside, metadata };
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = text(&CONTENT_TYPE);
        if kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data") {
            let parts = Multipart::new(kind, body.take().unwrap_or_default())?;
            return target.take_parts(parts, query.path.as_deref()).await;
        }
        let path = query.path.as_deref().ok_or_else(|| Refusal::invalid("`path` is missing"))?;
        let packed = match text(&CONTENT_ENCODING) {
            "" | "identity" => false,
            "gzip" => true,
            _ => return Err(Refusal::absent("Burrow reads uploads plain or as gzip")),
        };
        let place = target.place(path).await?;
        let body = body.take().unwrap_or_default();
        let body = if packed { unpacked(body) } else { body };
        Ok(vec![shown(&target.put(&place, body).await?)])
    };
    written.await.map_err(Refusal::into_response)
}

/// The metadata that an upload gives its files: headers `X-Metadata-KEY`, with keys in lower case.
fn metadata_in(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Refusal> {
    let mut metadata = BTreeMap::new();
    let mut room = METADATA_BYTES_MAX;
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("x-metadata-").filter(|key| !key.is_empty()) else {
            continue;
        };
        let value = value.to_str().map_err(|_| {
            Refusal::invalid(format!("invalid metadata: the value of `{key}` is not printable ASCII"))
        })?;
        room = match room.checked_sub(key.len() + value.len()) {
            Some(room) if key.len() <= METADATA_KEY_MAX => room,
            _ => {
                let message = format!(
                    "invalid metadata: keys have at most {METADATA_KEY_MAX} bytes, and all of it together \
                     at most {METADATA_BYTES_MAX}"
                );
                return Err(Refusal::invalid(message));
            }
        };
        // The first of several counts.
        metadata.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    Ok(metadata)
}

/// By token or key as every call, or by its signature.
async fn admitted(
    app: &Arc<App>,
    parts: &mut Parts,
    operation: &'static str,
) -> Result<(Query, Inside), Response> {
    let Params(query) = Params::<Query>::from_request_parts(parts, app)
        .await
        .map_err(|error| Refusal::from(error).into_response())?;
    let Some(signature) = &query.signature else {
        let inside = Inside::from_request_parts(parts, app).await?;
        let user = query.username.clone();
        return Ok((query, inside.named(user)));
    };
    let signed = Signed {
        path: query.path.clone().unwrap_or_default(),
        operation,
        user: query.username.clone().unwrap_or_default(),
        expires: query.signature_expiration.clone(),
        signature: signature.clone(),
    };
    let inside =
        by_signature(app, parts, query.sandbox_id.clone(), signed).await.map_err(Refusal::into_response)?;
    let user = query.username.clone();
    Ok((query, inside.named(user)))
}

/// Where the address names a sandbox, by its host, a header or `sandbox_id`, one token is tried. E2B's clients also write
/// addresses that name none (with `E2B_SANDBOX_URL`): then every sandbox's token is.
async fn by_signature(
    app: &Arc<App>,
    parts: &Parts,
    sandbox_id: Option<String>,
    signed: Signed,
) -> Result<Inside, Refusal> {
    let refused = || Refusal::new(StatusCode::UNAUTHORIZED, "invalid signature");
    let now = app.engine.now_ms() / 1000;
    let counts =
        signed.expires.as_ref().is_none_or(|text| text.parse::<u64>().is_ok_and(|expires| expires > now));
    if !counts {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "signature is already expired"));
    }
    let named = parts.extensions.get::<Addressee>().cloned().and_then(|Addressee(text)| text);
    let sandbox = match named.or(sandbox_id) {
        Some(text) => {
            let id: SandboxId = text.parse().map_err(|_| refused())?;
            let token = access::envd_token(app, &id).await?;
            signed.is_by(&token).then_some(id)
        }
        None => look_up(app, signed).await?,
    };
    let sandbox = sandbox.ok_or_else(refused)?;
    let tenant = app.engine.owner(&sandbox).ok_or_else(refused)?;
    let trace = parts.extensions.get::<Trace>().cloned();
    if let Some(trace) = &trace {
        trace.asked_inside(&tenant, &sandbox, true);
    }
    Ok(Inside { tenant, sandbox, user: None, timeout: None, keepalive: super::KEEPALIVE, trace })
}

/// The sandbox whose token an address was signed with.
async fn look_up(app: &Arc<App>, signed: Signed) -> Result<Option<SandboxId>, Refusal> {
    let busy = |_| ApiError::new(ErrorCode::Busy, "too many signed addresses without a sandbox at once");
    let _place = app.lookups.places.try_acquire().map_err(busy)?;
    let _turn = app.lookups.running.acquire().await.expect("the semaphore is never closed");
    let (signer, catalog) = (app.gateway.signer(app).await?.clone(), app.engine.catalog().clone());
    let sandboxes: Vec<SandboxId> = app.engine.known().into_iter().take(TRIED_MAX).collect();
    let found =
        tokio::task::spawn_blocking(move || access::signed_by(&signer, &catalog, sandboxes, &signed)).await;
    Ok(found.map_err(|error| ApiError::internal("could not look up a signed address", error))?)
}

fn shown(entry: &FileEntry) -> Value {
    let mut shown = json!({ "path": entry.path, "name": entry.name, "type": "file" });
    if !entry.metadata.is_empty() {
        shown["metadata"] = json!(entry.metadata);
    }
    shown
}

/// Where uploads go.
struct Target<'a> {
    guest: &'a Guest,
    inside: &'a Inside,
    user: User,
    /// Of every file of the upload.
    metadata: BTreeMap<String, String>,
}

impl Target<'_> {
    async fn place(&self, path: &str) -> Result<String, Refusal> {
        Ok(self.inside.path(self.guest, &self.user, path).await?)
    }

    /// One file, written in place as E2B does: its hard links stay, and watchers see it written. Its metadata is replaced.
    async fn put(&self, path: &str, body: Body) -> Result<FileEntry, Refusal> {
        let owner = self.owner().await?;
        let write = WriteFile {
            path: path.to_owned(),
            mode: None,
            user: owner,
            parents: true,
            offset: None,
            sync: false,
            in_place: true,
            metadata: Some(self.metadata.clone()),
        };
        Ok(upload(self.guest, &GuestRequest::Write(write), body).await?)
    }

    /// The usual user, where the image has one. Asked before a body that can be sent but once.
    async fn owner(&self) -> Result<Option<String>, Refusal> {
        let there = self.user.named || super::home(self.guest, &self.user.name).await?.is_some();
        Ok(there.then(|| self.user.name.clone()))
    }

    /// Every part is a file, at the path of its own name unless the address has one.
    async fn take_parts(&self, mut parts: Multipart, path: Option<&str>) -> Result<Vec<Value>, Refusal> {
        let mut written = Vec::new();
        let taken = async {
            while let Some(part) = parts.next_part().await? {
                if part.name != "file" {
                    return Err(Refusal::invalid("every part of an upload is named `file`"));
                }
                let named = path.filter(|path| !path.is_empty()).or(part.filename.as_deref());
                let named = named.ok_or_else(|| Refusal::invalid("a file has no path"))?;
                let place = self.place(named).await?;
                written.push(shown(&self.take_part(&mut parts, &place).await?));
            }
            Ok(())
        };
        match taken.await {
            Ok(()) => Ok(written),
            Err(refusal) => {
                // Who still sends reads the answer only when it has been listened to for a moment.
                linger(parts.into_body());
                Err(refusal)
            }
        }
    }

    async fn take_part(&self, parts: &mut Multipart, place: &str) -> Result<FileEntry, Refusal> {
        let (pieces, mut waiting) = mpsc::channel::<io::Result<Bytes>>(1);
        let body = Body::from_stream(stream::poll_fn(move |ctx| waiting.poll_recv(ctx)));
        let (put, pumped) = tokio::join!(self.put(place, body), pump(parts, pieces));
        // Where both failed the body is the cause.
        pumped?;
        put
    }
}

/// Ends without an error where nobody takes more: the other half knows why.
async fn pump(parts: &mut Multipart, pieces: mpsc::Sender<io::Result<Bytes>>) -> Result<(), Refusal> {
    loop {
        match parts.chunk().await {
            Ok(Some(piece)) => {
                if pieces.send(Ok(piece)).await.is_err() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(refusal) => {
                // The guest sees no end, and so keeps nothing of it.
                let _ = pieces.send(Err(io::Error::other("the body broke off"))).await;
                return Err(refusal);
            }
        }
    }
}

/// Of what is packed, unpacked at once: a thousand times as much is held for a moment.
const PACKED_BYTES: usize = 4 << 10;

/// As it was before it was packed, piece by piece; how much that is, the sandbox's disk bounds.
fn unpacked(body: Body) -> Body {
    let state = (body.into_data_stream(), Bytes::new(), Some(GzDecoder::new(Vec::new())));
    Body::from_stream(stream::try_unfold(state, |(mut packed, mut waiting, decoder)| async move {
        let Some(mut decoder) = decoder else { return Ok(None) };
        loop {
            if waiting.is_empty() {
                match packed.next().await {
                    Some(Ok(bytes)) => waiting = bytes,
                    Some(Err(error)) => return Err(io::Error::other(error)),
                    None => {
                        let plain = Bytes::from(decoder.finish()?);
                        return Ok(Some((plain, (packed, waiting, None))));
                    }
                }
            }
            let piece = waiting.split_to(waiting.len().min(PACKED_BYTES));
            decoder.write_all(&piece)?;
            let plain = Bytes::from(std::mem::take(decoder.get_mut()));
            if !plain.is_empty() {
                return Ok(Some((plain, (packed, waiting, Some(decoder)))));
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn metadata_stands_in_headers_and_is_bounded() {
        let of = |pairs: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
            }
            metadata_in(&headers)
        };
        let found = of(&[("X-Metadata-Kind", "a b"), ("x-metadata-", "no"), ("x-other", "no")]).unwrap();
        assert_eq!(found, BTreeMap::from([("kind".to_owned(), "a b".to_owned())]));
        assert!(of(&[("x-metadata-a", &"x".repeat(METADATA_BYTES_MAX))]).is_err());
        assert!(of(&[(&format!("x-metadata-{}", "k".repeat(300)), "x")]).is_err());
        assert!(of(&[]).unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_was_packed_comes_out_in_bounded_pieces() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let plain = vec![0; 64 << 20];
        encoder.write_all(&plain).unwrap();
        let packed = encoder.finish().unwrap();
        let mut body = unpacked(Body::from(packed.clone()));
        let (mut total, mut largest) = (0, 0);
        while let Some(frame) = body.frame().await {
            let length = frame.unwrap().into_data().unwrap().len();
            (total, largest) = (total + length, largest.max(length));
        }
        assert_eq!(total, plain.len());
        assert!(largest <= 8 << 20, "{largest}");
        let mut broken = unpacked(Body::from(packed[..packed.len() / 2].to_vec()));
        let mut failed = false;
        while let Some(frame) = broken.frame().await {
            failed |= frame.is_err();
        }
        assert!(failed, "half of it is not the whole");
    }
}
