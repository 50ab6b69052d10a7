//! The daemon's configuration: one TOML file. Unknown keys and invalid values are rejected before anything starts.
//!
//! [`keys`] is the table of all keys. The parser ([`file`]), the effective configuration that `config show` prints, and
//! the reference page ([`reference`]) are derived from it. No key contains a secret: keys and certificates are given as
//! paths.

mod audit;
mod file;
mod gateway;
mod keys;
mod memory;
mod moving;
mod ranges;
mod reference;
mod secrets;
mod sleep;
mod span;
mod ssh;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_engine::{IdlePolicy, WarmPoolPolicy};
use burrow_model::{EgressRule, IpRange, Limits, MIB, Name, NetworkMode, SleepPolicy};
use burrow_runtime::Runtime;
use burrow_runtime::container::apparmor;
use burrow_runtime::microvm::Accelerator;

pub use audit::AuditConfig;
pub use file::ConfigError;
pub use gateway::GatewayConfig;
pub use memory::{ArtifactsConfig, ConsolidateConfig, EmbedderConfig, EndpointConfig, MemoryConfig};
pub use moving::MovingConfig;
pub use reference::reference;
pub use secrets::{SealerCommand, SecretsConfig};
pub use sleep::SleepConfig;
pub use ssh::SshConfig;

use file::Settings;

/// The file of a loop-backed pool, below the state directory.
pub const POOL_FILE: &str = "pool.img";

/// The default path of the file.
pub const PATH: &str = "/etc/burrow/config.toml";

/// Environment variable that names another file.
pub const PATH_VARIABLE: &str = "BURROW_CONFIG";

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub state_dir: PathBuf,
    pub run_dir: PathBuf,
    pub admin_key_file: PathBuf,
    /// `sdk` beside the program when absent.
    pub sdk_dir: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub pool: Pool,
    pub pool_reserve_bytes: u64,
    /// Size of the warm pool for each image and limits in use.
    pub pool_ready: usize,
    /// Where packages come from; the host's own mirror when absent.
    pub mirror: Option<MirrorConfig>,
    pub defaults: Defaults,
    pub sleep: SleepConfig,
    /// `gc` may remove sandboxes.
    pub gc_sandboxes: bool,
    pub bounds: Bounds,
    pub network_slots: usize,
    pub egress: EgressConfig,
    pub memory: MemoryConfig,
    pub secrets: SecretsConfig,
    pub moving: MovingConfig,
    pub gateway: GatewayConfig,
    pub ssh: SshConfig,
    pub audit: AuditConfig,
    pub runtime: RuntimeConfig,
    pub log: LogConfig,
    /// `/metrics` needs no key.
    pub metrics_open: bool,
    /// The configuration file, for backups; it may be missing.
    pub path: PathBuf,
    effective: serde_json::Value,
}

#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Where disks are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pool {
    /// A directory on an existing btrfs file system.
    Directory(PathBuf),
    /// A file system in a sparse file, which the daemon creates.
    File { size_bytes: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    pub url: String,
    pub suite: String,
}

/// The driver is chosen at the start, when the capabilities of the host are known.
const AUTO: &str = burrow_api::defaults::DRIVER;

#[derive(Clone, Debug)]
pub struct Defaults {
    pub image: String,
    pub driver: String,
    pub limits: Limits,
    pub sleep: SleepPolicy,
}

#[derive(Clone, Debug)]
pub struct Bounds {
    pub sandboxes: usize,
    /// Maximum limits of one sandbox.
    pub limits: Limits,
    pub requests: usize,
    pub connections: usize,
    pub json_body_bytes: usize,
    pub image_upload_bytes: u64,
}

/// Outgoing connections of sandboxes, and the process that makes them.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// The default for new sandboxes.
    pub mode: NetworkMode,
    pub rules: Vec<EgressRule>,
    pub sets: BTreeMap<Name, Vec<EgressRule>>,
    /// Ranges that are not public and may be connected to nevertheless.
    pub allow_ranges: Vec<IpRange>,
    /// Additional authorities for verifying hosts.
    pub roots: Option<PathBuf>,
    pub uid: u32,
    /// Of one sandbox.
    pub connections: u32,
    pub connections_per_second: u32,
}

