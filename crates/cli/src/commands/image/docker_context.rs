//! A Dockerfile and the directory it copies from, in the daemon's format: a tar of `request` and `context/`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use burrow_api::BuildImage;

use super::bundle::append_request;
use super::ignore::IgnoreRules;
use crate::transfer::pack::Tree;

/// The archive that is sent.
#[derive(Debug)]
pub(super) struct DockerContext {
    pub(super) request: BuildImage,
    pub(super) directory: PathBuf,
    pub(super) ignored: IgnoreRules,
}

impl DockerContext {
    /// Blocks.
    pub(super) fn pack(&self, into: impl Write) -> io::Result<()> {
        let mut builder = tar::Builder::new(into);
        append_request(&mut builder, &self.request)?;
        let mut tree = Tree::new(builder);
        tree.directory_entry(&self.directory, Path::new("context"))?;
        self.directory(&mut tree, Path::new(""), &mut Vec::new())?;
        tree.finish()
    }

    /// The contents of a directory. `pending`: directories above that are left out unless they contain an exception.
    fn directory<W: Write>(
        &self,
        tree: &mut Tree<W>,
        below: &Path,
        pending: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        let from = self.directory.join(below);
        let names = fs::read_dir(&from)?.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        // The same tree makes the same archive.
        names.sort();
        for name in names {
            let path = below.join(name);
            let whole = self.directory.join(&path);
            let is_directory = fs::symlink_metadata(&whole)?.is_dir();
            let ignored = self.ignored.ignores(&path);
            if ignored && !(is_directory && self.ignored.has_exceptions()) {
                continue;
            }
            if !ignored {
                for directory in pending.drain(..) {
                    tree.directory_entry(&self.directory.join(&directory), &inside(&directory))?;
                }
            }
            if !is_directory {
                tree.add(&whole, &inside(&path))?;
                continue;
            }
            if ignored {
                pending.push(path.clone());
            } else {
                tree.directory_entry(&whole, &inside(&path))?;
            }
            self.directory(tree, &path, pending)?;
            pending.retain(|directory| *directory != path);
        }
        Ok(())
    }
}

fn inside(path: &Path) -> PathBuf {
    Path::new("context").join(path)
}

/// Whether a file is a Dockerfile: by its name, else by its first instruction.
pub(super) fn is_dockerfile(file: &Path, text: &str) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    let extension = name.rsplit('.').next().unwrap_or_default();
    if matches!(extension, "yaml" | "yml") {
        return false;
    }
    if matches!(stem, "dockerfile" | "containerfile") || matches!(extension, "dockerfile" | "containerfile") {
        return true;
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let word = first.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    word.eq_ignore_ascii_case("from") || word.eq_ignore_ascii_case("arg")
}

/// Whether a Dockerfile may copy files from its directory. The daemon parses it; this only avoids sending files in vain.
pub(super) fn needs_context(text: &str) -> bool {
    let copies = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word.eq_ignore_ascii_case("copy") || word.eq_ignore_ascii_case("add")
    };
    let binds = |word: &str| {
        word.starts_with("--mount=")
            && !["type=cache", "type=tmpfs", "from="].iter().any(|other| word.contains(other))
    };
    text.lines().any(|line| copies(line) || line.split_whitespace().any(binds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(ignored: &str) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        for file in ["Dockerfile", "a/b/c", "a/b/keep", "d/e", "f"] {
            let path = place.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::write(place.path().join(".dockerignore"), ignored).unwrap();
        let directory = place.path().to_owned();
        let rules = IgnoreRules::read(&directory.join("Dockerfile"), &directory).unwrap();
        let context = DockerContext { request: BuildImage::default(), directory, ignored: rules };
        let mut bytes = Vec::new();
        context.pack(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| entry.path().unwrap().to_string_lossy().trim_end_matches('/').to_owned())
            .collect()
    }

    #[test]
    fn ignored_files_are_not_sent() {
        assert_eq!(
            packed("a\n.dockerignore\nDockerfile\n"),
            ["request", "context", "context/d", "context/d/e", "context/f"]
        );
        let names = packed("*\n!a/b/keep\n");
        assert_eq!(names, ["request", "context", "context/a", "context/a/b", "context/a/b/keep"]);
        assert_eq!(packed("").len(), 11);
    }

    #[test]
    fn dockerfiles_are_recognised() {
        for (name, text, expected) in [
            ("Dockerfile", "", true),
            ("dir/Dockerfile.dev", "", true),
            ("Containerfile", "", true),
            ("app.dockerfile", "", true),
            ("burrow.yaml", "FROM x", false),
            ("-", "# syntax=x\n\nfrom x\n", true),
            ("-", "base: x\n", false),
        ] {
            assert_eq!(is_dockerfile(Path::new(name), text), expected, "{name}");
        }
        assert!(
            needs_context("FROM a\ncopy a b\n") && needs_context("RUN \\\n --mount=type=bind,target=x y\n")
        );
        assert!(!needs_context("FROM a\nRUN --mount=type=cache,target=/x copy\n"));
    }
}
