//! Tools for files: read, write, edit, list, search.

use burrow_api::{CreateExec, FileEntry, FileKind};
use burrow_client::{Client, DownloadRange, UploadBody, UploadOptions};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::output::{OUTPUT_BYTES_MAX, ProcessOutput};
use crate::results::{TextResult, ToolResult, failed, lines, with_verbatim};
use crate::server::Server;
use crate::{content, paging, resources};

/// A file is edited in memory.
const EDITED_BYTES_MAX: u64 = 8 << 20;

/// A longer search probably covers the whole disk.
const SEARCH_MS_MAX: u64 = 50_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    /// Absolute path.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// Offset of the first byte; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000_000_000_u64))]
    offset: u64,
    /// Bytes; 16000 if absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<usize>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// Absolute path; missing directories are created.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// The complete content.
    #[schemars(length(max = 4_194_304))]
    text: String,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// Absolute path.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// The exact text to replace, with enough context to occur only once.
    #[schemars(length(min = 1, max = 1_048_576))]
    old: String,
    /// The replacement.
    #[schemars(length(max = 1_048_576))]
    new: String,
    /// Replace every occurrence.
    #[serde(default)]
    all: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    /// Absolute path.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// Levels of directories; 1 if absent.
    #[schemars(range(min = 1, max = 10))]
    depth: Option<u32>,
    /// Offset in a long list, from an earlier answer; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    /// An extended regular expression, as for `grep -E`.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// Absolute path of a directory or file; the sandbox's working directory if absent.
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// Only files whose name matches, such as `*.rs`.
    #[schemars(length(min = 1, max = 256))]
    glob: Option<String>,
    /// Ignore the difference between upper and lower case.
    #[serde(default)]
    ignore_case: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = file_tools, vis = "pub(crate)")]
