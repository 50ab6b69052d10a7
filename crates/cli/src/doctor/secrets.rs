//! The key that decrypts secrets: whether it exists, and is readable by its owner only.

use std::os::unix::fs::MetadataExt as _;

use super::Check;
use crate::local::LocalDaemon;

pub(super) fn examine(daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let Some(daemon) = daemon else { return Vec::new() };
    let path = &daemon.config.secrets.key_file;
    let shown = path.display();
    let check = match std::fs::metadata(path) {
        Ok(about) if about.mode() & 0o077 != 0 => {
            let found = format!("`{shown}` can be read by others (mode {:03o})", about.mode() & 0o777);
            Check::fail("key file", found).repair([["chmod".to_owned(), "600".to_owned(), shown.to_string()]])
        }
        Ok(_) => Check::ok(
            "key file",
            format!("`{shown}`, readable by its owner only; store a copy on another machine"),
        ),
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound && daemon.config.secrets.command.is_some() =>
        {
            Check::ok("key file", "none; `secrets.sealer_command` manages the key")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::note("key file", format!("`{shown}` is created when the daemon starts"))
        }
        Err(error) => Check::warn("key file", format!("could not inspect `{shown}`: {error}")),
    };
    vec![check]
}
