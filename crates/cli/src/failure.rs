//! How a command fails: with a message, a hint and an exit code.

use std::error::Error;
use std::fmt;
use std::io;

use burrow_api::{ErrorCode, ErrorDetail};
use burrow_client::ClientError;

use crate::print::escape::escape;

/// Exit codes, as scripts see them.
pub(crate) const CODE_GENERAL: u8 = 1;
/// Burrow's own failure while running a process, distinct from the codes of the process (like docker).
pub(crate) const CODE_OWN_FAILURE: u8 = 125;
/// The time limit of `--timeout` was exceeded (like timeout(1)).
pub(crate) const CODE_TIMED_OUT: u8 = 124;
/// The program does not exist, or cannot be executed (like shells).
pub(crate) const CODE_NO_SUCH_PROGRAM: u8 = 127;
pub(crate) const CODE_CANNOT_EXECUTE: u8 = 126;
/// 128 + SIGPIPE: what a shell shows for a program that wrote to a closed pipe.
pub(crate) const CODE_BROKEN_PIPE: u8 = 141;

/// Why a command stops early.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(Failure),
    /// Everything has been printed; exit with this code.
    Exit(u8),
    /// The reader of standard output has closed it: exit without a message.
    BrokenPipe,
}

/// A failure to show to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The failed action and its object.
    pub(crate) what: String,
    /// The chain of causes, outermost first.
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    pub(crate) code: u8,
    /// The daemon did not accept the key (or there was none).
    pub(crate) unauthorized: bool,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), causes: Vec::new(), hint: None, code: CODE_GENERAL, unauthorized: false }
    }

    pub(crate) fn because(mut self, error: &dyn Error) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            self.causes.push(error.to_string());
            cause = error.source();
        }
        self
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.hint_if(Some(hint))
    }

    pub(crate) fn hint_if(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }

    /// An error of the daemon that is part of a stream.
    pub(crate) fn detail(mut self, error: ErrorDetail) -> Self {
        self.causes.push(error.message);
        self.hint_if(error.hint)
    }
}

/// Fails with a hint.
pub(crate) fn fail<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Stop> {
    Err(Failure::new(what).hint(hint).into())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.what))?;
        for cause in &self.causes {
            write!(f, ": {}", escape(cause))?;
        }
        Ok(())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Stop {
    /// Sets the exit code, unless one was chosen already.
    pub(crate) fn with_code(self, code: u8) -> Self {
        match self {
            Self::Failed(failure) if failure.code == CODE_GENERAL => {
                Self::Failed(Failure { code, ..failure })
            }
            other @ (Self::Failed(_) | Self::Exit(_) | Self::BrokenPipe) => other,
        }
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::BrokenPipe
        } else {
            Failure::new("could not write to standard output").because(&error).into()
        }
    }
}

/// The description of an action: a text, or a closure that formats it only if the action fails.
pub(crate) trait Describe {
    fn describe(self) -> String;
}

impl Describe for &str {
    fn describe(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Describe for F {
    fn describe(self) -> String {
        self()
    }
}

/// Adds the failed action to an error.
pub(crate) trait OrFail<T> {
    fn or_fail(self, what: impl Describe) -> Result<T, Stop>;
}

impl<T> OrFail<T> for Result<T, ClientError> {
    fn or_fail(self, what: impl Describe) -> Result<T, Stop> {
        self.map_err(|error| {
            if let ClientError::Local { source } = &error
                && source.kind() == io::ErrorKind::BrokenPipe
            {
                return Stop::BrokenPipe;
            }
            let mut failure = Failure::new(what.describe()).because(&error).hint_if(error.hint());
            failure.unauthorized = error.code() == Some(ErrorCode::Unauthorized);
            if error.code() == Some(ErrorCode::NoSuchProgram) {
                failure.code = CODE_NO_SUCH_PROGRAM;
            } else if error.code() == Some(ErrorCode::CannotExecute) {
                failure.code = CODE_CANNOT_EXECUTE;
            } else if error.is_asleep() {
                failure.code = CODE_OWN_FAILURE;
            }
            failure.into()
        })
    }
}

impl<T> OrFail<T> for io::Result<T> {
    fn or_fail(self, what: impl Describe) -> Result<T, Stop> {
        self.map_err(|error| {
            let failure = Failure::new(what.describe()).because(&error);
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            failure.hint_if(denied.then_some("try again with sudo")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_lists_the_action_and_its_causes_with_control_characters_escaped() {
        let error = io::Error::other("it said \u{1b}[31mno");
        let failure = Failure::new("could not open `x`").because(&error);
        assert_eq!(failure.to_string(), "could not open `x`: it said \\x1b[31mno");
    }

    #[test]
    fn a_closed_pipe_is_not_reported_as_a_failure() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Stop::output(error), Stop::BrokenPipe));
    }

    #[test]
    fn the_code_of_exec_replaces_the_general_one_only() {
        let stop = Stop::from(Failure::new("x")).with_code(CODE_OWN_FAILURE);
        assert!(matches!(stop, Stop::Failed(Failure { code: CODE_OWN_FAILURE, .. })));
        assert!(matches!(Stop::Exit(3).with_code(CODE_OWN_FAILURE), Stop::Exit(3)));
    }
}
