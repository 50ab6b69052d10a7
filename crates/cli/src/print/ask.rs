//! Asks for confirmation before something is replaced or removed.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::failure::{CODE_GENERAL, OrFail as _, Stop, fail};

/// Longest answer read: anything but `y` and `yes` is a no anyway.
const ANSWER_BYTES_MAX: u64 = 256;

/// Asks for confirmation of an action that cannot be undone; `yes` answers for the user.
pub(crate) fn be_sure(yes: bool, what: &str, question: &str) -> Result<(), Stop> {
    if yes {
        return Ok(());
    }
    require_terminal(what, "add --yes")?;
    if confirm(question)? { Ok(()) } else { Err(Stop::Exit(CODE_GENERAL)) }
}

/// Fails when a question is required, and there is no terminal to ask it on.
pub(crate) fn require_terminal(what: &str, hint: &str) -> Result<(), Stop> {
    match can_ask() {
        true => Ok(()),
        false => fail(format!("{what}: confirmation is required, but there is no terminal"), hint),
    }
}

/// Whether there is a terminal to ask on.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// `question [y/N]`; every answer except yes is a no.
pub(crate) fn confirm(question: &str) -> Result<bool, Stop> {
    let what = "could not ask for confirmation";
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).or_fail(what)?;
    let mut answer = String::new();
    io::Read::take(io::stdin().lock(), ANSWER_BYTES_MAX).read_line(&mut answer).or_fail(what)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for answer in ["y\n", "Yes\n", " YES "] {
            assert!(is_yes(answer), "{answer:?}");
        }
        for answer in ["", "\n", "n\n", "yep", "yes please"] {
            assert!(!is_yes(answer), "{answer:?}");
        }
    }
}
