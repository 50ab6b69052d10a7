//! The daemon of this host, as described by its configuration file, for the commands that start, stop and check it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use burrow_daemon::Config;

use crate::context::{Context, GlobalArgs};
use crate::failure::{Failure, Stop};

#[derive(Clone, Debug)]
pub(crate) struct LocalDaemon {
    pub(crate) url: String,
    pub(crate) listen: SocketAddr,
    pub(crate) state_dir: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) criu: Option<PathBuf>,
    pub(crate) egress_uid: u32,
    pub(crate) vault_key_file: PathBuf,
    /// An external program manages the key of secrets.
    pub(crate) vault_command: bool,
    admin_key_file: PathBuf,
}

impl LocalDaemon {
    /// Reads the given file, else the default one; without a file, the defaults apply.
    pub(crate) fn read(config: Option<&Path>) -> Result<Self, Stop> {
        let config = Config::load(config).map_err(|error| {
            let mut failure = Failure::new("could not read the daemon's configuration").because(&error);
            failure.hint = error.hint().map(str::to_owned);
            failure
        })?;
        Ok(Self::of(&config))
    }

    fn of(config: &Config) -> Self {
        Self {
            url: url(config.listen, config.tls.is_some()),
            listen: config.listen,
            state_dir: config.state_dir.clone(),
            run_dir: config.run_dir.clone(),
            criu: config.runtime.criu.clone(),
            egress_uid: config.egress.uid,
            vault_key_file: config.secrets.key_file.clone(),
            vault_command: config.secrets.command.is_some(),
            admin_key_file: config.admin_key_file.clone(),
        }
    }

    /// A context for this daemon, unless `ctx` names another daemon by address.
    pub(crate) fn context(&self, ctx: &Context) -> Context {
        if ctx.args.url != burrow_api::defaults::URL {
            return Context::new(ctx.args.clone());
        }
        let args = GlobalArgs { url: self.url.clone(), ..ctx.args.clone() };
        Context::with_admin_key(args, &self.admin_key_file)
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.run_dir.join("daemon.pid")
    }

    /// Gives the key to the user who called `sudo`. A daemon started by systemd does not know that user.
    pub(crate) fn give_key_to_caller(&self) {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let (Some(uid), Some(gid)) = (number("SUDO_UID"), number("SUDO_GID")) else { return };
        let Ok(found) = std::fs::symlink_metadata(&self.admin_key_file) else { return };
        // It belongs to another user already, and is not changed.
        if found.is_file() && found.uid() == 0 {
            let _ = std::os::unix::fs::lchown(&self.admin_key_file, Some(uid), Some(gid));
        }
    }
}

/// The address at which a local client reaches this listener.
fn url(listen: SocketAddr, tls: bool) -> String {
    let host = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(host, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_on_all_addresses_is_reached_on_loopback() {
        for (listen, tls, expected) in [
            ("127.0.0.1:7700", false, "http://127.0.0.1:7700"),
            ("0.0.0.0:7701", false, "http://127.0.0.1:7701"),
            ("[::]:7700", true, "https://[::1]:7700"),
            ("10.0.0.1:80", true, "https://10.0.0.1:80"),
        ] {
            assert_eq!(url(listen.parse().unwrap(), tls), expected);
        }
    }
}
