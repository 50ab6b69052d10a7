//! Files of sandboxes as response bodies: whole files, and ranges.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_engine::Guest;
use burrow_guest::protocol::{self, ReadFile, Request};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};

use crate::error::ApiError;
use crate::range::{self, ByteRange};
use crate::stream::GuestBody;

/// A file, or the range of it that a `Range` header requests.
pub async fn read_file(guest: Guest, path: String, range: Option<&str>) -> Result<Response, ApiError> {
    match range.and_then(range::parse) {
        None => read_whole(guest, path).await,
        Some(asked) => read_range(guest, path, asked).await,
    }
}

async fn read_whole(guest: Guest, path: String) -> Result<Response, ApiError> {
    let mut connection = guest.open(&Request::Read(ReadFile { path, offset: 0, length: None })).await?;
    let entry: protocol::FileEntry = guest.reply(&mut connection).await?;
    if entry.size > 0 {
        let body = GuestBody::new(guest, connection, Some(entry.size));
        return Ok(answer(StatusCode::OK, &entry, Some(entry.size), Body::from_stream(body.into_stream())));
    }
    // A file of size 0 may have contents: files in `/proc` do.
    let mut body = GuestBody::new(guest, connection, None);
    let first = body.next().await.map_err(|error| ApiError::internal("could not read the file", error))?;
    Ok(match first {
        None => answer(StatusCode::OK, &entry, Some(0), Body::empty()),
        Some(first) => {
            let first = futures_util::stream::iter([Ok(first)]);
            let whole = futures_util::StreamExt::chain(first, body.into_stream());
            answer(StatusCode::OK, &entry, None, Body::from_stream(whole))
        }
    })
}

async fn read_range(guest: Guest, path: String, asked: ByteRange) -> Result<Response, ApiError> {
    let stat = Request::Stat { path: path.clone(), follow: true };
    let size = guest.call::<protocol::FileEntry>(&stat).await?.size;
    let Some((offset, length)) = asked.within(size) else {
        let message = format!("the range is outside the file, which has {size} bytes");
        let mut response = ApiError::new(ErrorCode::RangeNotSatisfiable, message).into_response();
        let value = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are a header value");
        response.headers_mut().insert(CONTENT_RANGE, value);
        return Ok(response);
    };
    let mut connection = guest.open(&Request::Read(ReadFile { path, offset, length: Some(length) })).await?;
    let entry: protocol::FileEntry = guest.reply(&mut connection).await?;
    let body = GuestBody::new(guest, connection, Some(length));
    let body = Body::from_stream(body.into_stream());
    let mut response = answer(StatusCode::PARTIAL_CONTENT, &entry, Some(length), body);
    let value = format!("bytes {offset}-{}/{size}", offset + length - 1);
    let value = HeaderValue::try_from(value).expect("digits are a header value");
    response.headers_mut().insert(CONTENT_RANGE, value);
    Ok(response)
}

fn answer(status: StatusCode, entry: &protocol::FileEntry, length: Option<u64>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A browser must not interpret a sandbox's file as a page of the daemon.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    let mode =
        HeaderValue::try_from(format!("{:04o}", entry.mode & 0o7777)).expect("digits are a header value");
    headers.insert("x-burrow-mode", mode);
    response
}
