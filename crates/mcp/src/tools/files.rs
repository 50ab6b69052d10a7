//! Files of a sandbox: read, write, edit, list, search.

use burrow_api::{CreateExec, FileEntry, FileKind};
use burrow_client::{DownloadRange, UploadBody, UploadOptions};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cut::{self, SHOWN, SHOWN_MAX};
use crate::said::{Said, failed};
use crate::server::Server;

/// A file that is edited is held as a whole.
const EDITED_BYTES_MAX: u64 = 8 << 20;

/// Entries of a list.
const LISTED_MAX: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    /// Absolute.
    path: String,
    /// First byte wanted; 0 when absent.
    #[serde(default)]
    offset: u64,
    /// Bytes at most; 16000 when absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// Another sandbox, by name or id; your own when absent.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// Absolute; missing directories are made.
    path: String,
    /// All it shall hold.
    text: String,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// Absolute.
    path: String,
    /// Exactly as it stands there, with enough around it to be found once.
    old: String,
    /// What shall stand there instead.
    new: String,
    /// Wherever it stands, not only where it stands once.
    #[serde(default)]
    all: bool,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    /// Absolute.
    path: String,
    /// Levels of directories; 1 when absent.
    #[schemars(range(min = 1, max = 10))]
    depth: Option<u32>,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    /// An extended regular expression.
    pattern: String,
    /// Absolute directory; `.`, where commands start, when absent.
    path: Option<String>,
    /// Only files whose name fits, such as `*.rs`.
    glob: Option<String>,
    sandbox: Option<String>,
}

#[tool_router(router = file_tools, vis = "pub(crate)")]
impl Server {
    /// Read a text file, or a part of it.
    #[tool(annotations(title = "Read a file", read_only_hint = true))]
    async fn read_file(&self, Parameters(read): Parameters<ReadFile>) -> Said {
        let sandbox = self.which(read.sandbox).await?;
        let limit = read.limit.unwrap_or(SHOWN).clamp(1, SHOWN_MAX) as u64;
        let what = "read the file";
        let client = &self.place.client;
        let size = client.stat(&sandbox, &read.path, true).await.map_err(failed(what))?.size;
        if size > 0 && read.offset >= size {
            return Err(format!("the file has {size} bytes; offset {} is beyond them", read.offset));
        }
        // Files of `/proc` say that they are empty.
        let range = DownloadRange { start: read.offset, end: Some(read.offset + limit) };
        let range = (size > 0).then_some(range);
        let mut download = client.download(&sandbox, &read.path, range).await.map_err(failed(what))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = download.bytes.chunk().await.map_err(failed(what))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 >= limit {
                bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                break;
            }
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        let end = read.offset + bytes.len() as u64;
        if end < size {
            text.push_str(&format!("\n[… {} more bytes: read on with offset {end} …]", size - end));
        }
        Ok(text)
    }

    /// Write a text file as a whole, replacing what was there.
    #[tool(annotations(title = "Write a file", destructive_hint = true, idempotent_hint = true))]
    async fn write_file(&self, Parameters(write): Parameters<WriteFile>) -> Said {
        let sandbox = self.which(write.sandbox).await?;
        let entry = self.put(&sandbox, &write.path, write.text).await?;
        Ok(format!("wrote {} bytes to {}", entry.size, entry.path))
    }

    /// Replace a piece of a text file.
    #[tool(annotations(title = "Edit a file", destructive_hint = true))]
    async fn edit_file(&self, Parameters(edit): Parameters<EditFile>) -> Said {
        let sandbox = self.which(edit.sandbox).await?;
        let client = &self.place.client;
        let entry = client.stat(&sandbox, &edit.path, true).await.map_err(failed("read the file"))?;
        if entry.size > EDITED_BYTES_MAX {
            return Err(format!("the file has {} bytes, which is too many to edit here; use `run`", entry.size));
        }
        let bytes = client.read_file(&sandbox, &edit.path).await.map_err(failed("read the file"))?;
        let text = String::from_utf8(bytes).map_err(|_| "the file is no text; use `run`".to_owned())?;
        let (text, count) = replaced(&text, &edit.old, &edit.new, edit.all)?;
        self.put(&sandbox, &edit.path, text).await?;
        Ok(format!("replaced {count} in {}", edit.path))
    }

