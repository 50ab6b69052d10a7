//! Build files: what an image is made of, as a short list that a person can read.
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
//! Without `steps`, the same words stand at the top, once each, and happen in this order: packages, copy, run, env,
//! user, workdir, entrypoint, cmd, labels.

mod content;
mod key;
mod raw;

use std::collections::BTreeMap;

pub use self::content::content_hash;
pub use self::key::{StepKey, base_key, key};
use crate::{ImageError, Reference};

/// A build file is written by hand; nobody writes this much.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Each step is a volume of its own while it is cached.
const STEPS_MAX: usize = 256;

/// A build file that was read and makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// An image's name here, or a reference.
    pub base: String,
    pub steps: Vec<Step>,
}

/// One step, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Names of the base's own packages.
    Packages(Vec<String>),
    Copy(Copy),
    Run(Run),
    Env(BTreeMap<String, String>),
    User(String),
    Workdir(String),
    Entrypoint(Vec<String>),
    Cmd(Vec<String>),
    Labels(BTreeMap<String, String>),
}

/// Files from beside the build file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Relative, never upwards: `app`, `conf/app.toml`, `.`.
    pub from: String,
    /// Absolute. A directory's content goes into it; a file takes this name, or with `/` at the end goes into it.
    pub to: String,
    /// `user`, `user:group`, by name or id; root when absent.
    pub owner: Option<String>,
    /// Of files, in place of their own.
    pub mode: Option<u32>,
}

/// A command, run in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// By `/bin/sh -c`.
    Shell(String),
    /// By `/bin/bash -c`, or by `/bin/sh -c` in an image without bash.
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

/// Reads a build file.
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
