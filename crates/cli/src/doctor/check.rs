//! The result of a check of this host, with the command that fixes the problem.

use serde::Serialize;

use super::packages;

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
    /// The commands that `burrow doctor --fix` runs as root, in this order; empty if it cannot fix the problem.
    #[serde(skip)]
    pub(crate) repair: Vec<Vec<String>>,
}

impl Check {
    pub(super) fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { area: "", name, verdict, found: found.into(), fix: None, repair: Vec::new() }
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

    /// Like `fix`, with commands that `burrow doctor --fix` can run.
    pub(crate) fn repair<C, W>(mut self, commands: C) -> Self
    where
        C: IntoIterator<Item = W>,
        W: IntoIterator<Item: Into<String>>,
    {
        self.repair = commands.into_iter().map(|words| words.into_iter().map(Into::into).collect()).collect();
        let shown: Vec<_> = self.repair.iter().map(|words| format!("sudo {}", words.join(" "))).collect();
        self.fix(shown.join(" && "))
    }

    /// The package, which has the same name on all distributions, fixes the problem.
    pub(super) fn install(mut self, package: &str) -> Self {
        self.repair = packages::commands(package);
        self.fix(packages::install(package))
    }

    pub(crate) fn is_problem(&self) -> bool {
        matches!(self.verdict, Verdict::Warn | Verdict::Fail)
    }

    pub(crate) fn fix_if(mut self, command: Option<impl Into<String>>) -> Self {
        self.fix = command.map(Into::into);
        self
    }
}