impl Server {
    /// Read a file, or a part of it: text unchanged, pictures as pictures, other bytes in base64.
    #[tool(annotations(title = "Read a file", read_only_hint = true))]
    async fn sandbox_read_file(&self, Parameters(read): Parameters<ReadFile>) -> ToolResult {
        const WHAT: &str = "read the file";
        let (client, sandbox) = self.which(read.sandbox).await?;
        let limit = paging::limit(read.limit);
        let size = client.stat(&sandbox, &read.path, true).await.map_err(failed(WHAT))?.size;
        if read.offset > 0 && read.offset >= size {
            return Err(format!("offset {} is beyond the end: the file has {size} bytes", read.offset));
        }
        let range = DownloadRange { start: read.offset, end: Some(read.offset + limit as u64) };
        // Files of `/proc` report a size of 0, and cannot be read in parts.
        let range = (size > 0).then_some(range);
        let mut download = client.download(&sandbox, &read.path, range).await.map_err(failed(WHAT))?;
        let mut bytes = Vec::new();
        while bytes.len() < limit
            && let Some(chunk) = download.bytes.chunk().await.map_err(failed(WHAT))?
        {
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(limit);
        if let Some(media_type) = content::picture_type(&bytes).filter(|_| read.offset == 0) {
            if size > content::PICTURE_BYTES_MAX {
                return Err(format!(
                    "the picture has {size} bytes, and at most {} can be shown: make it smaller with `sandbox_run`",
                    content::PICTURE_BYTES_MAX
                ));
            }
            let bytes = client.read_file(&sandbox, &read.path).await.map_err(failed(WHAT))?;
            return Ok(content::picture(
                format!("{}: {media_type}, {size} bytes", read.path),
                &bytes,
                media_type,
            ));
        }
        paging::whole_characters(&mut bytes);
        let end = read.offset + bytes.len() as u64;
        let mut summary = format!("{}: bytes {} to {end} of {}", read.path, read.offset, size.max(end));
        if end < size {
            summary.push_str(&format!("; {} more: read on with offset {end}", size - end));
        }
        Ok(content::part(summary, bytes, read.offset == 0, &resources::file_uri(&read.path)))
    }

    /// Write a whole text file, replacing an existing one.
    #[tool(annotations(title = "Write a file", destructive_hint = true, idempotent_hint = true))]
    async fn sandbox_write_file(&self, Parameters(write): Parameters<WriteFile>) -> TextResult {
        let (client, sandbox) = self.which(write.sandbox).await?;
        let entry = put(&client, &sandbox, &write.path, write.text).await?;
        Ok(format!("wrote {} bytes to {}", entry.size, entry.path))
    }

    /// Replace a part of a text file.
    #[tool(annotations(title = "Edit a file", destructive_hint = true))]
    async fn sandbox_edit_file(&self, Parameters(edit): Parameters<EditFile>) -> TextResult {
        let (client, sandbox) = self.which(edit.sandbox).await?;
        let entry = client.stat(&sandbox, &edit.path, true).await.map_err(failed("read the file"))?;
        if entry.size > EDITED_BYTES_MAX {
            return Err(format!(
                "the file has {} bytes, which is too large for this tool; use `sandbox_run`",
                entry.size
            ));
        }
        let bytes = client.read_file(&sandbox, &edit.path).await.map_err(failed("read the file"))?;
        let text =
            String::from_utf8(bytes).map_err(|_| "the file is not text; use `sandbox_run`".to_owned())?;
        let (text, count) = replaced(&text, &edit.old, &edit.new, edit.all)?;
        put(&client, &sandbox, &edit.path, text).await?;
        Ok(format!("replaced {count} in {}", edit.path))
    }

    /// List a directory.
    #[tool(annotations(title = "List files", read_only_hint = true))]
    async fn sandbox_list_files(&self, Parameters(list): Parameters<ListFiles>) -> TextResult {
        let (client, sandbox) = self.which(list.sandbox).await?;
        let depth = list.depth.unwrap_or(1).clamp(1, 10);
        let listed = client.list_files(&sandbox, &list.path, depth).await;
        let entries = listed.map_err(failed("list the directory"))?.entries;
        paging::page(&lines(entries.iter().map(line).collect(), "empty"), list.offset)
    }

    /// Find lines in files that match a regular expression, with file names and line numbers.
    #[tool(annotations(title = "Search files", read_only_hint = true))]
    async fn sandbox_search_files(&self, Parameters(search): Parameters<SearchFiles>) -> ToolResult {
        let (client, sandbox) = self.which(search.sandbox.clone()).await?;
        let request = CreateExec {
            argv: grep(search),
            timeout_ms: Some(SEARCH_MS_MAX),
            ring_bytes: Some(OUTPUT_BYTES_MAX),
            ..CreateExec::default()
        };
        let exec = client.run(&sandbox, &request).await.map_err(failed("search the files"))?.exec;
        let outcome = exec.outcome.as_ref();
        if outcome.is_some_and(|outcome| outcome.timed_out) {
            return Err("the search took too long: give a `path` or a `glob`".to_owned());
        }
        if outcome.and_then(|outcome| outcome.exit_code) == Some(1) {
            return Ok(with_verbatim("nothing found".to_owned(), String::new()));
        }
        // If the pattern is invalid, grep's output says so, with its exit code.
        let source = ProcessOutput { client: &client, sandbox: &sandbox, process: &exec.id };
        source.read(&exec, exec.output_start, paging::PAGE_BYTES).await
    }
}

async fn put(client: &Client, sandbox: &str, path: &str, text: String) -> Result<FileEntry, String> {
    let options = UploadOptions { parents: true, ..UploadOptions::default() };
    let body = UploadBody::from_bytes(text.into_bytes());
    client.upload(sandbox, path, &options, body).await.map_err(failed("write the file"))
}

fn grep(search: SearchFiles) -> Vec<String> {
    let mut argv: Vec<String> = ["grep", "-rnIE", "--color=never"].map(str::to_owned).to_vec();
    argv.extend(search.ignore_case.then(|| "-i".to_owned()));
    argv.extend(search.glob.map(|glob| format!("--include={glob}")));
    // After `-e` and `--`, nothing that a model writes is parsed as an option.
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
        return Err("`old` is empty: give the text to replace, or use `sandbox_write_file`".to_owned());
    }
    match (text.matches(old).count(), all) {
        (0, _) => Err("`old` was not found in the file: read it again, `old` must match exactly".to_owned()),
        (1, _) => Ok((text.replacen(old, new, 1), 1)),
        (count, true) => Ok((text.replace(old, new), count)),
        (count, false) => Err(format!("`old` occurs {count} times: give more context, or set `all`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_only_if_it_is_unambiguous() {
        assert_eq!(replaced("a b a", "b", "c", false), Ok(("a c a".to_owned(), 1)));
        assert_eq!(replaced("a b a", "a", "c", true), Ok(("c b c".to_owned(), 2)));
        for (old, all) in [("a", false), ("x", false), ("x", true), ("", true)] {
            assert!(replaced("a b a", old, "c", all).is_err(), "{old} {all}");
        }
    }

    #[test]
    fn search_arguments_are_never_parsed_as_options() {
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
