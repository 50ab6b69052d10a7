//! `.dockerignore`: which files of a directory are not sent with a build.
//!
//! A pattern is relative to the directory. `*` matches a part of a name, `**` any number of directories, and `!` in front
//! makes an exception; the last pattern that matches decides.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burrow_trees::glob::Glob;

use crate::transfer::input::read_text;

/// Such a file has about a page.
const FILE_BYTES_MAX: u64 = 256 << 10;
const PATTERNS_MAX: usize = 1000;

/// The patterns of one file, in its order.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules {
    rules: Vec<IgnoreRule>,
}

#[derive(Debug)]
struct IgnoreRule {
    glob: Glob,
    is_exception: bool,
}

impl IgnoreRules {
    /// Those of `Dockerfile.dockerignore` beside the Dockerfile, else of `.dockerignore` in the directory.
    pub(super) fn read(dockerfile: &Path, directory: &Path) -> io::Result<Self> {
        let mut own = dockerfile.as_os_str().to_owned();
        own.push(".dockerignore");
        for file in [PathBuf::from(own), directory.join(".dockerignore")] {
            match fs::symlink_metadata(&file) {
                Ok(_) => {
                    let text = read_text(&file, FILE_BYTES_MAX)?;
                    let invalid = |reason| format!("{}: {reason}", file.display());
                    return Self::parse(&text)
                        .map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, invalid(reason)));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::default())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (is_exception, pattern) =
                line.strip_prefix('!').map_or((false, line), |rest| (true, rest.trim()));
            let parts = pattern.split('/').filter(|part| !part.is_empty() && *part != ".");
            let parts: Vec<&str> = parts.collect();
            if parts.is_empty() {
                continue;
            }
            if rules.len() == PATTERNS_MAX {
                return Err(format!("more than {PATTERNS_MAX} patterns"));
            }
            let glob = format!("/{}", parts.join("/")).parse().map_err(|error| format!("{error}"))?;
            rules.push(IgnoreRule { glob, is_exception });
        }
        Ok(Self { rules })
    }

    /// Whether a path below the directory is left out.
    pub(super) fn ignores(&self, path: &Path) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let whole = [b"/", path.as_os_str().as_bytes()].concat();
        let last = self.rules.iter().rev().find(|rule| rule.glob.matches(&whole));
        last.is_some_and(|rule| !rule.is_exception)
    }

    /// Whether a directory that is left out may contain exceptions.
    pub(super) fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_exception)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let text =
            "# comment\n\n.git\n/node_modules/\n*.md\n!README.md\n**/*.log\nbuild/**\n!build/keep\ntemp?\n";
        let rules = IgnoreRules::parse(text).unwrap();
        for (path, expected) in [
            (".git", true),
            (".git/config", true),
            ("sub/.git", false),
            ("node_modules/a/b", true),
            ("sub/node_modules", false),
            ("NOTES.md", true),
            ("README.md", false),
            ("sub/NOTES.md", false),
            ("a.log", true),
            ("deep/er/a.log", true),
            ("build/x", true),
            ("build/keep", false),
            ("temp1", true),
            ("temp", false),
            ("src/main.rs", false),
        ] {
            assert_eq!(rules.ignores(Path::new(path)), expected, "{path}");
        }
        assert!(rules.has_exceptions());
        assert!(!IgnoreRules::default().ignores(Path::new("x")));
        assert!(IgnoreRules::parse("[a").unwrap_err().contains("[a"));
    }
}
