//! A build file with the files it copies, in the daemon's format: a tar of `request` and `context/`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use burrow_api::BuildImage;
use serde_norway::Value;

use crate::transfer::pack::Tree;

/// The archive that is sent.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) request: BuildImage,
    pub(super) directory: PathBuf,
    pub(super) copied: Vec<String>,
}

impl Bundle {
    /// Blocks.
    pub(super) fn pack(&self, into: impl Write) -> io::Result<()> {
        let mut builder = tar::Builder::new(into);
        append_request(&mut builder, &self.request)?;
        let mut tree = Tree::new(builder);
        tree.directory_entry(&self.directory, Path::new("context"))?;
        for from in &self.copied {
            let parts: Vec<&str> = from.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
            // The daemon would refuse it too, but a mistyped path must not send other files of this host.
            if parts.contains(&"..") {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("`{from}` is outside of the context"),
                ));
            }
            let (mut path, mut inside) = (self.directory.clone(), PathBuf::from("context"));
            for (index, part) in parts.iter().enumerate() {
                path.push(part);
                inside.push(part);
                let metadata = fs::symlink_metadata(&path)
                    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
                if index + 1 < parts.len() {
                    if !metadata.is_dir() {
                        let message = format!("{}: not a directory", path.display());
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                    }
                    tree.directory_entry(&path, &inside)?;
                }
            }
            tree.add(&path, &inside)?;
        }
        tree.finish()
    }
}

/// Adds the request, which comes first.
pub(super) fn append_request(builder: &mut tar::Builder<impl Write>, request: &BuildImage) -> io::Result<()> {
    let request = serde_json::to_vec(request).map_err(io::Error::other)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(request.len() as u64);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    builder.append_data(&mut header, "request", request.as_slice())
}

/// The files that a build file copies. The daemon reports errors in the file, since it parses all of it.
pub(super) fn copied(recipe: &str) -> Vec<String> {
    let Ok(Value::Mapping(top)) = serde_norway::from_str::<Value>(recipe) else { return Vec::new() };
    let mut found = Vec::new();
    let mut look = |value: Option<&Value>| match value {
        Some(Value::Sequence(copies)) => copies.iter().for_each(|copy| found.extend(source(copy))),
        Some(copy) => found.extend(source(copy)),
        None => {}
    };
    look(top.get("copy"));
    if let Some(Value::Sequence(steps)) = top.get("steps") {
        steps.iter().for_each(|step| look(step.get("copy")));
    }
    found.sort();
    found.dedup();
    found
}

fn source(copy: &Value) -> Option<String> {
    copy.get("from")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_files_are_found_in_both_forms_of_a_build_file() {
        let steps = "base: debian\nsteps:\n  - run: x\n  - copy: { from: app, to: /a }\n  - copy: [{ from: b, to: /b }]\n";
        assert_eq!(copied(steps), ["app", "b"]);
        assert_eq!(copied("base: debian\ncopy:\n  - { from: ., to: /all }\n"), ["."]);
        assert!(copied("base: debian\nrun: x\n").is_empty());
        assert!(copied("{").is_empty());
    }

    #[test]
    fn only_copied_files_are_sent() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("app/sub")).unwrap();
        fs::write(place.path().join("app/sub/file"), "x").unwrap();
        fs::write(place.path().join("secret"), "s").unwrap();
        let bundle = |from: &str| Bundle {
            request: BuildImage::default(),
            directory: place.path().to_owned(),
            copied: vec![from.to_owned()],
        };
        let mut packed = Vec::new();
        bundle("app/sub").pack(&mut packed).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().trim_end_matches('/').to_owned())
            .collect();
        assert_eq!(names, ["request", "context", "context/app", "context/app/sub", "context/app/sub/file"]);
        for bad in ["../x", "missing", "secret/x"] {
            assert!(bundle(bad).pack(io::sink()).is_err(), "{bad}");
        }
    }
}
