//! What failed in the machine, and in which step.

use std::fmt;

use crate::protocol::BootReport;

#[derive(Debug)]
pub(in crate::agent) struct Failure {
    step: String,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.message)
    }
}

impl Failure {
    pub(super) fn new(step: &str, message: &str) -> Self {
        Self { step: step.to_owned(), message: message.to_owned() }
    }

    pub(super) fn of(step: &str, error: &dyn std::error::Error) -> Self {
        Self::new(step, &error.to_string())
    }

    pub(in crate::agent) fn report(self) -> BootReport {
        BootReport::Failed { step: self.step, message: self.message }
    }
}

/// Adds the step to an error, as in `mount(…).at("mount `/proc`")?`.
pub(super) trait AtStep<T> {
    fn at(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<std::io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(step, &error.into()))
    }
}
