//! The entries of a directory in a sandbox, passed on as the guest sends them.
//!
//! A hundred thousand entries take tens of megabytes, so the response is written piece by piece: no more than one frame is
//! held in memory.

use std::io;

use axum::body::Body;
use axum::response::Response;
use burrow_api::defaults;
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{self, Frame, ListFiles, Request};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::error::ApiError;
use crate::stream::{GuestReader, GuestWriter, broken, hung_up, out_of_turn};

/// Maximum depth of a listing.
pub const DEPTH_MAX: u32 = 64;

/// One JSON document of all entries, each in the form that `show` returns.
pub async fn listed<T: Serialize + 'static>(
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
