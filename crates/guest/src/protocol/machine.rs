//! Messages about the sandbox as a whole: boot, identity, statistics, services.
//!
//! Boot: the runtime driver passes a socket to PID 1 as standard input. The agent reads one [`Boot`] as JSON up to
//! end-of-file, binds its listener, writes one [`BootReport`] as JSON, and replaces the socket with `/dev/null`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub struct Boot {
    pub generation: u32,
    pub token: String,
    /// The address to listen on and the only peer to accept, e.g. `10.88.0.2:7711` and `10.88.0.1`.
    pub listen: std::net::SocketAddr,
    pub accept_from: std::net::IpAddr,
    /// The total that `/proc/meminfo` shows.
    pub ram_bytes: u64,
    pub services: Vec<Service>,
    /// The disk is a copy of another sandbox's: the agent takes a new identity, as with
    /// [`Request::Renew`](super::Request::Renew), before anything else runs.
    #[serde(default)]
    pub renew: bool,
    /// A certificate in PEM that programs inside trust, as with [`Request::SetTrust`](super::Request::SetTrust).
    #[serde(default)]
    pub trust: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BootReport {
    Ready,
    /// `step` is what the launcher or the agent was doing.
    Failed {
        step: String,
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub generation: u32,
    pub version: String,
    /// By CLOCK_BOOTTIME, since the agent started. Without the time in which the machine was hibernated.
    pub uptime_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineStats {
    /// Of all processes that ever ran here, including reaped ones.
    pub cpu_us: u64,
    /// Anonymous and shared pages of all processes (PSS if the kernel provides it).
    pub ram_bytes: u64,
    pub ram_limit_bytes: u64,
    pub processes: u32,
    pub threads: u32,
    pub disk_used_bytes: u64,
    pub disk_total_bytes: u64,
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    pub execs_running: u32,
    pub agent_ram_bytes: u64,
    pub uptime_ms: u64,
    /// Processes that the sandbox's own kernel killed because it was out of memory; kills by the host's kernel are
    /// counted by the host.
    #[serde(default)]
    pub oom_kills: u64,
}

/// Signs of activity, for detecting idleness. Services are only counted: that they run is no sign of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Execs that are running, without services.
    pub execs_running: u32,
    /// Those of them whose output a host is reading.
    pub execs_attached: u32,
    pub services_running: u32,
    /// Long-lived connections: attached readers, file transfers, watches, pipes to ports.
    pub streams: u32,
    /// How long ago an exec last started, ended, wrote or was written to, or a stream began or ended. By
    /// CLOCK_MONOTONIC, which does not advance while the machine is hibernated.
    pub last_io_ms: u64,
}

/// A supervised process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub name: String,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
    pub restart: ServiceRestart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceRestart {
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningService {
    pub name: String,
    pub state: ServiceState,
    /// The exec of its present or last run: its output is read like that of any exec.
    pub exec: Option<String>,
    pub restarts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    Running,
    /// Ended; restarts after a growing pause (100 ms doubling to 30 s, back to 100 ms after 60 s of running).
    BackingOff,
    Ended,
}

impl std::fmt::Debug for Boot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Boot")
            .field("generation", &self.generation)
            .field("token", &"***")
            .finish_non_exhaustive()
    }
}
