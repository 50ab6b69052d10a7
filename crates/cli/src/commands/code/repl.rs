//! The interactive mode of `burrow code`: reads code line by line, and shows the result of each piece.

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

use super::Session;
use crate::commands::prelude::*;

const PROMPT: &str = ">>> ";

/// Reads and runs code until Ctrl-D. The context keeps its variables.
pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    // A history on disk would store everything that was typed, including secrets.
    let config = Config::builder().auto_add_history(false).build();
    let editor = Editor::<ReplHelper, MemHistory>::with_history(config, MemHistory::new());
    let mut editor =
        editor.map_err(|error| Failure::new("could not read from the terminal").because(&error))?;
    editor.set_helper(Some(ReplHelper));
    print::note("variables are kept in the sandbox; Ctrl-C interrupts, Ctrl-D exits");
    loop {
        let code = match editor.readline(PROMPT) {
            Ok(code) => code,
            // Discard the incomplete input.
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

/// Lets the editor know when a piece of code is complete: until then, Enter starts another line of it.
struct ReplHelper;

impl Validator for ReplHelper {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_incomplete(typed.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for ReplHelper {
    type Candidate = String;
}

impl Hinter for ReplHelper {
    type Hint = String;
}

impl Highlighter for ReplHelper {}

impl Helper for ReplHelper {}

/// Whether the code is incomplete: a block continues until an empty line, an open bracket or string until it is closed.
fn is_incomplete(code: &str) -> bool {
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
            // A short string ends with its line, whether or not it is closed.
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
    fn a_line_is_complete_unless_it_opens_a_block_or_a_bracket() {
        for whole in ["1 + 1", "print('a:b')", "x = {'a': 1}", "# note:", "s = 'it\\'s'", "'(' + ']'", ""] {
            assert!(!is_incomplete(whole), "{whole}");
        }
        for begun in ["for x in y:", "f(", "x = [1,", "'''a", "a = \\", "@cached", "if x:  # why"] {
            assert!(is_incomplete(begun), "{begun}");
        }
    }

    #[test]
    fn a_block_continues_until_an_empty_line() {
        assert!(is_incomplete("for x in y:\n  print(x)"));
        assert!(!is_incomplete("for x in y:\n  print(x)\n"));
        assert!(!is_incomplete("f(\n1)"));
        assert!(!is_incomplete("a = \\\n1"));
        assert!(is_incomplete("f(\n\n"), "an empty line closes no bracket");
    }
}
