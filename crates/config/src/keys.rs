//! Every configuration key, defined once: parsing, `config show` and the reference in `docs/` use this table.

use burrow_model::{SLEEP_MS_MAX, SLEEP_MS_MIN};

use super::value::Kind;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;
const DAY_MS: u64 = 24 * 3_600_000;

/// One key of the file.
#[derive(Debug)]
pub(super) struct Key {
    /// With its table: `limits.sandboxes`.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// In the notation of the file; `None` if the key has no default.
    pub(super) default: Option<&'static str>,
    pub(super) doc: &'static str,
}

const fn key(path: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { path, kind, default, doc }
}

/// A description of each table, in the order of the reference; keys without a table come first.
pub(super) const TABLES: &[(&str, &str)] = &[
    ("tls", "Serve HTTPS instead of HTTP. Both keys or neither."),
    ("pool", "Where the disks of sandboxes are stored. Changing it does not move existing disks."),
    (
        "image",
        "Where packages of the default image come from: the host's own mirror, unless both keys are set.",
    ),
    ("defaults", "Defaults of new sandboxes."),
    (
        "sleep",
        "When an idle sandbox is put to sleep, by default. Times count from the end of its last work and must be in \
         ascending order. Open streams, execs that a client waits for, traffic and CPU time count as work. Any use of a \
         paused or hibernated sandbox wakes it.",
    ),
    ("gc", "What `burrow gc` may remove."),
    ("limits", "Limits of single sandboxes and of the daemon."),
    ("network", "How sandboxes are connected."),
    (
        "egress",
        "Outgoing connections of sandboxes. See `docs/network.md` for the syntax of rules and for what is never allowed.",
    ),
    ("memory", "What agents remember, stored in `<state_dir>/memory`. See `docs/memory.md`."),
    ("secrets", "How stored secrets are encrypted. See `docs/secrets.md`."),
    ("moving", "Export and import of snapshots. See `docs/moving.md`, also for trusted keys."),
    ("gateway", "HTTP access to the ports of sandboxes."),
    ("ssh", "SSH access to sandboxes. See `docs/ssh.md`."),
    ("audit", "The audit log, stored in `<state_dir>/audit`. See `docs/audit.md`."),
    ("runtime", "The drivers that run sandboxes."),
    ("log", "The log on the daemon's standard error."),
    ("metrics", "The Prometheus metrics at `/metrics`."),
];

