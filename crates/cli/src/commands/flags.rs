//! Flags that several commands share.

use std::collections::BTreeMap;

use burrow_api::{
    CreateExec, CreateSandbox, LimitsRequest, NetworkMode, NetworkRequest, SandboxState, StdinMode,
    UpdateNetwork,
};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::life::LifeFlags;
use super::memory::related::RelatedFlags;
use super::memory::sandbox_flags::MemoryFlags;
use super::volume::VolumeFlags;
use crate::commands::prelude::*;
use crate::interact::detach::DetachKeys;
use crate::terminal;

/// Resource limits of a sandbox.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitFlags {
    /// RAM, e.g. 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    ram: Option<u32>,
    /// Processor cores, e.g. 1.5
    #[arg(long, value_name = "CORES", value_parser = parse::cpu_millis)]
    cpu: Option<u32>,
    /// Disk, e.g. 10G
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    disk: Option<u32>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    pids: Option<u32>,
    /// Disk bandwidth in MiB per second, reads and writes together, e.g. 50; microVMs only
    ///
    /// In an update, 0 or none removes the limit.
    #[arg(long, value_name = "MIB", value_parser = parse::rate)]
    disk_rate: Option<u32>,
    /// Network bandwidth in MiB per second, in each direction, e.g. 10
    ///
    /// In an update, 0 or none removes the limit. Traffic of execs and file transfers is not counted.
    #[arg(long, value_name = "MIB", value_parser = parse::rate)]
    net_rate: Option<u32>,
}

impl LimitFlags {
    pub(crate) fn is_empty(&self) -> bool {
        let sizes = [self.ram, self.cpu, self.disk, self.pids];
        let rates = [self.disk_rate, self.net_rate];
        sizes.iter().chain(&rates).all(Option::is_none)
    }

    /// Merges the flags into `base`.
    pub(crate) fn over(&self, base: Option<LimitsRequest>) -> Option<LimitsRequest> {
        if self.is_empty() {
            return base;
        }
        let base = base.unwrap_or_default();
        Some(LimitsRequest {
            ram_mib: self.ram.or(base.ram_mib),
            cpu_millis: self.cpu.or(base.cpu_millis),
            pids: self.pids.or(base.pids),
            disk_mib: self.disk.or(base.disk_mib),
            disk_mib_per_second: self.disk_rate.or(base.disk_mib_per_second),
            network_mib_per_second: self.net_rate.or(base.network_mib_per_second),
        })
    }
}

/// The network policy of a sandbox.
#[derive(Clone, Debug, Args)]
pub(crate) struct NetworkFlags {
    /// Network mode
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new([
        parse::word("none", "No destination"),
        parse::word("allowlist", "Destinations named by its rules and host sets"),
        parse::word(PACKAGES, "The same, with the hosts of all common package managers; like --set packages"),
        parse::word("open", "Any public host"),
    ]).try_map(|word| NetworkChoice::parse(&word)))]
    net: Option<NetworkChoice>,
    /// Egress rule, e.g. '*.example.com:443' or tcp://db.example.com:5432; may be repeated
    #[arg(long = "allow", value_name = "RULE", value_parser = parse::rule)]
    allow: Vec<String>,
    /// Host set to allow, e.g. pypi; `burrow egress sets` lists them; may be repeated
    #[arg(long = "set", alias = "allow-set", value_name = "NAME")]
    sets: Vec<String>,
    /// Address block to deny, e.g. 203.0.113.0/24; may be repeated
    #[arg(long = "deny", value_name = "BLOCK")]
    deny: Vec<String>,
}

/// A value of `--net`.
#[derive(Clone, Copy, Debug)]
enum NetworkChoice {
    Mode(NetworkMode),
    /// The mode `allowlist` and the host set of all package managers.
    Packages,
}

/// The name of that host set.
const PACKAGES: &str = "packages";

impl NetworkChoice {
    fn parse(word: &str) -> Result<Self, serde_json::Error> {
        if word == PACKAGES { Ok(Self::Packages) } else { parse::api_word(word).map(Self::Mode) }
    }

    fn mode(self) -> NetworkMode {
        match self {
            Self::Mode(mode) => mode,
            Self::Packages => NetworkMode::Allowlist,
        }
    }
}

