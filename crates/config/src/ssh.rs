//! The `[ssh]` keys.

use std::net::SocketAddr;
use std::time::Duration;

use super::file::Settings;

#[derive(Clone, Debug)]
pub struct SshConfig {
    /// `None`: turned off.
    pub listen: Option<SocketAddr>,
    /// The address was set explicitly, so a failure to listen is an error.
    pub chosen: bool,
    pub connections: usize,
    pub half_open: usize,
    pub half_open_per_address: usize,
    pub login: Duration,
    pub tries: usize,
    pub idle: Option<Duration>,
}

impl SshConfig {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            listen: settings.flag("ssh.enabled").then(|| settings.address("ssh.listen")),
            chosen: settings.is_set("ssh.listen"),
            connections: settings.count("ssh.connections"),
            half_open: settings.count("ssh.half_open"),
            half_open_per_address: settings.count("ssh.half_open_per_address"),
            login: Duration::from_secs(settings.number("ssh.login_seconds")),
            tries: settings.count("ssh.tries"),
            idle: settings.span_if_any("ssh.idle").map(Duration::from_millis),
        }
    }
}