#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    pub guest: Option<PathBuf>,
    pub criu: Option<PathBuf>,
    pub qemu: Option<PathBuf>,
    pub kernel: Option<PathBuf>,
    /// `None`: decided by a trial boot.
    pub accelerator: Option<Accelerator>,
    pub cgroup: String,
    /// Raise kernel limits that all sandboxes share.
    pub raise_sysctls: bool,
    /// Whether containers run in the AppArmor profile.
    pub apparmor: apparmor::ProfileUse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    pub level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Config {
    /// The pool's file, if it is loop-backed.
    pub fn pool_file(&self) -> Option<PathBuf> {
        match self.pool {
            Pool::Directory(_) => None,
            Pool::File { .. } => Some(self.state_dir.join(POOL_FILE)),
        }
    }

    /// Reads the file at `path`, else at the path in the environment variable, else at [`PATH`], where a missing file
    /// means defaults. A file that was named explicitly must exist: a typing error must not start a daemon with the
    /// wrong directories.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let named = path.map(Path::to_owned).or_else(|| std::env::var_os(PATH_VARIABLE).map(PathBuf::from));
        match named {
            Some(path) => Self::of(Settings::read(&path)?, path),
            None => Self::of(Settings::read_if_any(Path::new(PATH))?, PathBuf::from(PATH)),
        }
    }

    /// Parses a text as if it was the file at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::of(Settings::parse(path, text)?, path.to_owned())
    }

    /// Every key with the value in effect, nested as in the file.
    pub fn effective(&self) -> &serde_json::Value {
        &self.effective
    }

    /// Replaces `auto` by the driver that this host supports.
    pub fn with_driver(mut self, drivers: &[Arc<dyn Runtime>]) -> Self {
        if self.defaults.driver == AUTO {
            let capable = |runtime: &&Arc<dyn Runtime>| runtime.capabilities().isolates_by_hardware;
            let chosen = drivers.iter().find(capable).or_else(|| drivers.first());
            self.defaults.driver = chosen.map_or(AUTO, |runtime| runtime.name()).to_owned();
        }
        self
    }

    /// How the engine distinguishes work from idleness.
    pub fn idle(&self) -> IdlePolicy {
        IdlePolicy { cpu_millis: self.sleep.cpu_threshold_millis, gc_sandboxes: self.gc_sandboxes }
    }

    /// What the engine creates in advance.
    pub fn warm_pool(&self) -> WarmPoolPolicy {
        WarmPoolPolicy {
            ready: self.pool_ready,
            image: self.defaults.image.clone(),
            driver: self.defaults.driver.clone(),
            limits: self.defaults.limits,
        }
    }

    fn of(settings: Settings, path: PathBuf) -> Result<Self, ConfigError> {
        let listen = settings.address("listen");
        let tls = tls(&settings)?;
        let loopback = listen.ip().is_loopback();
        if !loopback && tls.is_none() && !settings.flag("insecure_http") {
            return Err(settings.refuse(
                "listen",
                "can be reached from other hosts, but `[tls]` is not configured: keys and files would be sent unencrypted; \
                 set `tls.cert` and `tls.key`, or `insecure_http = true` behind a proxy that encrypts",
            ));
        }
        let sleep = SleepConfig::of(&settings)?;
        let defaults = Defaults {
            image: settings.text("defaults.image"),
            driver: settings.text("defaults.driver"),
            limits: limits(&settings, ["defaults.ram", "defaults.cpu", "defaults.pids", "defaults.disk"]),
            sleep: sleep.policy,
        };
        let bounds = bounds(&settings, &defaults)?;
        let cgroup = settings.text("runtime.cgroup");
        if !cgroup.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(settings.refuse("runtime.cgroup", "must consist of letters, digits, `-` and `_`"));
        }
        Ok(Self {
            listen,
            state_dir: settings.path("state_dir"),
            run_dir: settings.path("run_dir"),
            admin_key_file: settings.path("admin_key_file"),
            sdk_dir: settings.path_if_any("sdk_dir"),
            gateway: GatewayConfig::of(&settings, tls.is_some())?,
            ssh: SshConfig::of(&settings),
            audit: AuditConfig::of(&settings),
            tls,
            pool: match settings.path_if_any("pool.path") {
                Some(path) => Pool::Directory(path),
                None => Pool::File { size_bytes: settings.number("pool.size") },
            },
            pool_reserve_bytes: settings.number("pool.reserve"),
            pool_ready: settings.count("pool.ready"),
            mirror: mirror(&settings)?,
            defaults,
            sleep,
            gc_sandboxes: settings.flag("gc.sandboxes"),
            bounds,
            network_slots: settings.count("network.slots"),
            egress: egress(&settings),
            memory: MemoryConfig::of(&settings)?,
            secrets: SecretsConfig::of(&settings, &path),
            moving: MovingConfig::of(&settings)?,
            runtime: RuntimeConfig {
                guest: settings.path_if_any("runtime.guest"),
                criu: settings.path_if_any("runtime.criu"),
                qemu: settings.path_if_any("runtime.qemu"),
                kernel: settings.path_if_any("runtime.kernel"),
                accelerator: match settings.text("runtime.accelerator").as_str() {
                    "kvm" => Some(Accelerator::Kvm),
                    "emulation" => Some(Accelerator::Emulation),
                    _ => None,
                },
                cgroup,
                raise_sysctls: settings.flag("runtime.raise_sysctls"),
                apparmor: apparmor_use(&settings),
            },
            log: LogConfig {
                format: if settings.text("log.format") == "json" { LogFormat::Json } else { LogFormat::Text },
                level: settings.text("log.level"),
            },
            metrics_open: loopback || settings.flag("metrics.public"),
            path,
            effective: effective(&settings),
        })
    }
}

