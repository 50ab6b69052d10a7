//! Turns errors inside the sandbox into errors for the host.

use std::fmt::Display;

use rustix::io::Errno;

use crate::protocol::{ErrorCode, RequestError};

/// The longest message sent to the host: a path of 4096 bytes and the failed action fit.
const MESSAGE_CHARS_MAX: usize = 5000;

pub(super) fn fail(code: ErrorCode, message: impl Display) -> RequestError {
    RequestError { code, message: printable(&message.to_string()) }
}

pub(super) fn invalid(message: impl Display) -> RequestError {
    fail(ErrorCode::Invalid, message)
}

/// The message is "could not `what` `on`: <the kernel's reason>".
pub(super) fn refused(what: &str, on: impl Display, errno: Errno) -> RequestError {
    fail(code_of(errno), format_args!("could not {what} `{on}`: {}", describe(errno)))
}

/// The kernel's message, without the error number that Rust adds.
pub(super) fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn code_of(errno: Errno) -> ErrorCode {
    match errno {
        Errno::NOENT => ErrorCode::NotFound,
        Errno::EXIST => ErrorCode::AlreadyExists,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorCode::PermissionDenied,
        Errno::NOTDIR => ErrorCode::NotADirectory,
        Errno::ISDIR => ErrorCode::IsADirectory,
        Errno::NOTEMPTY => ErrorCode::DirectoryNotEmpty,
        Errno::NOSPC | Errno::DQUOT => ErrorCode::NoSpace,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::LOOP | Errno::XDEV => ErrorCode::Invalid,
        Errno::NXIO | Errno::NODEV => ErrorCode::NotAFile,
        Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM => ErrorCode::TooMany,
        Errno::FBIG | Errno::TOOBIG => ErrorCode::TooLarge,
        _ => ErrorCode::Internal,
    }
}

/// Escapes control characters, since messages are shown on terminals, and limits the length.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars().take(MESSAGE_CHARS_MAX) {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_no_control_characters() {
        let error = refused("open", "/tmp/\x1b]0;owned\x07\u{9b}", Errno::NOENT);
        assert_eq!(error.code, ErrorCode::NotFound);
        assert!(!error.message.chars().any(char::is_control), "{}", error.message);
        assert!(error.message.contains("No such file or directory"), "{}", error.message);
    }
}
