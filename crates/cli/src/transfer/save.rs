//! Writes a stream to a file, atomically, or to standard output.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use burrow_client::ByteStream;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt as _;

use super::input::is_standard;
use super::progress::Progress;
use crate::failure::{Describe, OrFail as _, Stop, fail};
use crate::print::escape::escape;
use crate::print::{self, quantity};

/// The directory that a file is in.
pub(crate) fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file beside the destination, which replaces it when complete. Only its owner can read it.
pub(crate) fn staged(to: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".burrow-").tempfile_in(parent(to))
}

/// Renames a complete file to its destination, durably.
pub(crate) fn commit(file: NamedTempFile, to: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(to).map_err(|error| error.error)?;
    // A new name is durable only after its directory is synced.
    File::open(parent(to))?.sync_all()
}

/// Fails when the output is a terminal, which control characters in the data could change.
pub(crate) fn refuse_terminal(
    output: Option<&Path>,
    what: impl Describe,
    hint: &'static str,
) -> Result<(), Stop> {
    match output.is_none_or(is_standard) && io::stdout().is_terminal() {
        true => fail(format!("{}: standard output is a terminal", what.describe()), hint),
        false => Ok(()),
    }
}

/// Writes to the file `output`, or to standard output if it is omitted or `-`.
pub(crate) async fn save(
    bytes: ByteStream,
    total: Option<u64>,
    output: Option<&Path>,
    label: &str,
    what: impl Describe + Copy,
) -> Result<(), Stop> {
    let progress = Progress::bytes(label, total);
    let Some(output) = output.filter(|output| !is_standard(output)) else {
        // A progress bar would mix with the data on the terminal.
        if io::stdout().is_terminal() {
            progress.finish();
        }
        return bytes
            .copy_to(&mut tokio::io::stdout(), |count| progress.add(count))
            .await
            .or_fail(what)
            .map(drop);
    };
    let file = staged(output).or_fail(what)?;
    let mut target = tokio::fs::File::from_std(file.reopen().or_fail(what)?);
    let written = bytes.copy_to(&mut target, |count| progress.add(count)).await.or_fail(what)?;
    target.flush().await.or_fail(what)?;
    commit(file, output).or_fail(what)?;
    progress.finish();
    note_written(written, output);
    Ok(())
}

pub(crate) fn note_written(bytes: u64, file: &Path) {
    let shown = escape(&file.display().to_string());
    print::note(format!("wrote {} to `{shown}`", quantity::bytes(bytes)));
}
