//! The context of every command: the address of the daemon and the API key.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use burrow_client::{ApiKey, Client, ClientOptions};
use clap::Args;

use crate::failure::{OrFail, Stop};

/// Written by the setup; readable for root and for the user who called sudo.
const ADMIN_KEY: &str = "/etc/burrow/admin.key";

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Address of the daemon
    #[arg(long, global = true, env = "BURROW_URL", default_value = burrow_api::defaults::URL, value_name = "URL")]
    pub(crate) url: String,
    /// API key; by default from ~/.config/burrow/key, else the key of this host
    // Not called `key`: global arguments share a namespace with the arguments of commands.
    #[arg(long = "key", global = true, env = "BURROW_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// PEM file of an additional CA to trust
    // Not a path for clap, which rejects an empty path, even from an empty variable.
    #[arg(long, global = true, env = "BURROW_CA_FILE", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) ca_file: Option<OsString>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) args: GlobalArgs,
    /// The key, or a hint that is shown if the daemon refuses the request.
    key: Result<ApiKey, String>,
}

impl Context {
    pub(crate) fn new(mut args: GlobalArgs) -> Self {
        // An empty variable counts as unset.
        if args.url.trim().is_empty() {
            args.url = burrow_api::defaults::URL.to_owned();
        }
        args.ca_file = args.ca_file.filter(|file| !file.is_empty());
        // The key of this host is only sent to the daemon of this host: another address could be an attacker's.
        let admin_key = is_loopback(&args.url).then_some(Path::new(ADMIN_KEY));
        Self::with_keys(args, admin_key)
    }

    /// For the daemon of this host, whose configuration names its key file.
    pub(crate) fn with_admin_key(args: GlobalArgs, file: &Path) -> Self {
        Self::with_keys(args, Some(file))
    }

    fn with_keys(args: GlobalArgs, admin_key: Option<&Path>) -> Self {
        let key = match &args.api_key {
            Some(key) if !key.trim().is_empty() => Ok(ApiKey::new(key)),
            _ => find_key(&key_files(admin_key)),
        };
        Self { args, key }
    }

    pub(crate) fn client(&self) -> Result<Client, Stop> {
        Client::new(self.client_options()).or_fail("could not set up the connection")
    }

    pub(crate) fn client_options(&self) -> ClientOptions {
        let key = self.key.as_ref().ok().cloned();
        let ca_file = self.args.ca_file.clone().map(PathBuf::from);
        ClientOptions { url: self.args.url.clone(), key, ca_file }
    }

    /// A better hint than the daemon's for a user without a key.
    pub(crate) fn missing_key_hint(&self) -> Option<&str> {
        self.key.as_ref().err().map(String::as_str)
    }

    /// Whether the daemon is on this host.
    pub(crate) fn is_local(&self) -> bool {
        is_loopback(&self.args.url)
    }
}

fn key_files(admin_key: Option<&Path>) -> Vec<PathBuf> {
    let own = configuration_directory().map(|directory| directory.join("burrow/key"));
    own.into_iter().chain(admin_key.map(Path::to_owned)).collect()
}

pub(crate) fn configuration_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

/// The host of an address, without brackets and port.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    Some(host.to_owned())
}

fn is_loopback(url: &str) -> bool {
    let Some(host) = host_of(url) else { return false };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn find_key(files: &[PathBuf]) -> Result<ApiKey, String> {
    let mut unreadable = None;
    for file in files {
        match fs::read_to_string(file) {
            Ok(text) if !text.trim().is_empty() => return Ok(ApiKey::new(&text)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unreadable = Some(file.as_path())
            }
            Err(_) => {}
        }
    }
    Err(missing_hint(unreadable))
}

fn missing_hint(unreadable: Option<&Path>) -> String {
    match unreadable {
        Some(file) => format!(
            "no key was found, and `{}` is not readable by you: use sudo, or set BURROW_API_KEY",
            file.display()
        ),
        None => "no key was found: set BURROW_API_KEY, pass --key, or write one to ~/.config/burrow/key"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_this_host_is_never_sent_to_another_host() {
        for (url, local) in [
            ("http://127.0.0.1:7700", true),
            ("http://localhost/", true),
            ("https://[::1]:7700/x", true),
            ("http://burrow.example:7700", false),
            ("http://127.0.0.1.example:7700", false),
            ("http://localhost.example", false),
            ("http://10.0.0.1:7700", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(is_loopback(url), local, "{url}");
        }
    }

    #[test]
    fn the_first_file_with_a_key_wins() {
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<_> =
            ["missing", "empty", "first", "second"].map(|name| directory.path().join(name)).into();
        fs::write(&files[1], "\n").unwrap();
        fs::write(&files[2], "e2b_first\n").unwrap();
        fs::write(&files[3], "e2b_second\n").unwrap();
        assert_eq!(find_key(&files).unwrap(), ApiKey::new("e2b_first"));
        assert!(find_key(&files[..2]).is_err());
    }
}
