//! Whole files over plain HTTP: downloads, uploads, and signed addresses for either.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::IpAddr;
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
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

use super::super::error::Refusal;
use super::inside::EnvdRequest;
use super::multipart::Multipart;
use super::user::User;
use burrow_gateway::Gateway;
use burrow_gateway::e2b::handed_out::TOKENS_MAX;
use burrow_gateway::e2b::reach::CallEffect;
use burrow_gateway::e2b::tokens::{self, SignedAddress};
use burrow_gateway::e2b::{Lookups, reach};
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::error::ApiError;
use burrow_http::guest_files::read_file;
use burrow_http::input::Params;
use burrow_http::request_target::{Addressee, PeerAddress};
use burrow_http::upload::{linger, upload};

/// Maximum length of one key of a file's metadata; the attribute's name has a limit.
const METADATA_KEY_MAX: usize = 200;

/// Maximum size of a file's metadata.
const METADATA_BYTES_MAX: usize = 4096;

/// The error for a signed address without a sandbox. Only the newest tokens are tried for it.
const UNNAMED: &str =
    "invalid signature, or one made with an old access token: add `&sandbox_id=SANDBOX` to the address";

#[derive(Debug, Deserialize)]
pub(super) struct Query {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    signature_expiration: Option<String>,
    /// The sandbox of a signed address, if neither its host nor a header contains it.
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
        // A client that is still sending reads the response only if the connection stays open for a moment.
        linger(unread);
    }
    written.map(|entries| Json(Value::Array(entries)))
}

/// Receives the body after the request was admitted.
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
            _ => return Err(Refusal::absent("Burrow accepts uploads uncompressed or as gzip")),
        };
        let place = target.place(path).await?;
        let body = body.take().unwrap_or_default();
        let body = if packed { unpacked(body) } else { body };
        Ok(vec![shown(&target.put(&place, body).await?)])
    };
    written.await.map_err(Refusal::into_response)
}

/// The metadata for uploaded files: headers `X-Metadata-KEY`, with keys in lower case.
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
        // Of several values, the first is used.
        metadata.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    Ok(metadata)
}

/// Admitted by token or key like every call, or by its signature.
async fn admitted(
    app: &Arc<App>,
    parts: &mut Parts,
    operation: &'static str,
) -> Result<(Query, EnvdRequest), Response> {
    let Params(query) = Params::<Query>::from_request_parts(parts, app)
        .await
        .map_err(|error| Refusal::from(error).into_response())?;
    let Some(signature) = &query.signature else {
        let inside = EnvdRequest::from_request_parts(parts, app).await?;
        let user = query.username.clone();
        return Ok((query, inside.named(user)));
    };
    let signed = SignedAddress {
        path: query.path.clone().unwrap_or_default(),
        operation,
        user: query.username.clone().unwrap_or_default(),
        expires: query.signature_expiration.clone(),
        signature: signature.clone(),
    };
    let inside =
        by_signature(app, parts, query.sandbox_id.clone(), signed).await.map_err(Refusal::into_response)?;
    if !reach::is_reached(app, &inside.tenant, &inside.sandbox, CallEffect::Use).await {
        return Err(reach::gone(inside.sandbox.as_str()));
    }
    let user = query.username.clone();
    Ok((query, inside.named(user)))
}

/// If the address contains a sandbox, in its host, a header or `sandbox_id`, that sandbox's token is tried. E2B's
/// clients also create addresses without a sandbox (with `E2B_SANDBOX_URL`): then the newest tokens that were handed
/// out are tried.
async fn by_signature(
    app: &Arc<App>,
    parts: &Parts,
    sandbox_id: Option<String>,
    signed: SignedAddress,
) -> Result<EnvdRequest, Refusal> {
    let refused = || Refusal::new(StatusCode::UNAUTHORIZED, "invalid signature");
    let now = app.engine.now_ms() / 1000;
    let counts =
        signed.expires.as_ref().is_none_or(|text| text.parse::<u64>().is_ok_and(|expires| expires > now));
    if !counts {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "signature is already expired"));
    }
    let named = parts.extensions.get::<Addressee>().cloned().and_then(|Addressee(text)| text);
    let named = named.or(sandbox_id);
    let is_named = named.is_some();
    let sandbox = match named {
        Some(text) => {
            let id: SandboxId = text.parse().map_err(|_| refused())?;
            let token = tokens::envd_token(app, &id).await?;
            signed.is_by(&token).then_some(id)
        }
        None => look_up(app, signed, parts.extensions.get::<PeerAddress>().map(|peer| peer.0)).await?,
    };
    let sandbox = match sandbox {
        Some(sandbox) => sandbox,
        None if is_named => return Err(refused()),
        None => return Err(Refusal::new(StatusCode::UNAUTHORIZED, UNNAMED)),
    };
    let tenant = app.engine.owner(&sandbox).ok_or_else(refused)?;
    let trace = parts.extensions.get::<Trace>().cloned();
    if let Some(trace) = &trace {
        trace.asked_inside(&tenant, &sandbox, true);
    }
    Ok(EnvdRequest { tenant, sandbox, user: None, timeout: None, keepalive: super::inside::KEEPALIVE, trace })
}