fn apparmor_use(settings: &Settings) -> apparmor::ProfileUse {
    match settings.text("runtime.apparmor").as_str() {
        "true" => apparmor::ProfileUse::Always,
        "false" => apparmor::ProfileUse::Never,
        _ => apparmor::ProfileUse::Auto,
    }
}

fn tls(settings: &Settings) -> Result<Option<TlsFiles>, ConfigError> {
    match (settings.path_if_any("tls.cert"), settings.path_if_any("tls.key")) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
        (Some(_), None) => Err(settings.refuse("tls.cert", "requires `tls.key`")),
        (None, Some(_)) => Err(settings.refuse("tls.key", "requires `tls.cert`")),
        (None, None) => Ok(None),
    }
}

fn mirror(settings: &Settings) -> Result<Option<MirrorConfig>, ConfigError> {
    match (settings.text_if_any("image.mirror"), settings.text_if_any("image.suite")) {
        (Some(url), Some(suite)) => Ok(Some(MirrorConfig { url, suite })),
        (Some(_), None) => Err(settings.refuse("image.mirror", "requires `image.suite`")),
        (None, Some(_)) => Err(settings.refuse("image.suite", "requires `image.mirror`")),
        (None, None) => Ok(None),
    }
}

fn egress(settings: &Settings) -> EgressConfig {
    let small = |key| u32::try_from(settings.number(key)).expect("bounded by the table");
    EgressConfig {
        mode: settings.text("egress.default").parse().expect("the table lists the modes there are"),
        rules: settings.rules("egress.rules"),
        sets: settings.rule_sets("egress.sets"),
        allow_ranges: settings.ranges("egress.allow_ranges"),
        roots: settings.path_if_any("egress.roots"),
        uid: small("egress.uid"),
        connections: small("egress.connections"),
        connections_per_second: small("egress.connections_per_second"),
    }
}

fn bounds(settings: &Settings, defaults: &Defaults) -> Result<Bounds, ConfigError> {
    let max = limits(settings, ["limits.max_ram", "limits.max_cpu", "limits.max_pids", "limits.max_disk"]);
    let pairs = [
        ("defaults.ram", "limits.max_ram", defaults.limits.ram_mib, max.ram_mib),
        ("defaults.cpu", "limits.max_cpu", defaults.limits.cpu_millis, max.cpu_millis),
        ("defaults.pids", "limits.max_pids", defaults.limits.pids, max.pids),
        ("defaults.disk", "limits.max_disk", defaults.limits.disk_mib, max.disk_mib),
    ];
    for (key, bound, given, max) in pairs {
        if given > max {
            return Err(settings.refuse(key, format!("exceeds `{bound}`")));
        }
    }
    Ok(Bounds {
        sandboxes: settings.count("limits.sandboxes"),
        limits: max,
        requests: settings.count("limits.requests"),
        connections: settings.count("limits.connections"),
        json_body_bytes: settings.count("limits.json_body"),
        image_upload_bytes: settings.number("limits.image_upload"),
    })
}

/// RAM, cores, processes and disk of four keys. The table limits them to `u32`.
fn limits(settings: &Settings, [ram, cpu, pids, disk]: [&'static str; 4]) -> Limits {
    let small = |number: u64| u32::try_from(number).expect("bounded by the table");
    Limits {
        ram_mib: small(settings.number(ram) / MIB),
        cpu_millis: small(settings.number(cpu)),
        pids: small(settings.number(pids)),
        disk_mib: small(settings.number(disk) / MIB),
    }
}

fn effective(settings: &Settings) -> serde_json::Value {
    let mut root = serde_json::Map::new();
    for (key, value) in settings.all() {
        match key.path.split_once('.') {
            None => {
                root.insert(key.path.to_owned(), value.to_json());
            }
            Some((table, name)) => {
                let table = root.entry(table).or_insert_with(|| serde_json::Map::new().into());
                let table = table.as_object_mut().expect("no key is named like a table");
                table.insert(name.to_owned(), value.to_json());
            }
        }
    }
    root.into()
}

#[cfg(test)]
mod tests;
