//! Code line by line: a prompt, and what each piece comes to.

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

use super::Session;
use crate::failure::{Failure, Stop};
use crate::print;

const PROMPT: &str = ">>> ";

/// Until Ctrl-D. The context and its variables stay for whoever comes next.
pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    // A history on disk would keep whatever somebody typed, secrets included.
    let config = Config::builder().auto_add_history(false).build();
    let editor = Editor::<Piece, MemHistory>::with_history(config, MemHistory::new());
    let mut editor =
        editor.map_err(|error| Failure::new("could not read from the terminal").because(&error))?;
    editor.set_helper(Some(Piece));
    print::note("variables are kept in the sandbox; Ctrl-C interrupts, Ctrl-D leaves");
    loop {
        let code = match editor.readline(PROMPT) {
            Ok(code) => code,
            // What was begun is thrown away.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => {
                return Err(Failure::new("could not read from the terminal").because(&error).into());
            }
        };
        if code.trim().is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(code.trim_end());
        session.run(code).await?;
    }
}

/// Tells the editor when a piece of code is whole: until then, Enter begins another line of it.
struct Piece;

impl Validator for Piece {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match goes_on(typed.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Piece {
    type Candidate = String;
}

impl Hinter for Piece {
    type Hint = String;
}

impl Highlighter for Piece {}

impl Helper for Piece {}

/// Whether more lines belong to it: a block goes on until an empty line, and what is open until it is closed.
fn goes_on(code: &str) -> bool {
    let mut lines = code.split('\n').map(|line| line.split(" #").next().unwrap_or_default().trim_end());
    let opens = |line: &str| line.ends_with(':') && !line.trim_start().starts_with('#');
    let block = lines.clone().any(opens) || code.trim_start().starts_with('@');
    let last = lines.next_back().unwrap_or_default();
    is_unclosed(code) || last.ends_with('\\') || (block && !last.is_empty())
}

/// Whether a bracket or a long string is open. Reads quotes as most languages have them.
fn is_unclosed(code: &str) -> bool {
    let mut depth = 0i32;
    let mut quote: Option<&str> = None;
    let mut rest = code;
    while let Some(character) = rest.chars().next() {
        if let Some(mark) = quote {
            if let Some(after) = rest.strip_prefix('\\') {
                rest = after.get(after.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default();
                continue;
            }
            if let Some(after) = rest.strip_prefix(mark) {
                (quote, rest) = (None, after);
                continue;
            }
            // A short string ends with its line, closed or not.
            if character == '\n' && mark.len() == 1 {
                quote = None;
            }
            rest = &rest[character.len_utf8()..];
            continue;
        }
        if let Some(mark) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|mark| rest.starts_with(mark)) {
            (quote, rest) = (Some(mark), &rest[mark.len()..]);
            continue;
        }
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '#' => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            _ => {}
        }
        rest = &rest[character.len_utf8()..];
    }
    depth > 0 || quote.is_some_and(|mark| mark.len() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_piece_unless_it_opens_something() {
        for whole in ["1 + 1", "print('a:b')", "x = {'a': 1}", "# note:", "s = 'it\\'s'", "'(' + ']'", ""] {
            assert!(!goes_on(whole), "{whole}");
        }
        for begun in ["for x in y:", "f(", "x = [1,", "'''a", "a = \\", "@cached", "if x:  # why"] {
            assert!(goes_on(begun), "{begun}");
        }
    }

    #[test]
    fn a_block_goes_on_until_an_empty_line() {
        assert!(goes_on("for x in y:\n  print(x)"));
        assert!(!goes_on("for x in y:\n  print(x)\n"));
        assert!(!goes_on("f(\n1)"));
        assert!(!goes_on("a = \\\n1"));
        assert!(goes_on("f(\n\n"), "an empty line closes no bracket");
    }
}