/// The sandbox whose token an address was signed with, among the tokens that were handed out.
async fn look_up(
    app: &Arc<App>,
    signed: SignedAddress,
    peer: Option<IpAddr>,
) -> Result<Option<SandboxId>, Refusal> {
    let busy = || {
        ApiError::new(ErrorCode::Busy, "too many concurrent requests with signed addresses without a sandbox")
    };
    let _place = app.part::<Lookups>().place(peer).ok_or_else(busy)?;
    let _running = app.part::<Lookups>().running.acquire().await.expect("the semaphore is never closed");
    app.part::<Lookups>().refilled.get_or_try_init(|| refill(app)).await?;
    let at = app.clone();
    let found = spawn_blocking(move || {
        let found = at.part::<Lookups>().tokens().signed_by(&signed);
        let (id, handed) = found?;
        if tokens::is_good(&at, &id, &handed) {
            return Some(id);
        }
        at.part::<Lookups>().forget(&id);
        None
    });
    Ok(found.await.map_err(not_looked_up)?)
}

/// Adds the tokens of the newest leases, which were handed out before this daemon started.
async fn refill(app: &Arc<App>) -> Result<(), Refusal> {
    let (signer, catalog) = (app.part::<Gateway>().signer(app).await?.clone(), app.engine.catalog().clone());
    let leased = catalog.newest_leased(TOKENS_MAX).await?;
    let at = app.clone();
    let refilled = spawn_blocking(move || {
        let older = tokens::handed_out_before(&signer, &catalog, leased);
        at.part::<Lookups>().tokens().refill(older);
    });
    Ok(refilled.await.map_err(not_looked_up)?)
}

fn not_looked_up(error: JoinError) -> ApiError {
    ApiError::internal("could not look up a signed address", error)
}

fn shown(entry: &FileEntry) -> Value {
    let mut shown = json!({ "path": entry.path, "name": entry.name, "type": "file" });
    if !entry.metadata.is_empty() {
        shown["metadata"] = json!(entry.metadata);
    }
    shown
}

/// The destination of an upload.
struct Target<'a> {
    guest: &'a Guest,
    inside: &'a EnvdRequest,
    user: User,
    /// For every file of the upload.
    metadata: BTreeMap<String, String>,
}

impl Target<'_> {
    async fn place(&self, path: &str) -> Result<String, Refusal> {
        Ok(self.inside.path(self.guest, &self.user, path).await?)
    }

    /// Writes one file in place, as E2B does: hard links are preserved, and watchers see a write. Its metadata is
    /// replaced.
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

    /// The default user, if the image has it. Determined before the body, which can be sent only once.
    async fn owner(&self) -> Result<Option<String>, Refusal> {
        let there = self.user.named || super::user::home(self.guest, &self.user.name).await?.is_some();
        Ok(there.then(|| self.user.name.clone()))
    }

    /// Every part is a file, stored at the path of its own name unless the address contains one.
    async fn take_parts(&self, mut parts: Multipart, path: Option<&str>) -> Result<Vec<Value>, Refusal> {
        let mut written = Vec::new();
        let taken = async {
            while let Some(part) = parts.next_part().await? {
                if part.name != "file" {
                    return Err(Refusal::invalid("every part of an upload must be named `file`"));
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
                // A client that is still sending reads the response only if the connection stays open for a moment.
                linger(parts.into_body());
                Err(refusal)
            }
        }
    }

    async fn take_part(&self, parts: &mut Multipart, place: &str) -> Result<FileEntry, Refusal> {
        let (pieces, mut waiting) = mpsc::channel::<io::Result<Bytes>>(1);
        let body = Body::from_stream(stream::poll_fn(move |ctx| waiting.poll_recv(ctx)));
        let (put, pumped) = tokio::join!(self.put(place, body), pump(parts, pieces));
        // If both failed, the body is the cause.
        pumped?;
        put
    }
}

/// Ends without an error if the receiver has ended: the receiver knows the reason.
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
                // The guest does not see an end of file, and so discards the file.
                let _ = pieces.send(Err(io::Error::other("the body was interrupted"))).await;
                return Err(refusal);
            }
        }
    }
}

/// Size of the compressed pieces that are decompressed at once: up to a thousand times as much is buffered.
const PACKED_BYTES: usize = 4 << 10;

/// Decompresses the body piece by piece; the total size is limited by the sandbox's disk.
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
    fn metadata_is_read_from_headers_and_limited() {
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
    async fn decompressed_pieces_have_a_maximum_size() {
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
        assert!(failed, "a truncated stream fails");
    }
}
