//! Output: tables, JSON, ages; text from sandboxes is escaped on a terminal.

pub(crate) mod ask;
pub(crate) mod escape;
pub(crate) mod forest;
pub(crate) mod json;
pub(crate) mod paint;
pub(crate) mod process_output;
pub(crate) mod quantity;
pub(crate) mod table;

use std::io::{self, Write as _};

use crate::failure::Stop;

/// Writes data to standard output.
pub(crate) fn data(text: &str) -> Result<(), Stop> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Stop::output)
}

/// Writes one line of data to standard output.
pub(crate) fn line(text: &str) -> Result<(), Stop> {
    data(&format!("{text}\n"))
}

/// Prints a message on standard error. Failures are ignored.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The output format of a list or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
