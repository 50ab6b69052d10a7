//! Copies from this host into a sandbox.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use burrow_api::FileKind;
use burrow_client::{Client, UploadBody, UploadOptions};
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::bridge::{QueueWriter, send_written};
use super::endpoint::{LocalPath, RemotePath};
use super::input::is_standard;
use super::pack::pack;
use super::progress::Progress;
use crate::failure::{Describe, Failure, OrFail, Stop, fail};
use crate::print;
use crate::print::escape::escape;

/// Uploads a local file or directory.
pub(crate) async fn upload(
    client: &Client,
    from: &LocalPath,
    to: &RemotePath,
    user: Option<&str>,
) -> Result<(), Stop> {
    let what = || format!("could not copy `{}` to `{}`", from.path.display(), to.shown());
    let metadata = tokio::fs::metadata(&from.path).await.or_fail(what)?;
    let name = || -> Result<String, Stop> {
        let absolute = std::path::absolute(&from.path).or_fail(what)?;
        let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
        name.ok_or_else(|| Failure::new(what()).hint("give the full path of the destination").into())
    };
    let into_directory = to.directory || is_directory(client, to).await.or_fail(what)?;
    if metadata.is_dir() {
        // A directory is copied into one that exists; otherwise it is created under the given name (like docker).
        let exists = is_directory(client, to).await.or_fail(what)?;
        let target = if exists && !from.contents { to.join(&name()?) } else { to.path.clone() };
        return tree(client, from, &RemotePath { path: target, ..to.clone() }, user).await;
    }
    if !metadata.is_file() {
        return fail(what(), "it is not a file or directory");
    }
    let target = if into_directory { to.join(&name()?) } else { to.path.clone() };
    let file = tokio::fs::File::open(&from.path).await.or_fail(what)?;
    let progress = Arc::new(Progress::bytes(&to.shown(), Some(metadata.len())));
    let options = UploadOptions {
        mode: Some(format!("{:04o}", metadata.permissions().mode() & 0o777)),
        user: user.map(str::to_owned),
        parents: true,
        offset: None,
        sync: false,
    };
    let body = counted(UploadBody::from_reader(file, Some(metadata.len())), &progress);
    client.upload(&to.sandbox, &target, &options, body).await.or_fail(what)?;
    progress.finish();
    Ok(())
}

/// Unpacks a tar archive from standard input below a directory.
pub(crate) async fn archive(client: &Client, to: &RemotePath, user: Option<&str>) -> Result<(), Stop> {
    let progress = Arc::new(Progress::bytes(&to.shown(), None));
    let body = counted(UploadBody::from_reader(tokio::io::stdin(), None), &progress);
    let sent = client.upload_tar(&to.sandbox, &to.path, user, body).await;
    sent.or_fail(|| format!("could not unpack standard input at `{}`", to.shown()))?;
    progress.finish();
    Ok(())
}

async fn tree(client: &Client, from: &LocalPath, to: &RemotePath, user: Option<&str>) -> Result<(), Stop> {
    let what = || format!("could not copy `{}` to `{}`", from.path.display(), to.shown());
    let progress = Arc::new(Progress::bytes(&to.shown(), None));
    let (directory, counter) = (from.path.clone(), progress.clone());
    let write = move |writer: &mut QueueWriter| pack(&directory, writer, |bytes| counter.add(bytes));
    let send = async |body| client.upload_tar(&to.sandbox, &to.path, user, body).await;
    let (_, packed) = send_written(write, send, what).await?;
    progress.finish();
    for path in packed.left_out {
        let shown = escape(&path.display().to_string());
        print::note(format!("skipped `{shown}`: it is not a file, directory or link"));
    }
    Ok(())
}

/// Whether the destination is a directory; one that does not exist is not.
async fn is_directory(client: &Client, to: &RemotePath) -> Result<bool, burrow_client::ClientError> {
    match client.stat(&to.sandbox, &to.path, true).await {
        Ok(entry) => Ok(entry.kind == FileKind::Directory),
        Err(error) if error.is_not_found() => {
            // The sandbox itself may not exist.
            client.sandbox(&to.sandbox).await.map(|_| false)
        }
        Err(error) => Err(error),
    }
}

/// A file, or with `-` standard input, as a request body with a progress bar.
pub(crate) async fn body(
    file: &Path,
    what: impl Describe + Copy,
) -> Result<(UploadBody, Arc<Progress>), Stop> {
    let (body, total) = if is_standard(file) {
        (UploadBody::from_reader(tokio::io::stdin(), None), None)
    } else {
        let opened = tokio::fs::File::open(file).await.or_fail(what)?;
        let total = Some(length(file, what)?);
        (UploadBody::from_reader(opened, total), total)
    };
    let progress = Arc::new(Progress::bytes("sending", total));
    Ok((counted(body, &progress), progress))
}

/// The length of a regular file.
pub(crate) fn length(file: &Path, what: impl Describe + Copy) -> Result<u64, Stop> {
    let metadata = std::fs::metadata(file).or_fail(what)?;
    match metadata.is_file() {
        true => Ok(metadata.len()),
        false => fail(
            format!("{}: `{}` is not a regular file", what.describe(), file.display()),
            "give a file, or `-` for standard input",
        ),
    }
}

/// The same bytes, counted for the progress display.
pub(crate) fn counted(body: UploadBody, progress: &Arc<Progress>) -> UploadBody {
    let progress = progress.clone();
    body.inspect(move |bytes: &Bytes| progress.add(bytes.len() as u64))
}

/// Copies from one sandbox into another, through this program.
pub(crate) async fn across(
    client: &Client,
    from: &RemotePath,
    to: &RemotePath,
    user: Option<&str>,
) -> Result<(), Stop> {
    let what = || format!("could not copy `{}` to `{}`", from.shown(), to.shown());
    let entry = client.stat(&from.sandbox, &from.path, true).await.or_fail(what)?;
    let exists = is_directory(client, to).await.or_fail(what)?;
    let into =
        if (exists || to.directory) && !from.contents { to.join(from.name()) } else { to.path.clone() };
    let progress = Arc::new(Progress::bytes(&to.shown(), None));
    let io_error = |error: burrow_client::ClientError| std::io::Error::other(error.to_string());
    match entry.kind {
        FileKind::File => {
            let download = client.download(&from.sandbox, &from.path, None).await.or_fail(what)?;
            let options = UploadOptions {
                mode: download.mode.clone().or(Some(entry.mode)),
                user: user.map(str::to_owned),
                parents: true,
                offset: None,
                sync: false,
            };
            let body = UploadBody::from_stream(
                download.bytes.map(move |chunk| chunk.map_err(io_error)),
                download.length,
            );
            client.upload(&to.sandbox, &into, &options, counted(body, &progress)).await.or_fail(what)?;
        }
        FileKind::Directory => {
            let bytes = client.download_tar(&from.sandbox, &from.path).await.or_fail(what)?;
            let body = UploadBody::from_stream(bytes.map(move |chunk| chunk.map_err(io_error)), None);
            client.upload_tar(&to.sandbox, &into, user, counted(body, &progress)).await.or_fail(what)?;
        }
        FileKind::Symlink | FileKind::Other => {
            return fail(what(), "it is not a file or directory");
        }
    }
    progress.finish();
    Ok(())
}
