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

use serde::Serialize;

use crate::failure::Stop;

/// Writes data to standard output.
pub(crate) fn data(text: &str) -> Result<(), Stop> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Stop::output)
}

/// Writes one line of data to standard output.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Stop> {
    data(&format!("{}\n", text.as_ref()))
}

/// Writes lines of data to standard output, at once.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Stop> {
    data(&lines.into_iter().map(|line| format!("{}\n", line.as_ref())).collect::<String>())
}

/// Prints a message on standard error. Failures are ignored.
pub(crate) fn note(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Prints messages on standard error, one per line.
pub(crate) fn notes(texts: impl IntoIterator<Item = impl AsRef<str>>) {
    texts.into_iter().for_each(note);
}

/// Prints a hint for the message before it.
pub(crate) fn hint(text: &str) {
    note(format!("hint: {}", escape::escape(text)));
}

/// The output format of a list or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Format {
    /// Prints a value as JSON, or as `shown` prints it.
    pub(crate) fn show<T: Serialize + ?Sized>(
        self,
        value: &T,
        shown: impl FnOnce(&T) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.json { json::pretty(value) } else { shown(value) }
    }

    /// Prints a value as JSON, or lines of data on standard output and notes about them on standard error.
    pub(crate) fn report<T: Serialize + ?Sized>(
        self,
        value: &T,
        data: impl IntoIterator<Item = impl AsRef<str>>,
        about: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), Stop> {
        self.show(value, |_| {
            lines(data)?;
            notes(about);
            Ok(())
        })
    }

    /// Prints items as JSON, or as a table with a row for each of them.
    pub(crate) fn table<T: Serialize>(
        self,
        header: &[&str],
        items: &[T],
        row: impl Fn(&T) -> Vec<String>,
    ) -> Result<(), Stop> {
        self.show(items, |items| table::print(header, items, row))
    }

    /// Prints a value of a stream on one line: as JSON, or as `line` formats it.
    pub(crate) fn line<T: Serialize>(self, value: &T, line: impl FnOnce(&T) -> String) -> Result<(), Stop> {
        if self.json { json::compact(value) } else { self::line(line(value)) }
    }
}
