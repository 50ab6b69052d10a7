//! Files for the COPY steps of template builds.
//!
//! ```text
//!   GET /templates/{template}/files/{hash} ─► an address for one upload ─ PUT a tar ─► kept until the build starts
//!   the build starts ─► all of its uploads become one context, each below its hash
//! ```
//!
//! Clients upload without a key, so the address authorises the upload: 128 random bits, valid for one file of one build
//! that has not started. Archives are untrusted; here their entries are only renamed, and they are unpacked like every
//! build context.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_engine::BuildContext;
use burrow_memory::MemoryError;
use burrow_memory::artifacts::{NoDiskSpace, UploadLease};
use flate2::read::GzDecoder;
use http::StatusCode;
use http_body_util::BodyExt as _;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::body::E2bExtractor;
use super::copy_step::check_hash;
use super::error::Refusal;
use super::show::Host;
use crate::builds::Builds;
use burrow_http::app::{App, Part};
use burrow_http::auth::Admin;
use burrow_http::error::ApiError;
use burrow_http::input::Segments;

/// Maximum number of uploads that wait for their builds.
const UPLOADS_MAX: usize = 256;

/// How long an upload is kept for its build.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Maximum time without data in an upload.
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<HashMap<String, Upload>>);

#[derive(Debug)]
struct Upload {
    build: String,
    hash: String,
    /// `None` until the upload is complete.
    file: Option<File>,
    since: Instant,
}

