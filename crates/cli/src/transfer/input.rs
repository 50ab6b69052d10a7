//! Input files of commands, where `-` is standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

pub(crate) fn open(file: &Path) -> io::Result<Box<dyn Read + Send>> {
    Ok(if is_standard(file) { Box::new(io::stdin()) } else { Box::new(File::open(file)?) })
}

/// At most `limit` bytes of text.
pub(crate) fn read_text(file: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    open(file)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}