impl NetworkFlags {
    /// The host sets of all flags.
    fn sets(&self) -> Vec<String> {
        let of_mode = matches!(self.net, Some(NetworkChoice::Packages)).then(|| PACKAGES.to_owned());
        of_mode.into_iter().chain(self.sets.iter().cloned()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.net.is_none() && self.allow.is_empty() && self.sets.is_empty() && self.deny.is_empty()
    }

    /// Merges the flags into `base`: a mode replaces, rules and sets are added.
    fn over(self, base: Option<NetworkRequest>) -> Option<NetworkRequest> {
        if self.is_empty() {
            return base;
        }
        let mut request = base.unwrap_or_default();
        let sets = self.sets();
        request.mode = self.net.map(NetworkChoice::mode).or(request.mode);
        if !self.allow.is_empty() {
            request.allow.get_or_insert_default().extend(self.allow);
        }
        if !sets.is_empty() {
            request.sets.get_or_insert_default().extend(sets);
        }
        if !self.deny.is_empty() {
            request.deny.get_or_insert_default().extend(self.deny);
        }
        // Rules about requests come from a policy file only.
        Some(request)
    }

    /// The flags as a change of an existing sandbox.
    pub(crate) fn change(self) -> UpdateNetwork {
        UpdateNetwork {
            mode: self.net.map(NetworkChoice::mode),
            add_sets: self.sets(),
            add: self.allow,
            add_deny: self.deny,
            ..UpdateNetwork::default()
        }
    }
}

/// The specification of a new sandbox.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sandbox options")]
pub(crate) struct SandboxFlags {
    /// Name, accepted wherever an id is
    #[arg(long)]
    name: Option<String>,
    /// Image to start from, by name or id
    #[arg(long)]
    image: Option<String>,
    /// Snapshot to start from instead of an image; --rotate-every restores it
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "driver", "workdir", "user"])]
    pub(crate) from: Option<String>,
    /// Isolation: microvm (with its own kernel) or container; `burrow doctor` shows the default
    #[arg(long = "isolation", alias = "driver", value_name = "DRIVER")]
    driver: Option<String>,
    /// Label, for `ls --label`; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    network: NetworkFlags,
    /// Delete the sandbox this long after creation, e.g. 2h
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    ttl: Option<Duration>,
    /// Environment variable of its execs; a bare KEY takes the value from your environment; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Working directory of its execs
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User of its execs
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    life: LifeFlags,
    #[command(flatten)]
    memory: MemoryFlags,
    #[command(flatten)]
    volumes: VolumeFlags,
}

impl SandboxFlags {
    /// Flags override the values of the file; labels and variables are added to those of the file.
    pub(crate) fn over(self, base: CreateSandbox) -> CreateSandbox {
        let mut request = base;
        request.limits = self.limits.over(request.limits);
        request.network = self.network.over(request.network);
        request.name = self.name.or(request.name);
        request.image = self.image.or(request.image);
        request.driver = self.driver.or(request.driver);
        request.workdir = self.workdir.or(request.workdir);
        request.user = self.user.or(request.user);
        request.ttl_seconds = self.ttl.map(|ttl| ttl.as_secs()).or(request.ttl_seconds);
        request.labels.extend(self.labels);
        request.env.extend(self.env);
        request.memory = self.memory.over(request.memory);
        request.volumes.extend(self.volumes.volumes);
        self.life.over(self.from.as_deref(), &mut request);
        request
    }
}

/// Where a process runs, with which variables.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceFlags {
    /// Environment variable; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Working directory
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    pub(crate) workdir: Option<String>,
    /// User to run as
    #[arg(short = 'u', long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// Whether a use may start a stopped sandbox.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct StartFlags {
    /// Fail if the sandbox is stopped, instead of starting it
    #[arg(long)]
    no_start: bool,
}

impl StartFlags {
    /// Fails if the flag is given and the sandbox is stopped.
    pub(crate) async fn check(self, client: &Client, sandbox: &str) -> Result<(), Stop> {
        if !self.no_start {
            return Ok(());
        }
        let found =
            client.sandbox(sandbox).await.or_fail(|| format!("could not find sandbox `{sandbox}`"))?;
        match found.state {
            SandboxState::Stopped | SandboxState::Failed => {
                let state = found.state.as_str();
                fail(
                    format!("sandbox `{sandbox}` is {state}, and `--no-start` does not start it"),
                    format!("`burrow start {sandbox}` starts it"),
                )
            }
            SandboxState::Creating
            | SandboxState::Starting
            | SandboxState::Running
            | SandboxState::Paused
            | SandboxState::Stopping
            | SandboxState::Deleting
            | SandboxState::Hibernating
            | SandboxState::Hibernated
            | SandboxState::Waking
            | SandboxState::Restoring => Ok(()),
        }
    }
}

