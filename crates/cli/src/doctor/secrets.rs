//! The key that decrypts secrets: whether it exists, and is readable by its owner only.

use std::os::unix::fs::MetadataExt as _;

use super::Check;
use crate::local::LocalDaemon;

const AREA: &str = "secrets";

pub(super) fn examine(daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let Some(daemon) = daemon else { return Vec::new() };
    let path = &daemon.vault_key_file;
    let shown = path.display();
    let check = match std::fs::metadata(path) {
        Ok(about) if about.mode() & 0o077 != 0 => {
            let found = format!("`{shown}` can be read by others (mode {:03o})", about.mode() & 0o777);
            Check::fail(AREA, "key file", found).fix(format!("sudo chmod 600 {shown}"))
        }
        Ok(_) => Check::ok(
            AREA,
            "key file",
            format!("`{shown}`, readable by its owner only; store a copy on another machine"),
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && daemon.vault_command => {
            Check::ok(AREA, "key file", "none; `secrets.sealer_command` manages the key")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::note(AREA, "key file", format!("`{shown}` is created when the daemon starts"))
        }
        Err(error) => Check::warn(AREA, "key file", format!("could not inspect `{shown}`: {error}")),
    };
    vec![check]
}