impl Part for Copies {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Upload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves an upload for one file of one build; `None` if the file exists already.
    fn add(&self, build: &str, hash: &str) -> Result<Option<String>, Refusal> {
        let mut all = self.lock();
        all.retain(|_, upload| upload.since.elapsed() < KEPT_FOR);
        if all.values().any(|upload| upload.build == build && upload.hash == hash && upload.file.is_some()) {
            return Ok(None);
        }
        if all.len() >= UPLOADS_MAX {
            let message = "too many uploads are waiting for builds; try again later";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the kernel's random generator is available");
        let id = format!("{:032x}", u128::from_le_bytes(bytes));
        let upload =
            Upload { build: build.to_owned(), hash: hash.to_owned(), file: None, since: Instant::now() };
        all.insert(id.clone(), upload);
        Ok(Some(id))
    }

    /// Removes and returns all uploads of a build.
    pub(super) fn take(&self, build: &str) -> Vec<(String, File)> {
        let mut all = self.lock();
        let own = |(_, upload): &(&String, &Upload)| upload.build == build;
        let ids: Vec<String> = all.iter().filter(own).map(|(id, _)| id.clone()).collect();
        let own = ids.iter().filter_map(|id| all.remove(id));
        own.filter_map(|upload| Some((upload.hash, upload.file?))).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct FilePath {
    template: String,
    hash: String,
}

/// Returns the address for an upload.
pub(super) async fn place(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    host: Host,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<FilePath>>,
) -> Result<Response, Refusal> {
    check_hash(&path.hash)?;
    let build = app.part::<Builds>().waiting(caller.tenant(), &path.template)?;
    let shown = match app.part::<Copies>().add(&build, &path.hash)? {
        None => json!({ "present": true }),
        Some(id) => {
            json!({ "present": false, "url": format!("{}/templates/uploads/{id}", host.origin(&app)) })
        }
    };
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct UploadPath {
    upload: String,
}

/// Authorised by the address alone: clients send no key.
pub(super) async fn upload(
    State(app): State<Arc<App>>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<UploadPath>>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, "upload not found, or its build has started");
    if !app.part::<Copies>().lock().contains_key(&path.upload) {
        return Err(unknown());
    }
    let file = unnamed(&app.config.state_dir)?;
    let floor = burrow_http::memory::floor(&app.config, app.config.state_dir.clone());
    let file = receive(file, body, app.config.bounds.image_upload_bytes, UploadLease::new(&floor)).await?;
    match app.part::<Copies>().lock().get_mut(&path.upload) {
        Some(upload) => upload.file = Some(file),
        None => return Err(unknown()),
    }
    Ok(StatusCode::OK)
}

/// An unlinked file, which is deleted when its descriptor is closed.
fn unnamed(folder: &Path) -> Result<File, Refusal> {
    let flags = i32::try_from(OFlags::TMPFILE.bits()).unwrap_or_default();
    let opened = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(folder);
    opened.map_err(|error| ApiError::internal("could not create a file for an upload", error).into())
}

async fn receive(
    file: File,
    mut body: Body,
    bytes_max: u64,
    mut lease: UploadLease,
) -> Result<File, Refusal> {
    let mut file = tokio::fs::File::from_std(file);
    let mut total = 0u64;
    loop {
        let frame = timeout(SILENCE_MAX, body.frame()).await;
        let frame = frame.map_err(|_| Refusal::invalid("the client stopped sending during an upload"))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Refusal::invalid("the upload was interrupted"))?;
        let Ok(bytes) = frame.into_data() else { continue };
        total += bytes.len() as u64;
        if total > bytes_max {
            let message = format!("an upload is larger than {bytes_max} bytes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        lease.take(bytes.len() as u64).map_err(no_space)?;
        tokio::io::AsyncWriteExt::write_all(&mut file, &bytes).await.map_err(could_not_keep)?;
    }
    tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(could_not_keep)?;
    Ok(file.into_std().await)
}

fn no_space(error: NoDiskSpace) -> Refusal {
    ApiError::from(MemoryError::from(error)).into()
}

fn could_not_keep(error: io::Error) -> Refusal {
    ApiError::internal("could not store an upload", error).into()
}

/// Combines all uploads of a build into one build context.
pub(super) async fn context(app: &Arc<App>, uploads: Vec<(String, File)>) -> Result<BuildContext, Refusal> {
    let whole = unnamed(&app.config.state_dir)?;
    let bytes_max = app.config.bounds.image_upload_bytes;
    let floor = burrow_http::memory::floor(&app.config, app.config.state_dir.clone());
    let joined = tokio::task::spawn_blocking(move || {
        let whole = LeasedWriter { file: whole, lease: UploadLease::new(&floor) };
        Ok::<_, io::Error>(join(whole, uploads, bytes_max)?.file)
    });
    let joined = joined.await;
    let joined =
        joined.map_err(|error| Refusal::from(ApiError::internal("could not read uploads", error)))?;
    let whole = joined
        .map_err(|error| Refusal::invalid(format!("could not read a copied file's archive: {error}")))?;
    Ok(app.engine.open_context(Box::new(whole)).await?)
}

/// Blocking. Nothing is unpacked: entries are renamed.
fn join<W: Write + Seek>(whole: W, uploads: Vec<(String, File)>, bytes_max: u64) -> io::Result<W> {
    let mut builder = tar::Builder::new(whole);
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o600);
    builder.append_data(&mut header, "request", &b"{}"[..])?;
    for (hash, mut file) in uploads {
        let below = Path::new("context").join(&hash);
        // An empty directory must be copied as a directory.
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        builder.append_data(&mut header, &below, io::empty())?;
        file.rewind()?;
        let mut magic = [0; 2];
        let packed = file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
        file.rewind()?;
        let plain: Box<dyn Read> = if packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
        rename(&mut builder, plain.take(bytes_max), &below)?;
    }
    let mut whole = builder.into_inner()?;
    whole.flush()?;
    whole.rewind()?;
    Ok(whole)
}

/// A file whose growth is reserved on its disk.
struct LeasedWriter {
    file: File,
    lease: UploadLease,
}

impl Write for LeasedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.lease.take(bytes.len() as u64);
        taken.map_err(|error| io::Error::new(io::ErrorKind::StorageFull, error))?;
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for LeasedWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn rename<W: Write>(builder: &mut tar::Builder<W>, plain: impl Read, below: &Path) -> io::Result<()> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    for entry in tar::Archive::new(plain).entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?).ok_or_else(|| refused("an entry name leads out of the archive"))?;
        let path = below.join(path);
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.header().mode()? & 0o7777);
        header.set_mtime(entry.header().mtime()?);
        header.set_size(0);
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_contiguous() {
            header.set_size(entry.size());
            builder.append_data(&mut header, path, &mut entry)?;
        } else if kind.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, path, io::empty())?;
        } else if kind.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            let target = entry.link_name()?.ok_or_else(|| refused("a link has no target"))?.into_owned();
            builder.append_link(&mut header, path, target)?;
        } else if kind.is_hard_link() {
            header.set_entry_type(tar::EntryType::Link);
            let target = entry.link_name()?.and_then(|target| inside(&target));
            let target = target.ok_or_else(|| refused("a link leads out of the archive"))?;
            builder.append_link(&mut header, path, below.join(target))?;
        } else {
            return Err(refused("it contains entries other than files, directories and links"));
        }
    }
    Ok(())
}

