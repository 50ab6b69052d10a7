//! Every configuration key, once: reading, `config show` and the reference in `docs/` all go by this table.

use super::value::Kind;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

/// One key of the file.
#[derive(Debug)]
pub(super) struct Key {
    /// With its table: `limits.sandboxes`.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// As a person would write it; `None` when the key has no value unless given.
    pub(super) default: Option<&'static str>,
    pub(super) doc: &'static str,
}

const fn key(path: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { path, kind, default, doc }
}

/// What each table is about, in the order of the reference; keys of no table come first.
pub(super) const TABLES: &[(&str, &str)] = &[
    ("tls", "Serve HTTPS instead of HTTP. Both keys or neither."),
    ("pool", "Where sandboxes' disks are. Changing it does not move what is there."),
    (
        "image",
        "Where packages of the default image come from: the host's own mirror, unless both keys are given.",
    ),
    ("defaults", "What a sandbox gets when its creator does not say."),
    ("limits", "Bounds, on one sandbox and on the daemon."),
    ("network", "How sandboxes are connected."),
    ("runtime", "How sandboxes are run."),
    ("log", "What the daemon writes to its standard error."),
    ("metrics", "The Prometheus page at `/metrics`."),
];

pub(super) const KEYS: &[Key] = &[
    key(
        "listen",
        Kind::Address,
        Some("127.0.0.1:7700"),
        "Where the daemon listens. Port 0 takes a free one; the address in use is written to `<run_dir>/address`.",
    ),
    key(
        "insecure_http",
        Kind::Flag,
        Some("false"),
        "Listen without TLS on an address that others can reach. API keys and files then cross the network in clear.",
    ),
    key(
        "state_dir",
        Kind::Path,
        Some("/var/lib/burrow"),
        "What must survive a reboot: the catalog and the pool.",
    ),
    key("run_dir", Kind::Path, Some("/run/burrow"), "What need not: sockets, the pid file, mounts."),
    key(
        "admin_key_file",
        Kind::Path,
        Some("/etc/burrow/admin.key"),
        "Where the first start writes the first admin key, readable for root and for the user who called `sudo`.",
    ),
    key("tls.cert", Kind::Path, None, "PEM file with the certificate and its chain."),
    key("tls.key", Kind::Path, None, "PEM file with the private key."),
    key(
        "pool.path",
        Kind::Path,
        None,
        "A directory on an existing btrfs file system. Without it the daemon makes a file system of its own in a \
         sparse file under `state_dir`.",
    ),
    key("pool.size", Kind::Size(G, 1024 * T), Some("64G"), "How large that sparse file may grow."),
    key(
        "pool.reserve",
        Kind::Size(0, 1024 * T),
        Some("256M"),
        "Room that must be free in the pool for a sandbox to be created.",
    ),
    key("image.mirror", Kind::Text, None, "URL of a Debian or Ubuntu mirror."),
    key("image.suite", Kind::Text, None, "Suite of that mirror, like `bookworm`."),
    key("defaults.image", Kind::Text, Some("debian"), "Name of the image."),
    key("defaults.driver", Kind::Text, Some("container"), "Name of the runtime driver."),
    key("defaults.ram", Kind::Size(32 * M, 4 * T), Some("1G"), "RAM."),
    key("defaults.cpu", Kind::Cores, Some("2"), "Processor cores."),
    key("defaults.pids", Kind::Count(16, 1 << 22), Some("1024"), "Processes and threads."),
    key("defaults.disk", Kind::Size(16 * M, 64 * T), Some("10G"), "Disk that a sandbox may write."),
    key(
        "limits.sandboxes",
        Kind::Count(1, 100_000),
        Some("1000"),
        "Sandboxes on this host, whatever they do.",
    ),
    key("limits.max_ram", Kind::Size(32 * M, 4 * T), Some("64G"), "Most RAM one sandbox may ask for."),
    key("limits.max_cpu", Kind::Cores, Some("64"), "Most cores one sandbox may ask for."),
    key(
        "limits.max_pids",
        Kind::Count(16, 1 << 22),
        Some("65536"),
        "Most processes one sandbox may ask for.",
    ),
    key("limits.max_disk", Kind::Size(16 * M, 64 * T), Some("1T"), "Most disk one sandbox may ask for."),
    key(
        "limits.requests",
        Kind::Count(8, 100_000),
        Some("2048"),
        "Requests at once, open streams included; one more is answered `busy`.",
    ),
    key(
        "limits.connections",
        Kind::Count(8, 100_000),
        Some("4096"),
        "Connections at once; one more waits until another closes.",
    ),
    key(
        "limits.json_body",
        Kind::Size(4 * K, 64 * M),
        Some("1M"),
        "Largest JSON body. Files and archives are streamed and not bounded by this.",
    ),
    key(
        "network.slots",
        Kind::Count(0, 256),
        Some("4"),
        "Networks kept ready, so that creating a sandbox does not wait for one.",
    ),
    key(
        "runtime.guest",
        Kind::Path,
        None,
        "The guest agent; `burrow-guest` beside the daemon's program when absent.",
    ),
    key("runtime.criu", Kind::Path, None, "The `criu` program; searched in PATH when absent."),
    key("runtime.cgroup", Kind::Text, Some("burrow"), "Name of the control group that holds all sandboxes."),
    key("log.format", Kind::Choice(&["text", "json"]), Some("text"), "For people or for machines."),
    key(
        "log.level",
        Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        Some("info"),
        "How much. SIGHUP makes the daemon read this key again.",
    ),
    key(
        "metrics.public",
        Kind::Flag,
        Some("false"),
        "Serve `/metrics` without a key even where others can reach the daemon. On loopback it never needs one.",
    ),
];
