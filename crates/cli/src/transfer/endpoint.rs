//! One side of a copy: a local path, a path in a sandbox, or a tar archive on a pipe.

use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Local(LocalPath),
    Remote(RemotePath),
    /// `-`: a tar archive on standard input or output.
    Pipe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalPath {
    pub(crate) path: PathBuf,
    /// Ends with `/.`: the contents of the directory, not the directory itself.
    pub(crate) contents: bool,
    /// Ends with a slash: it must be a directory.
    pub(crate) directory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemotePath {
    pub(crate) sandbox: String,
    /// Absolute, without a final `/.` or slash.
    pub(crate) path: String,
    pub(crate) contents: bool,
    pub(crate) directory: bool,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Pipe);
        }
        // A colon after a slash belongs to a file name: `./a:b` is local.
        let remote =
            text.split_once(':').filter(|(sandbox, _)| !sandbox.contains('/') && !sandbox.starts_with('.'));
        let Some((sandbox, path)) = remote else {
            let (path, contents, directory) = trim(text)?;
            return Ok(Self::Local(LocalPath { path: PathBuf::from(path), contents, directory }));
        };
        if sandbox.is_empty() {
            return Err(format!("`{text}` names no sandbox; write SANDBOX:/path"));
        }
        if !path.starts_with('/') {
            return Err(format!("`{path}` is not absolute; write {sandbox}:/path"));
        }
        let (path, contents, directory) = trim(path)?;
        Ok(Self::Remote(RemotePath { sandbox: sandbox.to_owned(), path, contents, directory }))
    }
}

/// The path without its suffix, and the meaning of the suffix.
fn trim(text: &str) -> Result<(String, bool, bool), String> {
    if text.is_empty() {
        return Err("a path is missing".to_owned());
    }
    let (path, contents) = match text.strip_suffix("/.") {
        Some(path) => (path, true),
        None if text == "." => (".", true),
        None => (text, false),
    };
    let trimmed = path.trim_end_matches('/');
    let directory = contents || trimmed.len() < path.len();
    let path = if trimmed.is_empty() { "/" } else { trimmed };
    Ok((path.to_owned(), contents, directory))
}

impl RemotePath {
    /// Last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..").unwrap_or("root")
    }

    pub(crate) fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.path.trim_end_matches('/'))
    }

    pub(crate) fn shown(&self) -> String {
        format!("{}:{}", self.sandbox, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(sandbox: &str, path: &str, contents: bool, directory: bool) -> Endpoint {
        Endpoint::Remote(RemotePath { sandbox: sandbox.into(), path: path.into(), contents, directory })
    }

    fn local(path: &str, contents: bool, directory: bool) -> Endpoint {
        Endpoint::Local(LocalPath { path: path.into(), contents, directory })
    }

    #[test]
    fn sides_are_distinguished_as_in_docker() {
        for (text, endpoint) in [
            ("-", Endpoint::Pipe),
            ("web:/etc/hosts", remote("web", "/etc/hosts", false, false)),
            ("web:/", remote("web", "/", false, true)),
            ("web:/srv/", remote("web", "/srv", false, true)),
            ("web:/srv/.", remote("web", "/srv", true, true)),
            ("./a:b", local("./a:b", false, false)),
            ("/tmp/a:b", local("/tmp/a:b", false, false)),
            ("site/", local("site", false, true)),
            ("site/.", local("site", true, true)),
            (".", local(".", true, true)),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap(), endpoint, "{text}");
        }
    }

    #[test]
    fn a_path_in_a_sandbox_is_absolute() {
        for bad in ["web:etc", "web:", ":/etc", ""] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_the_last_part() {
        for (text, name) in [("w:/a/b", "b"), ("w:/", "root"), ("w:/a/..", "root")] {
            let Ok(Endpoint::Remote(path)) = text.parse() else { panic!("{text} is remote") };
            assert_eq!(path.name(), name);
        }
    }
}
