//! `GET …/files/list`: a directory's entries, passed on as the guest sends them.
//!
//! A hundred thousand entries take tens of megabytes, so the response is written piece by piece: no more than one frame is
//! held in memory.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{FileList, defaults};
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{self, Frame, ListFiles, Request};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::auth::Reader;
use super::error::ApiError;
use super::files::guest;
use super::input::Params;
use super::refusals::{Common, GuestRefusals};
use super::sandboxes::SandboxPath;
use super::stream::{GuestReader, GuestWriter, broken, hung_up, out_of_turn};
use super::{App, Segments};
use crate::convert::{self, check_path};

/// Maximum depth of a listing.
pub(crate) const DEPTH_MAX: u32 = 64;

/// What to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Depth of the listing; 1, only the directory's own entries, when absent.
    #[param(minimum = 1, maximum = 64)]
    depth: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/list", tag = "files", params(SandboxPath, ListParams),
    responses((status = 200, description = "The directory's entries", body = FileList), Common, GuestRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    check_path("path", &params.path)?;
    let depth = params.depth.unwrap_or(1);
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(ApiError::invalid(format!("`depth` must be from 1 to {DEPTH_MAX}")));
    }
    let guest = guest(&app, &caller, &path).await?;
    listed(guest, params.path, depth, convert::file_entry).await
}

/// One JSON document of all entries, each in the form that `show` returns.
pub(crate) async fn listed<T: Serialize + 'static>(
    guest: Guest,
    path: String,
    depth: u32,
    show: fn(protocol::FileEntry) -> T,
) -> Result<Response, ApiError> {
    let request = ListFiles { path, depth, entries_max: defaults::LIST_ENTRIES_MAX };
    let mut connection = guest.open(&Request::ListStream(request)).await?;
    guest.reply::<()>(&mut connection).await?;
    let (reader, writer) = connection.split();
    let listing = Listing { guest, reader, _writer: writer, pieces: 0, entries: 0, ended: false, show };
    let body = stream::try_unfold(listing, |mut listing| async move {
        if listing.ended {
            return Ok(None);
        }
        let piece = listing.next().await?;
        Ok::<_, io::Error>(Some((piece, listing)))
    });
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from_stream(body))
        .expect("the header is a constant"))
}

struct Listing<T> {
    guest: Guest,
    reader: GuestReader,
    /// Kept open: the guest would take its closing for a disconnected reader.
    _writer: GuestWriter,
    pieces: u64,
    entries: u64,
    ended: bool,
    show: fn(protocol::FileEntry) -> T,
}

impl<T: Serialize> Listing<T> {
    /// The next piece of one `FileList`.
    async fn next(&mut self) -> io::Result<Bytes> {
        let frame = self.reader.next().await.map_err(|error| broken(self.guest.error(error).into()))?;
        let mut piece = Vec::new();
        if self.pieces == 0 {
            piece.extend_from_slice(b"{\"entries\":[");
        }
        match frame {
            Some(Frame::Control(json)) => {
                let entries: Vec<protocol::FileEntry> =
                    parse(&json).map_err(|error| broken(self.guest.error(error).into()))?;
                for entry in entries {
                    if self.entries > 0 {
                        piece.push(b',');
                    }
                    self.entries += 1;
                    serde_json::to_writer(&mut piece, &(self.show)(entry)).map_err(io::Error::other)?;
                }
            }
            Some(Frame::End) => {
                self.ended = true;
                piece.extend_from_slice(b"]}");
            }
            Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. }) => {
                return Err(broken(out_of_turn(&self.guest)));
            }
            None => return Err(broken(hung_up(&self.guest))),
        }
        self.pieces += 1;
        Ok(Bytes::from(piece))
    }
}
