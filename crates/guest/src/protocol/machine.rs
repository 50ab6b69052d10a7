//! Messages about the sandbox as a whole: boot, identity, statistics, services.
//!
//! Boot: the runtime driver hands PID 1 a socket as standard input. The agent reads one [`Boot`] as JSON up to
//! end-of-file, binds its listener, writes one [`BootReport`] as JSON, and puts `/dev/null` in the socket's place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub struct Boot {
    pub generation: u32,
    pub token: String,
    /// Where to listen and whom to accept, e.g. `10.88.0.2:7711` and `10.88.0.1`.
    pub listen: std::net::SocketAddr,
    pub accept_from: std::net::IpAddr,
    /// What `/proc/meminfo` shall show.
    pub ram_bytes: u64,
    pub services: Vec<Service>,
    /// The disk is a copy of another sandbox's: takes an identity of its own, as by
    /// [`Request::Renew`](super::Request::Renew), before anything else runs.
    #[serde(default)]
    pub renew: bool,
    /// A certificate in PEM that programs inside shall trust, as by [`Request::SetTrust`](super::Request::SetTrust).
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
    /// By CLOCK_BOOTTIME since the agent started. While a machine is kept as a dump, its clocks stand still.
    pub uptime_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineStats {
    /// Of all processes ever run here, reaped ones included.
    pub cpu_us: u64,
    /// Anonymous and shared pages of all processes (PSS where the kernel tells).
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
    /// Processes that a kernel of its own ended for want of RAM; what the host's kernel ended, the host knows.
    #[serde(default)]
    pub oom_kills: u64,
}

/// Whether anything is going on, for telling work from idleness. Of services only their number is told: that they run
/// is no sign of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Execs that are running, services left out.
    pub execs_running: u32,
    /// Of those, the ones whose output a host is reading.
    pub execs_attached: u32,
    pub services_running: u32,
    /// Connections that last: attached readers, file transfers, watches, pipes to ports.
    pub streams: u32,
    /// How long ago an exec last started, ended, wrote or was written to, or a stream began or ended. By
    /// CLOCK_MONOTONIC, which stands still while the machine is kept as a dump.
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
    /// The exec of its present or last run: its output is read like any exec's.
    pub exec: Option<String>,
    pub restarts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    Running,
    /// Ended; starts again after a growing pause (100 ms doubling to 30 s, back to 100 ms after 60 s of running).
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