/// A path without components that lead elsewhere.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => plain.push(name),
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir
            | std::path::Component::RootDir
            | std::path::Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use burrow_memory::artifacts::{DiskFloor, FreeSpace};

    use super::*;

    fn archive(entries: &[(&str, tar::EntryType, &str)]) -> File {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_mtime(17);
            header.set_size(0);
            if kind.is_file() {
                header.set_size(content.len() as u64);
            } else if !content.is_empty() {
                header.set_link_name(content).unwrap();
            }
            // Writes any name, as an untrusted client can.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            let bytes = if kind.is_file() { content.as_bytes() } else { b"" };
            builder.append(&header, bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn joined(entries: &[(&str, tar::EntryType, &str)]) -> io::Result<Vec<String>> {
        let whole = join(tempfile::tempfile().unwrap(), vec![("ab".to_owned(), archive(entries))], 1 << 20)?;
        let mut archive = tar::Archive::new(whole);
        let names = archive
            .entries()?
            .map(|entry| Ok(entry?.path()?.to_string_lossy().trim_end_matches('/').to_owned()));
        names.collect()
    }

    #[tokio::test]
    async fn uploads_are_refused_where_the_disk_must_stay_free() {
        #[derive(Debug)]
        struct FixedFreeSpace(u64);

        impl FreeSpace for FixedFreeSpace {
            fn free_bytes(&self, _: &Path) -> Option<u64> {
                Some(self.0)
            }
        }
        let floor = |free| DiskFloor {
            folder: std::env::temp_dir(),
            reserve_bytes: 1 << 20,
            free: Arc::new(FixedFreeSpace(free)),
            leases: Arc::default(),
        };
        let body = || Body::from(vec![0; 1 << 20]);
        let receive = async |free| {
            receive(tempfile::tempfile().unwrap(), body(), 1 << 30, UploadLease::new(&floor(free))).await
        };
        receive(u64::MAX).await.unwrap();
        let refused = receive((1 << 20) + 1000).await.unwrap_err().into_message();
        assert!(refused.contains("not enough disk space"), "{refused}");
        let whole = LeasedWriter {
            file: tempfile::tempfile().unwrap(),
            lease: UploadLease::new(&floor((1 << 20) + 1000)),
        };
        let file = archive(&[("a", tar::EntryType::Regular, &"x".repeat(4 << 20))]);
        let refused = join(whole, vec![("ab".to_owned(), file)], 1 << 30).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn uploads_are_stored_below_their_hashes() {
        use tar::EntryType::{Link, Regular, Symlink};
        let names = joined(&[
            ("app/a.py", Regular, "x"),
            ("./b", Regular, ""),
            ("l", Symlink, "/etc"),
            ("h", Link, "b"),
        ]);
        let expected =
            ["request", "context/ab", "context/ab/app/a.py", "context/ab/b", "context/ab/l", "context/ab/h"];
        assert_eq!(names.unwrap(), expected);
    }

    #[test]
    fn paths_out_of_the_archive_are_rejected() {
        use tar::EntryType::{Char, Link, Regular};
        for bad in
            [("../x", Regular, ""), ("/x", Regular, ""), ("a/../../x", Regular, ""), ("h", Link, "../x")]
        {
            assert!(joined(&[bad]).is_err(), "{bad:?}");
        }
        assert!(joined(&[("dev", Char, "")]).is_err());
    }
}
