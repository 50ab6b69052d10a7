//! Files of a sandbox: upload, download, lists, changes, tar archives, watches. Paths are absolute paths in the sandbox.

use burrow_api::{ChangeMode, FileEntry, FileList, MakeDirectory, MoveFile, TarSummary, WatchEvent};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, UploadBody};

/// How to write a file.
#[derive(Clone, Debug, Default)]
pub struct UploadOptions {
    /// Octal permission bits; by default those of the existing file, or `0644`.
    pub mode: Option<String>,
    /// Owner; by default that of the existing file, or root.
    pub user: Option<String>,
    /// Create missing parent directories.
    pub parents: bool,
    /// Write at this offset of the existing file instead of replacing it atomically.
    pub offset: Option<u64>,
    /// Sync to disk before the response.
    pub sync: bool,
}

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadRange {
    pub start: u64,
    /// To the end if absent.
    pub end: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct WatchOptions {
    pub recursive: bool,
}

/// A file that is being downloaded.
#[derive(Debug)]
pub struct Download {
    pub bytes: ByteStream,
    pub length: Option<u64>,
    /// Octal permission bits.
    pub mode: Option<String>,
}

impl Client {
    pub async fn download(
        &self,
        sandbox: &str,
        path: &str,
        range: Option<DownloadRange>,
    ) -> Result<Download, ClientError> {
        let route = files_path(sandbox).query("path", path);
        let shown = route.shown();
        let mut call = Call::new(Method::GET, route);
        if let Some(range) = range {
            call.headers.insert(RANGE, range_header(range));
        }
        let response = self.send(call).await?;
        Ok(Download {
            length: number(response.headers(), CONTENT_LENGTH.as_str()),
            mode: text(response.headers(), "x-burrow-mode"),
            bytes: ByteStream::new(response.into_body(), shown),
        })
    }

    pub async fn upload(
        &self,
        sandbox: &str,
        path: &str,
        options: &UploadOptions,
        body: UploadBody,
    ) -> Result<FileEntry, ClientError> {
        let route = files_path(sandbox)
            .query("path", path)
            .query_if("mode", options.mode.as_ref())
            .query_if("user", options.user.as_ref())
            .flag("parents", options.parents)
            .query_if("offset", options.offset)
            .flag("sync", options.sync);
        self.send_upload(upload_call(Method::PUT, route, body)).await
    }

    pub async fn remove_file(&self, sandbox: &str, path: &str, recursive: bool) -> Result<(), ClientError> {
        let route = files_path(sandbox).query("path", path).flag("recursive", recursive);
        self.send_no_content(Call::new(Method::DELETE, route)).await
    }

    /// For a symbolic link: the link itself, or with `follow` its target.
    pub async fn stat(&self, sandbox: &str, path: &str, follow: bool) -> Result<FileEntry, ClientError> {
        self.get(files_path(sandbox).fixed("stat").query("path", path).flag("follow", follow)).await
    }

    /// A `depth` of 1 lists only the directory itself.
    pub async fn list_files(&self, sandbox: &str, path: &str, depth: u32) -> Result<FileList, ClientError> {
        let route = files_path(sandbox).fixed("list").query("path", path).query("depth", &depth.to_string());
        self.get(route).await
    }

    pub async fn make_directory(
        &self,
        sandbox: &str,
        request: &MakeDirectory,
    ) -> Result<FileEntry, ClientError> {
        self.send_json(Method::POST, files_path(sandbox).fixed("mkdir"), request).await
    }

    pub async fn move_file(&self, sandbox: &str, request: &MoveFile) -> Result<FileEntry, ClientError> {
        self.send_json(Method::POST, files_path(sandbox).fixed("move"), request).await
    }

    pub async fn change_mode(&self, sandbox: &str, request: &ChangeMode) -> Result<FileEntry, ClientError> {
        self.send_json(Method::POST, files_path(sandbox).fixed("chmod"), request).await
    }

    /// A file or directory as a tar archive. The content is untrusted: unpack it with care.
    pub async fn download_tar(&self, sandbox: &str, path: &str) -> Result<ByteStream, ClientError> {
        let route = files_path(sandbox).fixed("tar").query("path", path);
        let shown = route.shown();
        let response = self.send(Call::new(Method::GET, route)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }

    /// Unpacks a tar archive into the directory `path`, which is created if it does not exist.
    pub async fn upload_tar(
        &self,
        sandbox: &str,
        path: &str,
        user: Option<&str>,
        body: UploadBody,
    ) -> Result<TarSummary, ClientError> {
        let route = files_path(sandbox).fixed("tar").query("path", path).query_if("user", user);
        let mut call = upload_call(Method::PUT, route, body);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
        self.send_upload(call).await
    }

    /// Changes as they happen. The first event confirms that the watch is active.
    pub async fn watch(
        &self,
        sandbox: &str,
        path: &str,
        options: WatchOptions,
    ) -> Result<NdjsonStream<WatchEvent>, ClientError> {
        let route =
            files_path(sandbox).fixed("watch").query("path", path).flag("recursive", options.recursive);
        let shown = route.shown();
        let response = self.send(Call::new(Method::GET, route)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

fn files_path(sandbox: &str) -> Path {
    sandbox_path(sandbox).fixed("files")
}

pub(crate) fn upload_call(method: Method, path: Path, upload: UploadBody) -> Call {
    let mut call = Call::new(method, path);
    call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = upload.length {
        call.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    call.body = upload.body;
    call
}

pub(crate) fn range_header(range: DownloadRange) -> HeaderValue {
    // In the header, the end is inclusive.
    let text = match range.end {
        Some(end) => format!("bytes={}-{}", range.start, end.saturating_sub(1)),
        None => format!("bytes={}-", range.start),
    };
    HeaderValue::from_str(&text).expect("digits are a header value")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

/// Whole files, for small content.
impl Client {
    pub async fn read_file(&self, sandbox: &str, path: &str) -> Result<Vec<u8>, ClientError> {
        let mut download = self.download(sandbox, path, None).await?;
        let mut content = Vec::new();
        while let Some(chunk) = download.bytes.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }

    pub async fn write_file(
        &self,
        sandbox: &str,
        path: &str,
        content: impl Into<Bytes>,
    ) -> Result<FileEntry, ClientError> {
        self.upload(sandbox, path, &UploadOptions::default(), UploadBody::from_bytes(content)).await
    }
}
