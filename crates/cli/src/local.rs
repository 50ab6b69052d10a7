//! The daemon of this host, as described by its configuration file, for the commands that start, stop and check it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use burrow_daemon::{Config, Pool};

use crate::context::{Context, GlobalArgs};
use crate::failure::{Failure, Stop};

#[derive(Clone, Debug)]
pub(crate) struct LocalDaemon {
    pub(crate) config: Config,
}

impl LocalDaemon {
    /// Reads the given file, else the default one; without a file, the defaults apply.
    pub(crate) fn read(config: Option<&Path>) -> Result<Self, Stop> {
        let config = Config::load(config).map_err(|error| {
            Failure::new("could not read the daemon's configuration").because(&error).hint_if(error.hint())
        })?;
        Ok(Self { config })
    }

    /// A context for this daemon, unless `ctx` names another daemon by address.
    pub(crate) fn context(&self, ctx: &Context) -> Context {
        if ctx.args.url != burrow_api::defaults::URL {
            return Context::new(ctx.args.clone());
        }
        let url = url(self.config.listen, self.config.tls.is_some());
        let args = GlobalArgs { url, ..ctx.args.clone() };
        Context::with_admin_key(args, &self.config.admin_key_file)
    }

    /// What the daemon stores where, for the scripts that remove it.
    pub(crate) fn paths(&self) -> BTreeMap<&'static str, String> {
        let shown = |path: &Path| path.display().to_string();
        let mut paths = BTreeMap::from([
            ("state_dir", shown(&self.config.state_dir)),
            ("run_dir", shown(&self.config.run_dir)),
            ("admin_key_file", shown(&self.config.admin_key_file)),
            ("key_file", shown(&self.config.secrets.key_file)),
            ("cgroup", self.config.runtime.cgroup.clone()),
        ]);
        if let Pool::Directory(path) = &self.config.pool {
            paths.insert("pool", shown(path));
        }
        paths
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.config.run_dir.join("daemon.pid")
    }

    /// The default image that Burrow's package contains. With another default image or another mirror, `None`.
    pub(crate) fn packaged_image(&self) -> Option<PathBuf> {
        let is_wanted =
            self.config.mirror.is_none() && self.config.defaults.image == burrow_api::defaults::IMAGE;
        let file = std::env::current_exe().ok()?.with_file_name("image").join("debian.tar");
        (is_wanted && file.is_file()).then_some(file)
    }

    /// Gives the key to the user who called `sudo`. A daemon started by systemd does not know that user.
    pub(crate) fn give_key_to_caller(&self) {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let (Some(uid), Some(gid)) = (number("SUDO_UID"), number("SUDO_GID")) else { return };
        let Ok(found) = std::fs::symlink_metadata(&self.config.admin_key_file) else { return };
        // It belongs to another user already, and is not changed.
        if found.is_file() && found.uid() == 0 {
            let _ = std::os::unix::fs::lchown(&self.config.admin_key_file, Some(uid), Some(gid));
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

    #[test]
    fn the_paths_are_those_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.toml");
        std::fs::write(&file, "state_dir = \"/srv/state\"\n[runtime]\ncgroup = \"mine\"\n").unwrap();
        let paths = LocalDaemon::read(Some(&file)).unwrap().paths();
        assert_eq!((paths["state_dir"].as_str(), paths["cgroup"].as_str()), ("/srv/state", "mine"));
        assert!(paths["run_dir"].starts_with('/') && !paths.contains_key("pool"), "{paths:?}");
        std::fs::write(&file, "[pool]\npath = \"/mnt/pool\"\n").unwrap();
        assert_eq!(LocalDaemon::read(Some(&file)).unwrap().paths()["pool"], "/mnt/pool");
    }
}
