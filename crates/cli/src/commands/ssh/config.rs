//! `burrow ssh-config`: a configuration with which `ssh NAME.burrow`, and tools based on `ssh`, find sandboxes.
//!
//! ```text
//!   Host web.burrow            one for each sandbox that exists: editors list them
//!     User web
//!   Match … *.burrow exec      for all others: `burrow ssh-config --add HOST` adds the host to a file,
//!     Include "…/hosts"        and `ssh` reads the file afterwards
//!   Host *.burrow              the gateway, its host key, and the key for logins
//! ```
//!
//! The name of the sandbox is the login name, which the host part of a wildcard cannot set otherwise. Being part of the
//! login, it is encrypted and authenticated.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;

use burrow_client::SandboxQuery;

use super::settings::{SshSettings, folder};
use crate::commands::prelude::*;

/// The part of a host name behind that of the sandbox.
const DOMAIN: &str = ".burrow";

/// The longest login name: `new+` and the name of an image.
const NAME_LENGTH_MAX: usize = 140;

/// Beyond this, the file of added hosts starts anew: each use of a host adds it again.
const HOSTS_BYTES_MAX: usize = 64 << 10;

/// Print a configuration for the OpenSSH client
///
/// With it, `ssh NAME.burrow`, `scp`, `rsync`, `git` and editors that work over SSH find every sandbox, also those that
/// are created later. `ssh new.burrow` creates one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh-config --write                    write it, and print the line for ~/.ssh/config
  burrow ssh-config > burrow.conf && scp -F burrow.conf file web.burrow:")]
pub(crate) struct SshConfigArgs {
    /// Write it to ~/.config/burrow/ssh/config instead
    #[arg(long)]
    write: bool,
    /// Add a host to the file that the configuration includes; called by `ssh`
    #[arg(long, value_name = "HOST", hide = true, conflicts_with = "write")]
    add: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: SshConfigArgs) -> Result<(), Stop> {
    let folder = folder()?;
    let hosts = folder.join("hosts");
    if let Some(host) = args.add {
        return add(&hosts, &host);
    }
    let settings = SshSettings::find(ctx).await?;
    let sandboxes = ctx.client()?.all_sandboxes(&SandboxQuery::default()).await;
    let sandboxes = sandboxes.or_fail("could not list sandboxes")?;
    let names = sandboxes.into_iter().map(|sandbox| sandbox.name.unwrap_or(sandbox.id));
    let program = std::env::current_exe().or_fail("could not find the path of this program")?;
    let text = page(&settings, names, &program, &hosts);
    if !args.write {
        return print::data(&text);
    }
    let path = folder.join("config");
    fs::write(&path, text).or_fail(|| format!("could not write `{}`", path.display()))?;
    print::note(format!("wrote `{}`; put this at the top of ~/.ssh/config:", path.display()));
    print::line(format!("Include \"{}\"", path.display()))
}

fn page(settings: &SshSettings, names: impl Iterator<Item = String>, program: &Path, hosts: &Path) -> String {
    let mut text = String::from("# Made by `burrow ssh-config`.\n");
    for name in std::iter::once("new".to_owned()).chain(names) {
        text.push_str(&entry(&name));
    }
    let program = program.display().to_string().replace('\'', "'\\''");
    let command = format!("'{program}' ssh-config --add '%n'");
    let _ = writeln!(text, "Match originalhost *{DOMAIN} exec \"{command}\"");
    let _ = writeln!(text, "    Include \"{}\"", hosts.display());
    let _ = writeln!(text, "Host *{DOMAIN}");
    for (name, value) in settings.options() {
        let _ = writeln!(text, "    {name} {value}");
    }
    text
}

fn entry(name: &str) -> String {
    format!("Host {name}{DOMAIN}\n    User {name}\n")
}

/// Adds a host to the file that the configuration includes, unless it is there.
fn add(hosts: &Path, host: &str) -> Result<(), Stop> {
    let Some(name) = host.strip_suffix(DOMAIN).filter(|name| is_login_name(name)) else {
        return fail(
            format!("`{host}` is not the host name of a sandbox"),
            "it is the name of a sandbox and `.burrow`, such as `web.burrow`",
        );
    };
    let what = || format!("could not write `{}`", hosts.display());
    let entry = entry(name);
    let known = fs::read_to_string(hosts).unwrap_or_default();
    if known.contains(&entry) && known.len() < HOSTS_BYTES_MAX {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    match known.len() < HOSTS_BYTES_MAX {
        // One write at the end: two programs at the same time add two entries.
        true => options.append(true),
        false => options.write(true).truncate(true),
    };
    let mut file = options.create(true).open(hosts).or_fail(what)?;
    file.write_all(entry.as_bytes()).or_fail(what)
}

/// The name of a sandbox, an id, or `new+IMAGE`. Nothing that has a meaning in a configuration of `ssh`.
fn is_login_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-+._:/@".contains(&b);
    (1..=NAME_LENGTH_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_added_once_and_the_file_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        let text = || fs::read_to_string(&hosts).unwrap();
        for host in ["web.burrow", "web-2.burrow", "web.burrow"] {
            add(&hosts, host).unwrap();
        }
        assert_eq!(text(), "Host web.burrow\n    User web\nHost web-2.burrow\n    User web-2\n");
        fs::write(&hosts, "x".repeat(HOSTS_BYTES_MAX)).unwrap();
        add(&hosts, "web.burrow").unwrap();
        assert_eq!(text(), "Host web.burrow\n    User web\n");
    }

    #[test]
    fn names_that_would_change_the_configuration_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        let long = format!("{}.burrow", "x".repeat(NAME_LENGTH_MAX + 1));
        for bad in [
            "web",
            ".burrow",
            "*.burrow",
            "a b.burrow",
            "a\nProxyCommand x\n.burrow",
            "-x.burrow",
            "Web.burrow",
            "$(x).burrow",
            "'.burrow",
            "!a.burrow",
            "a,b.burrow",
            "a\".burrow",
            "web.burrow.example",
            &long,
        ] {
            assert!(add(&hosts, bad).is_err(), "{bad}");
        }
        assert!(!hosts.exists());
    }
}
