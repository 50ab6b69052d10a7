//! Build files: the steps that build an image, as a short list.
//!
//! ```yaml
//! base: debian
//! steps:
//!   - packages: [nodejs, npm]
//!   - copy: { from: app, to: /srv/app, owner: www-data }
//!   - run: npm --prefix /srv/app ci
//!   - env: { NODE_ENV: production }
//!   - user: www-data
//!   - workdir: /srv/app
//!   - cmd: [node, server.js]
//! ```
//!
//! Without `steps`, the same keys are at the top level, once each, and are applied in this order: packages, copy,
//! run, env, user, workdir, entrypoint, cmd, labels.

mod content;
mod key;
mod raw;
mod tree_files;
mod tree_steps;

use std::collections::{BTreeMap, BTreeSet};

pub use self::content::content_hash;
pub use self::key::{StepKey, base_key, key};
pub use self::tree_files::{PackOptions, TreeFiles};
pub use self::tree_steps::{CacheMount, InlineFile, RunCommand, RunMount, SourceTree, TreeCopy};
use crate::{ImageError, Reference};

/// A build file is written by hand, so it is much smaller.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Each cached step uses a disk of its own.
const STEPS_MAX: usize = 256;

/// A valid build file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The name of a local image, or a reference.
    pub base: String,
    pub steps: Vec<Step>,
}

/// One step, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Packages of the base's own distribution.
    Packages(Vec<String>),
    Copy(Copy),
    Run(Run),
    Env(BTreeMap<String, String>),
    User(String),
    Workdir(String),
    Entrypoint(Vec<String>),
    Cmd(Vec<String>),
    Labels(BTreeMap<String, String>),
    // Only of Dockerfiles:
    Command(RunCommand),
    CopyTree(TreeCopy),
    Expose(BTreeSet<String>),
}

/// Files from the directory of the build file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Relative and without `..`: `app`, `conf/app.toml`, `.`.
    pub from: String,
    /// Absolute. The content of a directory is copied into it; a file gets this name, or with `/` at the end is
    /// copied into it.
    pub to: String,
    /// `user`, `user:group`, by name or id; root when absent.
    pub owner: Option<String>,
    /// The mode of files, in place of their own.
    pub mode: Option<u32>,
}

/// A command that is run in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Run by `/bin/sh -c`.
    Shell(String),
    /// Run by `/bin/bash -c`, or by `/bin/sh -c` in an image without bash.
    Bash(String),
    Argv(Vec<String>),
}

impl Run {
    /// The program and its arguments.
    pub fn argv(&self) -> Vec<String> {
        const BY_BASH: &str =
            "if [ -x /bin/bash ]; then exec /bin/bash -c \"$0\"; fi; exec /bin/sh -c \"$0\"";
        match self {
            Self::Shell(text) => ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
            Self::Bash(text) => ["/bin/sh", "-c", BY_BASH, text].map(str::to_owned).to_vec(),
            Self::Argv(argv) => argv.clone(),
        }
    }
}

/// Parses a build file.
pub fn parse(text: &str) -> Result<Recipe, ImageError> {
    let refused = |reason: &str| ImageError::Recipe { line: None, reason: reason.to_owned() };
    if text.len() > FILE_BYTES_MAX {
        return Err(refused("it is larger than 256 KiB"));
    }
    let raw: raw::Recipe = serde_norway::from_str(text).map_err(|error| ImageError::Recipe {
        line: error.location().map(|location| location.line()),
        reason: raw::reason(&error),
    })?;
    if let Err(error) = Reference::parse(&raw.base) {
        return Err(ImageError::Recipe { line: None, reason: format!("base: {error}") });
    }
    let base = raw.base.clone();
    let steps = raw.into_steps().map_err(refused)?;
    if steps.len() > STEPS_MAX {
        return Err(refused("it has more than 256 steps"));
    }
    Ok(Recipe { base, steps })
}

#[cfg(test)]
mod tests;