    /// List a directory.
    #[tool(annotations(title = "List files", read_only_hint = true))]
    async fn list_files(&self, Parameters(list): Parameters<ListFiles>) -> Said {
        let sandbox = self.which(list.sandbox).await?;
        let depth = list.depth.unwrap_or(1).clamp(1, 10);
        let listed = self.place.client.list_files(&sandbox, &list.path, depth).await;
        let entries = listed.map_err(failed("list the directory"))?.entries;
        let mut lines: Vec<String> = entries.iter().take(LISTED_MAX).map(line).collect();
        if entries.len() > LISTED_MAX {
            lines.push(format!("[… {} more: list a directory below …]", entries.len() - LISTED_MAX));
        }
        Ok(if lines.is_empty() { "empty".to_owned() } else { lines.join("\n") })
    }

    /// Find lines in files by a regular expression, with file names and line numbers.
    #[tool(annotations(title = "Search files", read_only_hint = true))]
    async fn search_files(&self, Parameters(search): Parameters<SearchFiles>) -> Said {
        let sandbox = self.which(search.sandbox).await?;
        let mut argv: Vec<String> =
            ["grep", "-rnIE", "--color=never", "-m", "50"].map(str::to_owned).to_vec();
        argv.extend(search.glob.map(|glob| format!("--include={glob}")));
        argv.extend(["-e".to_owned(), search.pattern, "--".to_owned()]);
        argv.push(search.path.unwrap_or_else(|| ".".to_owned()));
        let request = CreateExec { argv, timeout_ms: Some(60_000), ..CreateExec::default() };
        let found = self.place.client.run(&sandbox, &request).await.map_err(failed("search the files"))?;
        match found.exec.outcome.as_ref().and_then(|outcome| outcome.exit_code) {
            Some(0) => Ok(cut::ends(&found.stdout, SHOWN)),
            Some(1) if found.stderr.is_empty() => Ok("nothing found".to_owned()),
            _ => Err(format!("could not search: {}", cut::ends(&found.stderr, SHOWN))),
        }
    }
}

impl Server {
    async fn put(&self, sandbox: &str, path: &str, text: String) -> Result<FileEntry, String> {
        let options = UploadOptions { parents: true, ..UploadOptions::default() };
        let body = UploadBody::from_bytes(text.into_bytes());
        self.place.client.upload(sandbox, path, body, &options).await.map_err(failed("write the file"))
    }
}

fn line(entry: &FileEntry) -> String {
    match entry.kind {
        FileKind::Directory => format!("{}/", entry.path),
        FileKind::Symlink => format!("{} -> {}", entry.path, entry.target.as_deref().unwrap_or("?")),
        FileKind::File => format!("{}  {} bytes", entry.path, entry.size),
        FileKind::Other => format!("{}  special", entry.path),
    }
}

fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), String> {
    if old.is_empty() {
        return Err("`old` is empty: say what shall be replaced, or use `write_file`".to_owned());
    }
    match (text.matches(old).count(), all) {
        (0, _) => Err("`old` does not stand in the file: read it again, it must fit to the letter".to_owned()),
        (1, _) => Ok((text.replacen(old, new, 1), 1)),
        (count, true) => Ok((text.replace(old, new), count)),
        (count, false) => Err(format!("`old` stands there {count} times: give more of it, or set `all`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_replaced_where_it_is_clear_which() {
        assert_eq!(replaced("a b a", "b", "c", false), Ok(("a c a".to_owned(), 1)));
        assert_eq!(replaced("a b a", "a", "c", true), Ok(("c b c".to_owned(), 2)));
        for (old, all) in [("a", false), ("x", false), ("x", true), ("", true)] {
            assert!(replaced("a b a", old, "c", all).is_err(), "{old} {all}");
        }
    }
}
