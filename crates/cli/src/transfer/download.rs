//! Copies from a sandbox to this host.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use burrow_api::FileKind;
use burrow_client::Client;
use tokio::io::AsyncWriteExt as _;

use super::archive_reader::ArchiveError;
use super::bridge::{pour, to_blocking};
use super::destination::unpack_to;
use super::endpoint::{LocalPath, RemotePath};
use super::interrupt::unless_interrupted;
use super::progress::Progress;
use super::save::{refuse_terminal, staged};
use crate::failure::{Failure, OrFail, Stop, fail};

/// Downloads a file or directory of a sandbox.
pub(crate) async fn download(client: &Client, from: &RemotePath, to: &LocalPath) -> Result<(), Stop> {
    let what = || format!("could not copy `{}` to `{}`", from.shown(), to.path.display());
    let entry = client.stat(&from.sandbox, &from.path, true).await.or_fail(what)?;
    match entry.kind {
        FileKind::File => {
            let into_directory = to.path.is_dir();
            if to.directory && !into_directory {
                return fail(what(), format!("`{}` is not a directory", to.path.display()));
            }
            let target = if into_directory { to.path.join(from.name()) } else { to.path.clone() };
            unless_interrupted(file(client, from, &target)).await?
        }
        FileKind::Directory => {
            let target =
                if to.path.is_dir() && !from.contents { to.path.join(from.name()) } else { to.path.clone() };
            tree(client, from, target).await
        }
        FileKind::Symlink | FileKind::Other => fail(what(), "it is not a file or directory"),
    }
}

/// Streams a tar archive to standard output.
pub(crate) async fn archive(client: &Client, from: &RemotePath) -> Result<(), Stop> {
    let what = || format!("could not read `{}` as an archive", from.shown());
    refuse_terminal(None, what, "redirect it, or pipe it into `tar x`")?;
    let bytes = client.download_tar(&from.sandbox, &from.path).await.or_fail(what)?;
    let progress = Progress::bytes(&from.shown(), None);
    bytes.copy_to(&mut tokio::io::stdout(), |count| progress.add(count)).await.or_fail(what)?;
    progress.finish();
    Ok(())
}

async fn file(client: &Client, from: &RemotePath, to: &Path) -> Result<(), Stop> {
    let what = || format!("could not copy `{}` to `{}`", from.shown(), to.display());
    let download = client.download(&from.sandbox, &from.path, None).await.or_fail(what)?;
    let progress = Progress::bytes(&from.shown(), download.length);
    // A device or a pipe is written to; renaming a file over it would replace it.
    let special = std::fs::metadata(to).is_ok_and(|metadata| !metadata.is_file());
    if special {
        let mut target = tokio::fs::File::options().write(true).open(to).await.or_fail(what)?;
        download.bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
        return Ok(());
    }
    // A symbolic link at the destination is followed, as cp does.
    let to = to.canonicalize().unwrap_or_else(|_| to.to_owned());
    let staged = staged(&to).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(staged.reopen().or_fail(what)?);
    download.bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    staged.as_file().set_permissions(Permissions::from_mode(mode(download.mode.as_deref()))).or_fail(what)?;
    staged.persist(&to).map_err(|error| error.error).or_fail(what)?;
    progress.finish();
    Ok(())
}

/// Permission bits only: a sandbox must not grant privileges on this host.
fn mode(text: Option<&str>) -> u32 {
    text.and_then(|text| u32::from_str_radix(text, 8).ok()).map_or(0o644, |mode| mode & 0o777)
}

async fn tree(client: &Client, from: &RemotePath, to: PathBuf) -> Result<(), Stop> {
    let what = || format!("could not copy `{}`", from.shown());
    let bytes = client.download_tar(&from.sandbox, &from.path).await.or_fail(what)?;
    let progress = Progress::bytes(&from.shown(), None);
    let (sender, reader) = to_blocking();
    let unpacking = tokio::task::spawn_blocking(move || unpack_to(reader, &to));
    let received = unless_interrupted(pour(bytes, sender, &progress)).await;
    // Always awaited: it removes what it has unpacked of an incomplete archive.
    let unpacked = unpacking.await.expect("unpacking does not panic");
    progress.finish();
    received?.or_fail(what)?;
    unpacked.map(drop).map_err(|error| refusal(&what(), error))
}

fn refusal(what: &str, error: ArchiveError) -> Stop {
    let failure = match error {
        ArchiveError::Read(error) => Failure::new(format!("{what}: the archive is corrupt")).because(&error),
        ArchiveError::Refused { path, why } => {
            Failure::new(format!("{what}: the archive contains `{path}`: {why}"))
                .hint("nothing was written; to inspect the archive: `burrow cp SANDBOX:PATH - | tar tv`")
        }
        ArchiveError::Write { path, error } => {
            Failure::new(format!("{what}: could not write `{path}`")).because(&error)
        }
    };
    failure.into()
}