pub(super) const KEYS: &[Key] = &[
    key(
        "listen",
        Kind::Address,
        Some("127.0.0.1:7700"),
        "Where the daemon listens. Port 0 selects a free port; the address in use is written to `<run_dir>/address`.",
    ),
    key(
        "insecure_http",
        Kind::Flag,
        Some("false"),
        "Allow listening without TLS on an address that other hosts can reach. API keys and files are then sent unencrypted.",
    ),
    key(
        "state_dir",
        Kind::Path,
        Some("/var/lib/burrow"),
        "Data that must survive a reboot: the catalog and the pool.",
    ),
    key(
        "run_dir",
        Kind::Path,
        Some("/run/burrow"),
        "Data that need not survive a reboot: sockets, the pid file, mounts.",
    ),
    key(
        "admin_key_file",
        Kind::Path,
        Some("/etc/burrow/admin.key"),
        "Where the first start writes the first admin key. The file belongs to the user who called `sudo`, or to root.",
    ),
    key(
        "sdk_dir",
        Kind::Path,
        None,
        "Folder with the packages of the SDKs, which clients install from `/sdk/python` and `/sdk/typescript`; `sdk` beside the \
         daemon's program when absent.",
    ),
    key(
        "tls.cert",
        Kind::Path,
        None,
        "PEM file with the certificate and its chain. SIGHUP reloads it and the key.",
    ),
    key("tls.key", Kind::Path, None, "PEM file with the private key."),
    key(
        "pool.path",
        Kind::Path,
        None,
        "A directory on an existing btrfs file system. Without it the daemon creates its own file system in a \
         sparse file under `state_dir`.",
    ),
    key("pool.size", Kind::Size(G, 1024 * T), Some("64G"), "Maximum size of that sparse file."),
    key(
        "pool.reserve",
        Kind::Size(0, 1024 * T),
        Some("256M"),
        "Free space in the pool that is required to create a sandbox.",
    ),
    key(
        "pool.ready",
        Kind::Count(0, 64),
        Some("8"),
        "Size of the warm pool: sandboxes that are pre-created for each image and limits in use, to make creates faster. \
         Each has a volume, a network and about 2 MiB of RAM; of microVMs, which take some 50 MiB, at most two are kept. 0 turns it off.",
    ),
    key("image.mirror", Kind::Text, None, "URL of a Debian or Ubuntu mirror."),
    key("image.suite", Kind::Text, None, "Suite of that mirror, like `bookworm`."),
    key("defaults.image", Kind::Text, Some("debian"), "Name of the image."),
    key(
        "defaults.driver",
        Kind::Text,
        Some("auto"),
        "The driver: `container`, `microvm`, or `auto`: `microvm` if KVM is available, else `container`.",
    ),
    key("defaults.ram", Kind::Size(32 * M, 4 * T), Some("1G"), "RAM."),
    key("defaults.cpu", Kind::Cores, Some("2"), "Processor cores."),
    key("defaults.pids", Kind::Count(16, 1 << 22), Some("1024"), "Processes and threads."),
    key("defaults.disk", Kind::Size(16 * M, 64 * T), Some("10G"), "Disk quota."),
    key(
        "sleep.pause_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("5m"),
        "Pause: its processes are frozen and RAM is kept; waking takes milliseconds.",
    ),
    key(
        "sleep.hibernate_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("30m"),
        "Hibernate: its processes are dumped to disk and its RAM is freed; waking takes as long as reading the dump.",
    ),
    key(
        "sleep.stop_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("never"),
        "Stop: its processes are ended and its files are kept; it boots when it is used or started.",
    ),
    key(
        "sleep.start_on_use",
        Kind::Flag,
        Some("true"),
        "Any use of a stopped sandbox starts it: an exec, a file access, a request to a port. Otherwise only `burrow start` does.",
    ),
    key(
        "sleep.cpu_threshold_millis",
        Kind::Count(1, 1_000_000),
        Some("20"),
        "CPU use above this, in thousandths of a core, counts as work.",
    ),
    key(
        "gc.sandboxes",
        Kind::Flag,
        Some("false"),
        "`burrow gc --apply` also removes stale sandboxes, with their files. Otherwise it only lists them.",
    ),
    key(
        "limits.sandboxes",
        Kind::Count(1, 100_000),
        Some("1000"),
        "Maximum number of sandboxes on this host, in any state.",
    ),
    key("limits.max_ram", Kind::Size(32 * M, 4 * T), Some("64G"), "Maximum RAM of one sandbox."),
    key("limits.max_cpu", Kind::Cores, Some("64"), "Maximum cores of one sandbox."),
    key("limits.max_pids", Kind::Count(16, 1 << 22), Some("65536"), "Maximum processes of one sandbox."),
    key("limits.max_disk", Kind::Size(16 * M, 64 * T), Some("1T"), "Maximum disk quota of one sandbox."),
    key(
        "limits.requests",
        Kind::Count(8, 100_000),
        Some("2048"),
        "Maximum concurrent requests, including open streams; further ones fail with `busy`.",
    ),
    key(
        "limits.connections",
        Kind::Count(8, 100_000),
        Some("4096"),
        "Maximum open connections; further ones wait until another is closed.",
    ),
    key(
        "limits.image_upload",
        Kind::Size(M, 64 * T),
        Some("32G"),
        "Maximum size of an archive of an image, or of files for a build, both packed and unpacked.",
    ),
    key(
        "limits.json_body",
        Kind::Size(4 * K, 64 * M),
        Some("1M"),
        "Maximum size of a JSON body. Files and archives are streamed and not limited by this.",
    ),
    key(
        "network.slots",
        Kind::Count(0, 256),
        Some("4"),
        "Number of networks that are prepared in advance, to make creates faster.",
    ),
    key(
        "egress.default",
        Kind::Choice(&["none", "allowlist", "open"]),
        Some("allowlist"),
        "The default network mode of a sandbox: no access, hosts that its rules name, or any public host.",
    ),
    key("egress.rules", Kind::Rules, Some("[]"), "The default rules of a sandbox."),
    key(
        "egress.sets",
        Kind::RuleSets,
        Some("{}"),
        "Named lists of rules for `--set NAME`. A list replaces the predefined set of the same name (`burrow egress sets` \
         lists them), for example `pypi` by the hosts of a company's mirror.",
    ),
    key(
        "egress.allow_ranges",
        Kind::Ranges,
        Some("[]"),
        "Address ranges that are not public and may be connected to nevertheless, if a rule allows the host. Never loopback, \
         link-local or metadata addresses.",
    ),
    key(
        "egress.roots",
        Kind::Path,
        None,
        "PEM file with certificates of additional authorities, such as a company's, for verifying hosts whose connections \
         are decrypted. The host's own authorities always apply.",
    ),
    key(
        "egress.uid",
        Kind::Count(1, 99_999),
        Some("99077"),
        "The user that the egress process runs as. No other process should use it.",
    ),
    key(
        "egress.connections",
        Kind::Count(1, 65_536),
        Some("1024"),
        "Maximum open connections of one sandbox.",
    ),
    key(
        "egress.connections_per_second",
        Kind::Count(1, 100_000),
        Some("200"),
        "Maximum new connections of one sandbox per second; the same limit applies to DNS lookups.",
    ),
    key(
        "memory.remember",
        Kind::Choice(&["off", "errors", "all"]),
        Some("errors"),
        "Which execs of a sandbox are remembered automatically, by default: none, those that fail and \
         those that fixed the failure, or all.",
    ),
    key(
        "memory.embedder",
        Kind::Choice(&["built-in", "minilm", "remote"]),
        Some("built-in"),
        "The model that computes vectors of texts. Changing it recomputes all vectors, in the background.",
    ),
    key(
        "memory.minilm_folder",
        Kind::Path,
        None,
        "With `minilm`: the directory with `model.onnx` and `tokenizer.json` of all-MiniLM-L6-v2.",
    ),
    key(
        "memory.embed_url",
        Kind::Text,
        None,
        "With `remote`: the URL of an OpenAI-compatible endpoint, including `/v1`.",
    ),
    key("memory.embed_model", Kind::Text, None, "With `remote`: the name of the model."),
    key(
        "memory.embed_dimensions",
        Kind::Count(1, 8192),
        None,
        "With `remote`: the dimensions of the model's vectors.",
    ),
    key(
        "memory.embed_key_file",
        Kind::Path,
        None,
        "With `remote`: a file with the API key, if it requires one.",
    ),
    key(
        "memory.summary_url",
        Kind::Text,
        None,
        "The URL of an OpenAI-compatible chat endpoint, including `/v1`, that writes summaries of old sessions. Without it \
         summaries consist of their most significant sentences.",
    ),
    key("memory.summary_model", Kind::Text, None, "The name of its model."),
    key("memory.summary_key_file", Kind::Path, None, "A file with its API key, if it requires one."),
    key(
        "memory.artifacts_folder",
        Kind::Path,
        None,
        "The directory for artifacts; `<state_dir>/memory/artifacts` when absent.",
    ),
    key("memory.s3_bucket", Kind::Text, None, "Store artifacts in this S3 bucket instead."),
    key("memory.s3_endpoint", Kind::Text, None, "URL of an S3-compatible service other than Amazon's."),
    key("memory.s3_region", Kind::Text, Some("us-east-1"), "The region of the bucket."),
    key("memory.s3_access_key_file", Kind::Path, None, "A file with the access key id."),
    key("memory.s3_secret_key_file", Kind::Path, None, "A file with the secret access key."),
    key(
        "memory.consolidate_every",
        Kind::SpanOrNever(60_000, 366 * DAY_MS),
        Some("1d"),
        "How often memory is consolidated automatically: duplicates are joined, old sessions are summarised, rarely used entries \
         move to the cold tier. Nothing is lost.",
    ),
    key(
        "memory.consolidate_older_than",
        Kind::SpanOrNever(60_000, 3_660 * DAY_MS),
        Some("30d"),
        "Younger entries are left unchanged.",
    ),
    key(
        "memory.consolidate_entries",
        Kind::Count(100, 1_000_000),
        Some("10000"),
        "Maximum entries of one space that one run examines.",
    ),
    key(
        "memory.consolidate_seconds",
        Kind::Count(1, 600),
        Some("30"),
        "Time limit of one run for one space.",
    ),
    key(
        "memory.body",
        Kind::Size(64 * K, 256 * M),
        Some("16M"),
        "Maximum size of a JSON body of a memory request. Artifacts and imports are streamed and not limited by this.",
    ),
    key("memory.artifact", Kind::Size(K, 64 * T), Some("5G"), "Maximum size of an artifact."),
    key(
        "memory.space",
        Kind::Size(M, 64 * T),
        Some("16G"),
        "Maximum size of one space on disk, including all its branches and versions, without artifacts.",
    ),
    key(
        "memory.space_artifacts",
        Kind::Size(K, 64 * T),
        Some("10G"),
        "Maximum size of the artifacts of one space, including all its branches and versions; equal content counts once.",
    ),
    key(
        "memory.disk_reserve",
        Kind::Size(0, 64 * T),
        Some("256M"),
        "Free space that memory leaves on its disks. Writes that would go below it fail, uploads while they \
         arrive, so that the catalog can still be written.",
    ),
    key(
        "memory.open_spaces",
        Kind::Count(4, 4096),
        Some("256"),
        "Maximum number of open spaces: each has a few open files. Others are opened on demand.",
    ),
    key(
        "memory.index_ram",
        Kind::Size(16 * M, T),
        Some("1G"),
        "Maximum RAM for the indices of open spaces; beyond it, idle spaces are closed.",
    ),
    key(
        "secrets.key_file",
        Kind::Path,
        None,
        "File with the keys that encrypt secrets, one per line: the first encrypts, all of them decrypt. Created at the first start, \
         readable by root only. `vault.key` in the directory of this file when absent.",
    ),
    key(
        "secrets.sealer_command",
        Kind::Path,
        None,
        "A program that encrypts the key of the secrets instead of the file, for example with a KMS. It is called as `PROGRAM wrap KEY` \
         and `PROGRAM unwrap KEY`, with one line of input and one line of output.",
    ),
    key("secrets.sealer_key", Kind::Text, Some("main"), "The `KEY` argument for that program."),
    key("moving.import", Kind::Size(M, 64 * T), Some("256G"), "Maximum unpacked size of one import."),
    key(
        "moving.at_once",
        Kind::Count(1, 64),
        Some("4"),
        "Maximum concurrent exports and imports; others wait.",
    ),
    key(
        "moving.trusted_keys",
        Kind::Text,
        None,
        "Public keys of other hosts, separated by spaces. Processes are imported only from files that one of them signed. \
         `burrow export` prints the key of its host. Files and memory do not require trust.",
    ),
    key(
        "gateway.domain",
        Kind::Text,
        None,
        "Ports are available as `<port>-<sandbox>.<domain>`, in addition to `<port>-<sandbox>.localhost`. You provide the wildcard DNS name \
         and its certificate. Add a port (`boxes.example.com:8443`) if it is not the default port. \
         Use a domain that has no other purpose: servers in sandboxes can set cookies for all of it.",
    ),
    key(
        "gateway.https",
        Kind::Flag,
        Some("false"),
        "Clients use HTTPS, through a proxy in front of the daemon. Always true with `[tls]`.",
    ),
    key(
        "gateway.e2b_public_ports",
        Kind::Flag,
        Some("false"),
        "Ports of sandboxes created by E2B clients are open to everyone who knows the sandbox's id, as with E2B, unless the \
         client requests otherwise. When false, a client must request public ports (`allow_public_traffic`), or send a token or a key.",
    ),
    key(
        "gateway.requests",
        Kind::Count(1, 100_000),
        Some("2048"),
        "Maximum concurrent requests to ports, including WebSockets and other open streams. They do not count as `limits.requests`.",
    ),
    key(
        "gateway.requests_per_sandbox",
        Kind::Count(1, 100_000),
        Some("512"),
        "Of these, requests to one sandbox.",
    ),
    key(
        "gateway.answer_seconds",
        Kind::Count(1, 86_400),
        Some("300"),
        "How long a server in a sandbox may take to begin its response.",
    ),
    key(
        "ssh.enabled",
        Kind::Flag,
        Some("true"),
        "Serve SSH. Logging in requires a key added with `burrow ssh-key add`.",
    ),
    key(
        "ssh.listen",
        Kind::Address,
        Some("127.0.0.1:2222"),
        "Address to listen on. Port 0 selects a free port. If this key is not set and the default address is in use, the \
         daemon logs that and does not serve SSH.",
    ),
    key(
        "ssh.connections",
        Kind::Count(1, 100_000),
        Some("512"),
        "Maximum connections; further ones are closed.",
    ),
    key(
        "ssh.half_open",
        Kind::Count(1, 10_000),
        Some("64"),
        "Of these, connections that have not logged in yet; further ones are closed.",
    ),
    key(
        "ssh.half_open_per_address",
        Kind::Count(1, 10_000),
        Some("32"),
        "Of these, connections from one address (with IPv6, one /64).",
    ),
    key("ssh.login_seconds", Kind::Count(1, 600), Some("20"), "Time limit for logging in."),
    key("ssh.tries", Kind::Count(1, 100), Some("10"), "Maximum number of keys that one connection may try."),
    key(
        "ssh.idle",
        Kind::SpanOrNever(10_000, 366 * DAY_MS),
        Some("12h"),
        "Close a connection after this long without traffic. An open shell continues to run, and is offered at \
         the next login.",
    ),
    key(
        "audit.keep",
        Kind::SpanOrNever(DAY_MS, 36_500 * DAY_MS),
        Some("90d"),
        "How long the bodies of events are kept. The hashes of older events are kept, so that the log can still be verified.",
    ),
    key("audit.reads", Kind::Flag, Some("false"), "Also record calls that only read."),
    key(
        "runtime.guest",
        Kind::Path,
        None,
        "Path of the guest agent; `burrow-guest` beside the daemon's program when absent.",
    ),
    key("runtime.criu", Kind::Path, None, "Path of the `criu` program; searched in PATH when absent."),
    key(
        "runtime.raise_sysctls",
        Kind::Flag,
        Some("true"),
        "Raise kernel limits that all sandboxes share, so that one sandbox cannot exhaust them for the others: \
         `fs.epoll.max_user_watches`, `fs.pipe-user-pages-soft`, `fs.pipe-user-pages-hard`, `fs.aio-max-nr`, \
         `kernel.pty.max`. They are never lowered; `burrow doctor` shows them.",
    ),
    key(
        "runtime.apparmor",
        Kind::FlagOrAuto,
        Some("auto"),
        "Run containers in the AppArmor profile `burrow-sandbox`, which the daemon loads with `apparmor_parser`. `auto`: if the \
         kernel has AppArmor and the profile can be loaded. `true`: the daemon does not start otherwise. `burrow doctor` shows \
         whether it is loaded.",
    ),
    key(
        "runtime.qemu",
        Kind::Path,
        None,
        "Directory of the QEMU that runs microVMs, as created by `scripts/get-qemu.sh`; `qemu` beside the daemon's program \
         when absent.",
    ),
    key(
        "runtime.kernel",
        Kind::Path,
        None,
        "Directory of the kernel that microVMs boot (`vmlinux`, and `modules/` with a file `order`); `vm` beside the \
         daemon's program when absent.",
    ),
    key(
        "runtime.accelerator",
        Kind::Choice(&["auto", "kvm", "emulation"]),
        Some("auto"),
        "The accelerator of microVMs. `auto`: KVM if a trial boot with it succeeds, else emulation, which is ten to thirty times slower.",
    ),
    key("runtime.cgroup", Kind::Text, Some("burrow"), "Name of the control group that holds all sandboxes."),
    key("log.format", Kind::Choice(&["text", "json"]), Some("text"), "Format: for people or for machines."),
    key(
        "log.level",
        Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        Some("info"),
        "Lowest level that is logged. SIGHUP reloads this key.",
    ),
    key(
        "metrics.public",
        Kind::Flag,
        Some("false"),
        "Serve `/metrics` without a key even if other hosts can reach the daemon. On loopback no key is required.",
    ),
];
