//! The address of the SSH gateway, its host key, and the key for logins.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;

use burrow_api::{AddSshKey, ErrorCode};
use burrow_ssh::KeyFile;

use crate::commands::prelude::*;
use crate::context::{configuration_directory, host_of};

/// The settings that `ssh` needs.
#[derive(Debug)]
pub(super) struct SshSettings {
    pub(super) host: String,
    port: u16,
    identity: PathBuf,
    known_hosts: PathBuf,
}

impl SshSettings {
    /// Asks the daemon, creates a key if there is none, and makes sure that the gateway accepts it.
    pub(super) async fn find(ctx: &Context) -> Result<Self, Stop> {
        let client = ctx.client()?;
        let gateway = client.ssh().await.or_fail("could not get the address of the SSH gateway")?;
        let (Some(address), Some(host_key)) = (gateway.address, gateway.host_key) else {
            return fail(
                "the daemon does not serve SSH",
                "set `ssh.listen` in its configuration; `burrow shell` needs no SSH",
            );
        };
        let address: SocketAddr = address
            .parse()
            .map_err(|error| Failure::new("the address of the SSH gateway is invalid").because(&error))?;
        let host = reached_at(address, host_of(&ctx.args.url), ctx.is_local())?;
        let folder = folder()?;
        let identity = folder.join("id_ed25519");
        ensure_key(&client, &identity).await?;
        let known_hosts = folder.join(format!("known_hosts-{}-{}", file_name(&host), address.port()));
        let line = format!("{ALIAS} {host_key}\n");
        fs::write(&known_hosts, line).or_fail(|| format!("could not write `{}`", known_hosts.display()))?;
        Ok(Self { host, port: address.port(), identity, known_hosts })
    }

    /// The settings in terms of `ssh_config`.
    pub(super) fn options(&self) -> Vec<(&'static str, String)> {
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        vec![
            ("HostName", self.host.clone()),
            ("Port", self.port.to_string()),
            ("IdentityFile", quoted(&self.identity)),
            ("IdentitiesOnly", "yes".to_owned()),
            ("IdentityAgent", "none".to_owned()),
            ("HostKeyAlias", ALIAS.to_owned()),
            ("UserKnownHostsFile", quoted(&self.known_hosts)),
            ("GlobalKnownHostsFile", "none".to_owned()),
            ("StrictHostKeyChecking", "yes".to_owned()),
        ]
    }
}

/// The name of the daemon's host key in known_hosts.
const ALIAS: &str = "burrow";

/// `~/.config/burrow/ssh`, accessible to its owner only.
pub(super) fn folder() -> Result<PathBuf, Stop> {
    let Some(home) = configuration_directory() else {
        return fail("there is no home directory to store a key in", "set HOME");
    };
    let folder = home.join("burrow/ssh");
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.or_fail(|| format!("could not create `{}`", folder.display()))?;
    Ok(folder)
}

/// A gateway that listens on all addresses, or on loopback, has the address of the daemon.
fn reached_at(address: SocketAddr, daemon: Option<String>, local: bool) -> Result<String, Stop> {
    let ip = address.ip();
    if ip.is_loopback() && !local {
        return fail(
            "the daemon serves SSH to its own host only",
            "set `ssh.listen` in its configuration to a public address; or log in on its host",
        );
    }
    match daemon {
        Some(daemon) if ip.is_unspecified() => Ok(daemon),
        Some(_) | None => Ok(ip.to_string()),
    }
}

fn file_name(host: &str) -> String {
    host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' }).collect()
}

/// A key that was added with another API key has other rights, or none: it is replaced.
async fn ensure_key(client: &Client, path: &Path) -> Result<(), Stop> {
    let what = "could not add an SSH key";
    match client.add_ssh_key(&request(path)?).await {
        Err(error) if error.code() == Some(ErrorCode::Conflict) => {
            fs::remove_file(path).or_fail(|| format!("could not replace `{}`", path.display()))?;
            client.add_ssh_key(&request(path)?).await.or_fail(what)?;
        }
        result => drop(result.or_fail(what)?),
    }
    Ok(())
}

fn request(path: &Path) -> Result<AddSshKey, Stop> {
    let key = KeyFile::open(path).map_err(|error| {
        Failure::new("could not use burrow's own SSH key")
            .because(&error)
            .hint(format!("remove `{}`, and a new one is created", path.display()))
    })?;
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| Ok::<_, io::Error>(String::new()));
    let name = name.unwrap_or_default();
    Ok(AddSshKey { public_key: key.public(), name: Some(format!("burrow ssh on {}", name.trim())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_reached_where_the_daemon_is() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let daemon = || Some("box.example.com".to_owned());
        assert_eq!(reached_at(at("127.0.0.1:2222"), Some("localhost".into()), true).unwrap(), "127.0.0.1");
        assert_eq!(reached_at(at("0.0.0.0:2222"), daemon(), false).unwrap(), "box.example.com");
        assert_eq!(reached_at(at("[::]:2222"), daemon(), false).unwrap(), "box.example.com");
        assert_eq!(reached_at(at("192.0.2.1:2222"), daemon(), false).unwrap(), "192.0.2.1");
        assert!(reached_at(at("127.0.0.1:2222"), daemon(), false).is_err());
    }
}
