//! The result of a check of this host, with the command that fixes the problem.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// For information; nothing is missing.
    Note,
    /// Something optional does not work.
    Warn,
    /// Something required does not work.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) area: &'static str,
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// The finding, with the reason of a problem.
    pub(crate) found: String,
    /// The command that fixes the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { area: "", name, verdict, found: found.into(), fix: None }
    }

    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found)
    }

    pub(crate) fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Note, found)
    }

    pub(crate) fn warn(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, found)
    }

    pub(crate) fn fail(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fail, found)
    }

    pub(crate) fn fix(self, command: impl Into<String>) -> Self {
        self.fix_if(Some(command))
    }

    pub(crate) fn fix_if(mut self, command: Option<impl Into<String>>) -> Self {
        self.fix = command.map(Into::into);
        self
    }
}
