//! Files of a sandbox: read, write, edit, list, search.

use burrow_api::{CreateExec, FileEntry, FileKind};
use burrow_client::{DownloadRange, UploadBody, UploadOptions};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output::{KEPT_BYTES, Source};
use crate::cut;
use crate::said::{Said, Told, beside, failed, lines};
use crate::server::Server;

/// A file that is edited is held as a whole.
const EDITED_BYTES_MAX: u64 = 8 << 20;

/// A search that takes longer is one of the whole disk.
const SEARCH_MS_MAX: u64 = 50_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    /// Absolute.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// First byte wanted; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    offset: u64,
    /// Bytes at most; 16000 when absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// Absolute; missing directories are made.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// All it shall hold.
    #[schemars(length(max = 4_194_304))]
    text: String,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// Absolute.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// Exactly as it stands there, with enough around it to be found once.
    #[schemars(length(min = 1, max = 1_048_576))]
    old: String,
    /// What shall stand there instead.
    #[schemars(length(max = 1_048_576))]
    new: String,
    /// Wherever it stands, not only where it stands once.
    #[serde(default)]
    all: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    /// Absolute.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// Levels of directories; 1 when absent.
    #[schemars(range(min = 1, max = 10))]
    depth: Option<u32>,
    /// Where to read on in a long list, as an earlier answer told it; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    /// An extended regular expression, as `grep -E` takes it.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// Absolute directory or file; where commands start when absent.
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// Only files whose name fits, such as `*.rs`.
    #[schemars(length(min = 1, max = 256))]
    glob: Option<String>,
    /// Upper and lower case alike.
    #[serde(default)]
    ignore_case: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = file_tools, vis = "pub(crate)")]
impl Server {
    /// Read a text file, or a part of it. The text is the second block of the answer, to the letter.
    #[tool(annotations(title = "Read a file", read_only_hint = true))]
    async fn read_file(&self, Parameters(read): Parameters<ReadFile>) -> Told {
        const WHAT: &str = "read the file";
        let sandbox = self.which(read.sandbox).await?;
        let client = &self.place.client;
        let limit = cut::limit(read.limit);
        let size = client.stat(&sandbox, &read.path, true).await.map_err(failed(WHAT))?.size;
        if read.offset > 0 && read.offset >= size {
            return Err(format!("the file has {size} bytes, and offset {} is beyond them", read.offset));
        }
        let range = DownloadRange { start: read.offset, end: Some(read.offset + limit as u64) };
        // Files of `/proc` say that they are empty, and have no parts.
        let range = (size > 0).then_some(range);
        let mut download = client.download(&sandbox, &read.path, range).await.map_err(failed(WHAT))?;
        let mut bytes = Vec::new();
        while bytes.len() < limit
            && let Some(chunk) = download.bytes.chunk().await.map_err(failed(WHAT))?
        {
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(limit);
        cut::whole_characters(&mut bytes);
        let end = read.offset + bytes.len() as u64;
        let mut told = format!("{}: bytes {} to {end} of {}", read.path, read.offset, size.max(end));
        if end < size {
            told.push_str(&format!("; {} more: read on with offset {end}", size - end));
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.contains('\u{fffd}') {
            told.push_str(
                "\nnot all of it is text: what is not is shown as \u{fffd}; `run` with `xxd` shows bytes",
            );
        }
        Ok(beside(told, text.into_owned()))
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
            return Err(format!(
                "the file has {} bytes, which is too many to edit here; use `run`",
                entry.size
            ));
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
        cut::page(&lines(entries.iter().map(line).collect(), "empty"), list.offset)
    }

    /// Find lines in files by a regular expression, with file names and line numbers.
    #[tool(annotations(title = "Search files", read_only_hint = true))]
    async fn search_files(&self, Parameters(search): Parameters<SearchFiles>) -> Told {
        let sandbox = self.which(search.sandbox.clone()).await?;
        let client = &self.place.client;
        let request = CreateExec {
            argv: grep(search),
            timeout_ms: Some(SEARCH_MS_MAX),
            ring_bytes: Some(KEPT_BYTES),
            ..CreateExec::default()
        };
        let exec = client.run(&sandbox, &request).await.map_err(failed("search the files"))?.exec;
        let outcome = exec.outcome.as_ref();
        if outcome.is_some_and(|outcome| outcome.timed_out) {
            return Err("the search took too long: give a `path` or a `glob`".to_owned());
        }
        if outcome.and_then(|outcome| outcome.exit_code) == Some(1) {
            return Ok(beside("nothing found".to_owned(), String::new()));
        }
        // What grep has to say about a pattern that is none stands in its output, beside its exit code.
        let source = Source { client, sandbox: &sandbox, process: &exec.id };
        source.read_on(&exec, exec.output_start, cut::SHOWN).await
    }
}

impl Server {
    async fn put(&self, sandbox: &str, path: &str, text: String) -> Result<FileEntry, String> {
        let options = UploadOptions { parents: true, ..UploadOptions::default() };
        let body = UploadBody::from_bytes(text.into_bytes());
        self.place.client.upload(sandbox, path, &options, body).await.map_err(failed("write the file"))
    }
}

fn grep(search: SearchFiles) -> Vec<String> {
    let mut argv: Vec<String> = ["grep", "-rnIE", "--color=never"].map(str::to_owned).to_vec();
    argv.extend(search.ignore_case.then(|| "-i".to_owned()));
    argv.extend(search.glob.map(|glob| format!("--include={glob}")));
    // After `-e` and `--` nothing that a model writes is taken for an option.
    argv.extend(["-e".to_owned(), search.pattern, "--".to_owned()]);
    argv.push(search.path.unwrap_or_else(|| ".".to_owned()));
    argv
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
        (0, _) => {
            Err("`old` does not stand in the file: read it again, it must fit to the letter".to_owned())
        }
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

    #[test]
    fn what_a_model_searches_for_is_never_taken_for_an_option() {
        let search = SearchFiles {
            pattern: "--help".to_owned(),
            path: Some("-R".to_owned()),
            glob: Some("*.rs".to_owned()),
            ignore_case: true,
            sandbox: None,
        };
        let expected = ["grep", "-rnIE", "--color=never", "-i", "--include=*.rs", "-e", "--help", "--", "-R"];
        assert_eq!(grep(search), expected);
    }
}
