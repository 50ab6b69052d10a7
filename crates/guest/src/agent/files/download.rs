//! Sends a file's bytes: small files in one write together with the answer, large ones by `sendfile` within frames.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::entry::describe;
use super::open::open_regular;
use super::{check_path, on_disk, transfer_permit};
use crate::agent::failure::refused;
use crate::agent::users;
use crate::agent::wire::{Outbox, Readiness, WireError, until_ready};
use crate::protocol::{FRAME_BYTES_MAX, FileEntry, Frame, FrameKind, ReadFile, RequestError};

/// Files up to this size are sent together with the answer.
const SMALL_BYTES: u64 = 64 * 1024;

/// Read at a time from files whose size is unknown, such as those of procfs and sysfs.
const UNSIZED_CHUNK_BYTES: usize = 64 * 1024;

/// What is to be sent.
enum Content {
    Whole(Bytes),
    Sized { file: OwnedFd, offset: u64, length: u64 },
    Unsized { file: OwnedFd, offset: u64, length: u64 },
}

/// Carries out [`crate::protocol::Request::Read`].
pub(in crate::agent) async fn read(
    request: ReadFile,
    stream: &TcpStream,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let (entry, content) = match on_disk(move || open(&request)).await {
        Ok(opened) => opened,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    outbox.push_reply(Ok(entry))?;
    match content {
        Content::Whole(bytes) if bytes.is_empty() => {}
        Content::Whole(bytes) => outbox.push(&Frame::Bytes(bytes)),
        Content::Sized { file, offset, length } => {
            let _permit = transfer_permit().await;
            outbox.flush().await?;
            send_range(stream, Arc::new(file), offset, length).await?;
        }
        Content::Unsized { file, offset, length } => {
            let _permit = transfer_permit().await;
            send_unsized(outbox, file, offset, length).await?;
        }
    }
    outbox.push(&Frame::End);
    outbox.flush().await
}

fn open(request: &ReadFile) -> Result<(FileEntry, Content), RequestError> {
    let path = check_path(&request.path)?;
    let (file, stat) = open_regular(path, OFlags::RDONLY)?;
    let entry = describe(std::path::Path::new(path), &stat, None, &users::names());
    let wanted = request.length.unwrap_or(u64::MAX);
    if entry.size == 0 {
        return Ok((entry, Content::Unsized { file, offset: request.offset, length: wanted }));
    }
    let length = entry.size.saturating_sub(request.offset).min(wanted);
    if length > SMALL_BYTES {
        return Ok((entry, Content::Sized { file, offset: request.offset, length }));
    }
    let bytes = read_at(&file, request.offset, usize::try_from(length).unwrap_or(0))
        .map_err(|errno| refused("read", path, errno))?;
    Ok((entry, Content::Whole(bytes)))
}

/// Up to `length` bytes; fewer only at the end of the file.
fn read_at(file: &OwnedFd, offset: u64, length: usize) -> Result<Bytes, Errno> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match rustix::io::pread(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}

async fn send_unsized(
    outbox: &mut Outbox<'_>,
    file: OwnedFd,
    mut offset: u64,
    mut length: u64,
) -> Result<(), WireError> {
    let file = Arc::new(file);
    while length > 0 {
        let source = Arc::clone(&file);
        let chunk = usize::try_from(length).unwrap_or(usize::MAX).min(UNSIZED_CHUNK_BYTES);
        let bytes =
            on_disk(move || read_at(&source, offset, chunk).map_err(|errno| refused("read", "file", errno)))
                .await
                .map_err(|_| WireError::HungUp)?;
        if bytes.is_empty() {
            return Ok(());
        }
        offset += bytes.len() as u64;
        length -= bytes.len() as u64;
        outbox.push(&Frame::Bytes(bytes));
        outbox.flush().await?;
    }
    Ok(())
}

/// Sends a range of a file as Bytes frames. If the file shrinks meanwhile, the connection ends in the middle of a
/// frame: the frame's length was announced, and made-up bytes would be worse.
pub(super) async fn send_range(
    stream: &TcpStream,
    file: Arc<OwnedFd>,
    mut offset: u64,
    mut length: u64,
) -> Result<(), WireError> {
    let socket = Arc::new(stream.as_fd().try_clone_to_owned()?);
    while length > 0 {
        let frame = usize::try_from(length).unwrap_or(usize::MAX).min(FRAME_BYTES_MAX);
        send_header(stream, frame).await?;
        let mut rest = frame;
        while rest > 0 {
            let (file, socket) = (Arc::clone(&file), Arc::clone(&socket));
            let sent = tokio::task::spawn_blocking(move || {
                let mut at = offset;
                rustix::fs::sendfile(&socket, &file, Some(&mut at), rest)
            });
            match sent.await.map_err(|_| WireError::HungUp)? {
                Ok(0) => return Err(WireError::HungUp),
                Ok(count) => {
                    rest -= count;
                    offset += count as u64;
                }
                Err(Errno::AGAIN) => until_ready(stream, Readiness::Writable).await?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
        }
        length -= frame as u64;
    }
    Ok(())
}

async fn send_header(stream: &TcpStream, length: usize) -> Result<(), WireError> {
    let header = Frame::header(FrameKind::Bytes, length);
    let mut rest = &header[..];
    while !rest.is_empty() {
        // More data follows at once, so the header must not be sent in a packet of its own.
        let sent =
            stream.try_io(Interest::WRITABLE, || Ok(rustix::net::send(stream, rest, SendFlags::MORE)?));
        match sent {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
