//! Every configuration key, once: reading, `config show` and the reference in `docs/` all go by this table.

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
    (
        "sleep",
        "When a sandbox that does no work is put to sleep, unless its creator says otherwise. Times count from its last \
         work and ascend. Open streams, execs that somebody waits for, traffic and CPU time are work. Whatever touches a \
         paused or hibernated sandbox wakes it.",
    ),
    ("gc", "What becomes of what nobody uses any more, when somebody asks for it."),
    ("limits", "Bounds, on one sandbox and on the daemon."),
    ("network", "How sandboxes are connected."),
    (
        "egress",
        "What sandboxes may reach. `docs/network.md` tells how rules are written and what is never reached.",
    ),
    (
        "memory",
        "What agents remember. It lies in `<state_dir>/memory`. `docs/memory.md` tells what there is to remember with.",
    ),
    (
        "secrets",
        "How the values of secrets are encrypted where they are kept. `docs/secrets.md` tells what protects what.",
    ),
    (
        "moving",
        "Snapshots that come from elsewhere as files, and go there. `docs/moving.md` tells how, and whom to trust.",
    ),
    ("gateway", "HTTP to the ports of sandboxes."),
    ("ssh", "Logging in to sandboxes over SSH. `docs/ssh.md` tells how."),
    ("audit", "Who did what. It lies in `<state_dir>/audit`. `docs/audit.md` tells how it is proven."),
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
    key(
        "tls.cert",
        Kind::Path,
        None,
        "PEM file with the certificate and its chain. SIGHUP makes the daemon read it and the key again.",
    ),
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
    key(
        "pool.ready",
        Kind::Count(0, 64),
        Some("8"),
        "Sandboxes-to-be kept ready for each image and limits in use, so that a create takes one instead of making it. \
         Each holds a volume, a network and about 2 MiB of RAM; of microVMs, which hold some 50 MiB, two are kept at most. 0 keeps none.",
    ),
    key("image.mirror", Kind::Text, None, "URL of a Debian or Ubuntu mirror."),
    key("image.suite", Kind::Text, None, "Suite of that mirror, like `bookworm`."),
    key("defaults.image", Kind::Text, Some("debian"), "Name of the image."),
    key(
        "defaults.driver",
        Kind::Text,
        Some("auto"),
        "What isolates it: `container`, `microvm`, or `auto`: `microvm` where KVM runs them, else `container`.",
    ),
    key("defaults.ram", Kind::Size(32 * M, 4 * T), Some("1G"), "RAM."),
    key("defaults.cpu", Kind::Cores, Some("2"), "Processor cores."),
    key("defaults.pids", Kind::Count(16, 1 << 22), Some("1024"), "Processes and threads."),
    key("defaults.disk", Kind::Size(16 * M, 64 * T), Some("10G"), "Disk that a sandbox may write."),
    key(
        "sleep.pause_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("never"),
        "Let its processes stand still; RAM is kept, and waking takes milliseconds.",
    ),
    key(
        "sleep.hibernate_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("never"),
        "Write its processes to disk and give its RAM back; waking takes as long as reading them.",
    ),
    key(
        "sleep.stop_after",
        Kind::SpanOrNever(SLEEP_MS_MIN, SLEEP_MS_MAX),
        Some("never"),
        "End its processes; files are kept, and it boots when it is started.",
    ),
    key(
        "sleep.cpu_threshold_millis",
        Kind::Count(1, 1_000_000),
        Some("20"),
        "CPU time above this, in thousandths of a core, is work.",
    ),
    key(
        "gc.sandboxes",
        Kind::Flag,
        Some("false"),
        "Let `burrow gc --apply` remove stale sandboxes too, with their files. Otherwise it only names them.",
    ),
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
        "limits.image_upload",
        Kind::Size(M, 64 * T),
        Some("32G"),
        "Largest archive of an image, or of files for a build: as it comes, and as it is when unpacked.",
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
        "egress.default",
        Kind::Choice(&["none", "allowlist", "open"]),
        Some("allowlist"),
        "How far a sandbox may reach when its creator does not say: nowhere, to what its rules name, to any public host.",
    ),
    key("egress.rules", Kind::Rules, Some("[]"), "The rules of a sandbox whose creator gives none."),
    key(
        "egress.sets",
        Kind::RuleSets,
        Some("{}"),
        "Named lists of rules for `--allow-set NAME`. A set `apt`, of the hosts this host's own packages come from, is \
         there unless this table has one.",
    ),
    key(
        "egress.allow_ranges",
        Kind::Ranges,
        Some("[]"),
        "Address ranges that are not public and may be dialled all the same, when a rule allows the host. Never loopback, \
         link-local or metadata addresses.",
    ),
    key(
        "egress.roots",
        Kind::Path,
        None,
        "PEM file with certificates of authorities by which hosts are verified, beside this host's own, where their \
         connections are decrypted: a company's.",
    ),
    key(
        "egress.uid",
        Kind::Count(1, 99_999),
        Some("99077"),
        "The user the egress process runs as. Nobody else should be it.",
    ),
    key(
        "egress.connections",
        Kind::Count(1, 65_536),
        Some("1024"),
        "Connections one sandbox may have open at once.",
    ),
    key(
        "egress.connections_per_second",
        Kind::Count(1, 100_000),
        Some("200"),
        "New connections one sandbox may make per second, and as many names it may look up.",
    ),
    key(
        "memory.remember",
        Kind::Choice(&["off", "errors", "all"]),
        Some("errors"),
        "Which execs of a sandbox become memories by themselves when its creator does not say: none, those that fail and \
         what then mended them, or all.",
    ),
    key(
        "memory.embedder",
        Kind::Choice(&["built-in", "minilm", "remote"]),
        Some("built-in"),
        "What turns texts into vectors. Another one than before makes all vectors anew, in the background.",
    ),
    key(
        "memory.minilm_folder",
        Kind::Path,
        None,
        "With `minilm`: the folder that holds `model.onnx` and `tokenizer.json` of all-MiniLM-L6-v2.",
    ),
    key(
        "memory.embed_url",
        Kind::Text,
        None,
        "With `remote`: an OpenAI-compatible endpoint, up to and with `/v1`.",
    ),
    key("memory.embed_model", Kind::Text, None, "With `remote`: its model."),
    key("memory.embed_dimensions", Kind::Count(1, 8192), None, "With `remote`: numbers of a vector of it."),
    key(
        "memory.embed_key_file",
        Kind::Path,
        None,
        "With `remote`: a file that holds its key, if it wants one.",
    ),
    key(
        "memory.summary_url",
        Kind::Text,
        None,
        "An OpenAI-compatible chat endpoint, up to and with `/v1`, that writes summaries of old sessions. Without it \
         their telling sentences are taken.",
    ),
    key("memory.summary_model", Kind::Text, None, "Its model."),
    key("memory.summary_key_file", Kind::Path, None, "A file that holds its key, if it wants one."),
    key(
        "memory.artifacts_folder",
        Kind::Path,
        None,
        "Where the bytes of artifacts are; `<state_dir>/memory/artifacts` when absent.",
    ),
    key("memory.s3_bucket", Kind::Text, None, "Keep the bytes of artifacts in this bucket instead."),
    key("memory.s3_endpoint", Kind::Text, None, "URL of another S3 than Amazon's."),
    key("memory.s3_region", Kind::Text, Some("us-east-1"), "Its region."),
    key("memory.s3_access_key_file", Kind::Path, None, "A file that holds the id of its key."),
    key("memory.s3_secret_key_file", Kind::Path, None, "A file that holds its secret key."),
    key(
        "memory.consolidate_every",
        Kind::SpanOrNever(60_000, 366 * DAY_MS),
        Some("1d"),
        "How often memory is made smaller by itself: duplicates joined, old sessions summed up, what is little used moved to \
         the cold tier. Nothing is lost by it.",
    ),
    key(
        "memory.consolidate_older_than",
        Kind::SpanOrNever(60_000, 3_660 * DAY_MS),
        Some("30d"),
        "What is younger stays as it is.",
    ),
    key(
        "memory.consolidate_entries",
        Kind::Count(100, 1_000_000),
        Some("10000"),
        "Entries of one space looked at in one round.",
    ),
    key(
        "memory.consolidate_seconds",
        Kind::Count(1, 600),
        Some("30"),
        "Time one round may take for one space.",
    ),
    key(
        "memory.body",
        Kind::Size(64 * K, 256 * M),
        Some("16M"),
        "Largest JSON body of a request to memory. Artifacts and imports are streamed and not bounded by this.",
    ),
    key("memory.artifact", Kind::Size(K, 64 * T), Some("5G"), "Largest artifact."),
    key(
        "memory.space",
        Kind::Size(M, 64 * T),
        Some("16G"),
        "Most that one space may take on disk, all its branches and versions included, artifacts not.",
    ),
    key(
        "memory.space_artifacts",
        Kind::Size(K, 64 * T),
        Some("10G"),
        "Most that the artifacts of one space may take, all its branches and versions included, equal content counted once.",
    ),
    key(
        "memory.disk_reserve",
        Kind::Size(0, 64 * T),
        Some("256M"),
        "What memory leaves free of the disks it is on. Writes that would take of it are refused, uploads while they \
         arrive, so that the catalog can go on.",
    ),
    key(
        "memory.open_spaces",
        Kind::Count(4, 4096),
        Some("256"),
        "Spaces kept open at once: each holds a few files. Others are opened when they are asked for.",
    ),
    key(
        "memory.index_ram",
        Kind::Size(16 * M, T),
        Some("1G"),
        "RAM that the indices of open spaces may take before idle ones are closed.",
    ),
    key(
        "secrets.key_file",
        Kind::Path,
        None,
        "The keys that encrypt secrets, one per line: the first encrypts, all of them decrypt. Made at the first start, \
         readable for root alone. Without it `vault.key` beside this file.",
    ),
    key(
        "secrets.sealer_command",
        Kind::Path,
        None,
        "A program that wraps the key of the secrets instead of the file, by a KMS or the like. Called as `PROGRAM wrap KEY` \
         and `PROGRAM unwrap KEY`, with one line in and one line out.",
    ),
    key("secrets.sealer_key", Kind::Text, Some("main"), "Which key that program is told to use."),
    key(
        "moving.import",
        Kind::Size(M, 64 * T),
        Some("256G"),
        "Content of one imported file, as it is when unpacked.",
    ),
    key(
        "moving.at_once",
        Kind::Count(1, 64),
        Some("4"),
        "Exports and imports that go on at once; others wait.",
    ),
    key(
        "moving.trusted_keys",
        Kind::Text,
        None,
        "Keys of other hosts, parted by spaces: processes in files that they signed are taken. `burrow export` prints the \
         key of the host it asks. Files and memory need no such trust.",
    ),
    key(
        "gateway.domain",
        Kind::Text,
        None,
        "Ports are reached as `<port>-<sandbox>.<domain>`, besides `<port>-<sandbox>.localhost`. The wildcard name \
         and its certificate are yours to provide. With a port (`boxes.example.com:8443`) if it is not the scheme's own. \
         Choose a domain that is used for nothing else: what runs in sandboxes can set cookies for all of it.",
    ),
    key(
        "gateway.https",
        Kind::Flag,
        Some("false"),
        "Whoever opens ports speaks HTTPS to a proxy in front of the daemon. With `[tls]` it is always so.",
    ),
    key(
        "gateway.e2b_public_ports",
        Kind::Flag,
        Some("false"),
        "Ports of sandboxes that E2B's clients make are open to whoever knows the sandbox's id, as E2B's own are, unless the \
         client says otherwise. When false, a client must ask for that (`allow_public_traffic`), or show a token or a key.",
    ),
    key(
        "gateway.requests",
        Kind::Count(1, 100_000),
        Some("2048"),
        "Requests to ports at once, WebSockets and other open streams included. They do not count as `limits.requests`.",
    ),
    key("gateway.requests_per_sandbox", Kind::Count(1, 100_000), Some("512"), "Of these, to one sandbox."),
    key(
        "gateway.answer_seconds",
        Kind::Count(1, 86_400),
        Some("300"),
        "How long a server in a sandbox may take to begin its answer, once it has the request.",
    ),
    key(
        "ssh.enabled",
        Kind::Flag,
        Some("true"),
        "Serve SSH. Without a key that somebody added (`burrow ssh-key add`) nobody gets in.",
    ),
    key(
        "ssh.listen",
        Kind::Address,
        Some("127.0.0.1:2222"),
        "Where. Port 0 takes a free one. Unless this key is given, an address that is taken is told in the log and SSH is not \
         served.",
    ),
    key("ssh.connections", Kind::Count(1, 100_000), Some("512"), "Connections at once; one more is closed."),
    key(
        "ssh.half_open",
        Kind::Count(1, 10_000),
        Some("64"),
        "Of these, such as have not logged in yet; one more is closed.",
    ),
    key(
        "ssh.half_open_per_address",
        Kind::Count(1, 10_000),
        Some("32"),
        "Of these, from one address (of IPv6, one /64).",
    ),
    key("ssh.login_seconds", Kind::Count(1, 600), Some("20"), "How long a client may take to log in."),
    key("ssh.tries", Kind::Count(1, 100), Some("10"), "Keys that one connection may try."),
    key(
        "ssh.idle",
        Kind::SpanOrNever(10_000, 366 * DAY_MS),
        Some("12h"),
        "Close a connection over which nothing comes or goes for this long. A shell left open so goes on, and is offered at \
         the next login.",
    ),
    key(
        "audit.keep",
        Kind::SpanOrNever(DAY_MS, 36_500 * DAY_MS),
        Some("90d"),
        "How long the log keeps what its events say. Of older ones their hashes stay, so that the proof does.",
    ),
    key("audit.reads", Kind::Flag, Some("false"), "Record calls that only read, too."),
    key(
        "runtime.guest",
        Kind::Path,
        None,
        "The guest agent; `burrow-guest` beside the daemon's program when absent.",
    ),
    key("runtime.criu", Kind::Path, None, "The `criu` program; searched in PATH when absent."),
    key(
        "runtime.raise_sysctls",
        Kind::Flag,
        Some("true"),
        "Raise bounds of the kernel that all sandboxes share, so that one cannot use them up for the others: \
         `fs.epoll.max_user_watches`, `fs.pipe-user-pages-soft`, `fs.pipe-user-pages-hard`, `fs.aio-max-nr`, \
         `kernel.pty.max`. Never lowered; `burrow doctor` shows them.",
    ),
    key(
        "runtime.qemu",
        Kind::Path,
        None,
        "Directory of the QEMU that microVMs run by, as `scripts/get-qemu.sh` makes one; `qemu` beside the daemon's program \
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
        "What runs microVMs. `auto`: KVM where a trial boot by it succeeds, else emulation, which is ten to thirty times slower.",
    ),
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