/// How a process is run, and how to interact with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProcessFlags {
    /// Forward standard input
    #[arg(short = 'i', long)]
    pub(crate) interactive: bool,
    /// Allocate a terminal
    #[arg(short = 't', long)]
    pub(crate) tty: bool,
    /// Run in the background and print the exec id
    #[arg(short = 'd', long, conflicts_with_all = ["interactive", "tty"])]
    pub(crate) detach: bool,
    /// With --detach: print the exec as JSON
    #[arg(long, requires = "detach")]
    pub(crate) json: bool,
    /// Time limit, e.g. 30s; when it is exceeded, the exit code is 124
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_positive)]
    timeout: Option<Duration>,
    /// Key sequence to detach; empty for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    pub(crate) detach_keys: DetachKeys,
    /// Size of the output buffer for re-attaching, e.g. 8M
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    keep: Option<u32>,
    #[command(flatten)]
    pub(crate) related: RelatedFlags,
}

impl ProcessFlags {
    /// Sets the flags as `-it` does.
    pub(crate) fn make_interactive(&mut self, tty: bool) {
        self.interactive = true;
        self.tty |= tty;
    }

    /// The request, without the command.
    pub(crate) fn request(&self, env: Vec<(String, String)>) -> CreateExec {
        let mut env: BTreeMap<_, _> = env.into_iter().collect();
        if self.tty && !env.contains_key("TERM") {
            let own = std::env::var("TERM").ok().filter(|term| !term.is_empty() && term != "dumb");
            env.insert("TERM".to_owned(), own.unwrap_or_else(|| "xterm-256color".to_owned()));
        }
        CreateExec {
            env,
            stdin: if self.interactive { StdinMode::Pipe } else { StdinMode::Null },
            terminal: self.tty.then(terminal::size),
            timeout_ms: self.timeout.map(quantity::millis),
            ring_bytes: self.keep.map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
            // A client that detaches does not return before the hold expires.
            hold: !self.detach,
            ..CreateExec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file_and_add_to_its_maps() {
        let flags: SandboxFlags = parse::arguments("--name flag --ram 2G --label b=2 -e A=flag");
        let base = CreateSandbox {
            name: Some("file".to_owned()),
            image: Some("debian".to_owned()),
            limits: Some(LimitsRequest { ram_mib: Some(64), pids: Some(99), ..LimitsRequest::default() }),
            labels: [("a".to_owned(), "1".to_owned())].into(),
            env: [("A".to_owned(), "file".to_owned())].into(),
            ..CreateSandbox::default()
        };
        let request = flags.over(base);
        assert_eq!(request.name.as_deref(), Some("flag"));
        assert_eq!(request.image.as_deref(), Some("debian"));
        let limits = request.limits.unwrap();
        assert_eq!((limits.ram_mib, limits.pids, limits.cpu_millis), (Some(2048), Some(99), None));
        assert_eq!(request.labels.len(), 2);
        assert_eq!(request.env["A"], "flag");
        assert_eq!(request.network, None);
    }

    #[test]
    fn a_rate_alone_is_a_limit_and_keeps_the_other_limits_of_the_file() {
        let flags: SandboxFlags = parse::arguments("--net-rate 10");
        let file = LimitsRequest { disk_mib_per_second: Some(5), ..LimitsRequest::default() };
        let base = CreateSandbox { limits: Some(file), ..CreateSandbox::default() };
        let limits = flags.over(base).limits.unwrap();
        assert_eq!((limits.network_mib_per_second, limits.disk_mib_per_second), (Some(10), Some(5)));
    }

    #[test]
    fn rules_are_added_to_those_of_the_file_and_a_mode_overrides() {
        let flags: SandboxFlags = parse::arguments("--net open --allow Example.com --set apt");
        let file = NetworkRequest {
            mode: Some(NetworkMode::None),
            allow: Some(vec!["example.org".to_owned()]),
            ..NetworkRequest::default()
        };
        let base = CreateSandbox { network: Some(file), ..CreateSandbox::default() };
        let network = flags.over(base).network.unwrap();
        assert_eq!(network.mode, Some(NetworkMode::Open));
        assert_eq!(network.allow.unwrap(), ["example.org", "example.com"]);
        assert_eq!(network.sets.unwrap(), ["apt"]);
    }

    #[test]
    fn the_mode_packages_is_an_allowlist_with_a_host_set() {
        let flags: NetworkFlags = parse::arguments("--net packages --set ours");
        let request = flags.clone().over(None).unwrap();
        assert_eq!(request.mode, Some(NetworkMode::Allowlist));
        assert_eq!(request.sets.unwrap(), ["packages", "ours"]);
        let change = flags.change();
        assert_eq!((change.mode, change.add_sets.len()), (Some(NetworkMode::Allowlist), 2));
    }
}
