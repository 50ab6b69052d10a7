//! Text input: from an argument, a file, or standard input; bounded, and UTF-8.

use std::io::{self, IsTerminal as _, Read as _};

use crate::commands::prelude::*;
use crate::transfer::input;

/// Most bytes read from a file or standard input: more than any text, value or skill the daemon accepts, so that users
/// see the daemon's error, which states its limit.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Where a text comes from.
#[derive(Clone, Debug, Args)]
pub(crate) struct TextArgs {
    /// Text; `-` for standard input
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    text: Option<String>,
    /// File with the text; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl TextArgs {
    /// The file to read several texts from.
    pub(crate) fn source(&self) -> Option<PathBuf> {
        self.file.clone().or_else(|| self.text.as_ref().map(PathBuf::from))
    }

    /// `None` when none was given.
    pub(crate) fn read(&self, what: impl Fn() -> String) -> Result<Option<String>, Stop> {
        match (&self.text, &self.file) {
            (Some(text), _) if text != "-" => Ok(Some(text.clone())),
            (Some(_), _) => read(Path::new("-"), what).map(Some),
            (None, Some(file)) => read(file, what).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Like `read`, but a text is required; piped input is used without a flag.
    pub(crate) fn required(&self, what: impl Fn() -> String) -> Result<String, Stop> {
        if let Some(text) = self.read(&what)? {
            return Ok(text);
        }
        if io::stdin().is_terminal() {
            return fail(
                format!("{}: no text was given", what()),
                "give it as an argument, with --file FILE, or on standard input with `-`",
            );
        }
        read(Path::new("-"), what)
    }
}

/// A whole file, or with `-` standard input, without its final line end.
pub(crate) fn read(file: &Path, what: impl Fn() -> String) -> Result<String, Stop> {
    let mut bytes = Vec::new();
    let read = input::open(file).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.or_fail(|| format!("{}: could not read `{}`", what(), file.display()))?;
    text(bytes, &what())
}

fn text(bytes: Vec<u8>, what: &str) -> Result<String, Stop> {
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return fail(
            format!("{what}: the text is larger than {TEXT_BYTES_MAX} bytes"),
            "store it as an artifact with `burrow artifact put`, and add an entry that describes it",
        );
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{what}: the text is not UTF-8 at byte {at}"))
            .hint("convert it with `iconv -t UTF-8`, or store it unchanged with `burrow artifact put`")
    })?;
    Ok(text
        .strip_suffix('\n')
        .map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text))
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(result: Result<String, Stop>) -> Failure {
        match result {
            Err(Stop::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_final_line_end_is_removed() {
        for (bytes, expected) in [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("", "")] {
            assert_eq!(text(bytes.into(), "x").unwrap(), expected);
        }
    }

    #[test]
    fn invalid_text_is_rejected_with_a_hint() {
        let refused = failure(text(vec![b'a', 0xff], "could not add"));
        assert_eq!(refused.to_string(), "could not add: the text is not UTF-8 at byte 1");
        assert!(refused.hint.unwrap().contains("artifact put"));
        let refused = failure(text(vec![b'a'; TEXT_BYTES_MAX as usize + 1], "could not add"));
        assert!(refused.to_string().contains("larger than 1048576 bytes"));
    }
}
