//! Common servers over cycles of sleep and wake and in forks: Redis, PostgreSQL, Chromium, shells.
//!
//! They are installed from the host's package sources (see `mirrors`), and listed as skipped if those are unreachable.
//! `make test` runs the small ones for a few cycles; `BURROW_TEST_ALL` runs all of them for many, `BURROW_TEST_CYCLES`
//! sets the number.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Daemon, eventually};
use crate::mirrors;
use crate::survivor;
use crate::terminal::Terminal;

const FEEDER: &str = include_str!("feeder.py");

/// The feeder's port, inside.
const PORT: u16 = 8001;

/// The page counts by a timer, and its title has the count and the number of the page load.
const PAGE: &str = "<script>const who = Math.random().toString(16).slice(2); let count = 0; \
                    setInterval(() => { document.title = who + ' ' + ++count }, 20)</script>";

/// A server from the distribution that runs in the background of a sandbox.
struct Server {
    /// The feeder's name for it.
    name: &'static str,
    package: &'static str,
    /// A shell line that runs first; may be empty.
    prepare: &'static str,
    /// The command of the server.
    start: &'static str,
    /// Succeeds once the server answers.
    up: &'static str,
}

const REDIS: Server = Server {
    name: "redis",
    package: "redis-server",
    prepare: ":",
    start: "exec redis-server --dir /root --port 6379 --appendonly yes --appendfsync always --save ''",
    up: "redis-cli ping | grep -q PONG",
};

const POSTGRES: Server = Server {
    name: "postgres",
    package: "postgresql",
    prepare: "install -d -o postgres /srv/pg && \
              runuser -u postgres -- /usr/lib/postgresql/*/bin/initdb -D /srv/pg/data -A trust >/dev/null",
    start: "exec runuser -u postgres -- /usr/lib/postgresql/*/bin/postgres -D /srv/pg/data \
            -c listen_addresses=127.0.0.1 -c unix_socket_directories=/tmp",
    up: "psql -h 127.0.0.1 -U postgres -qAtXc 'select 1'",
};

const CHROMIUM: Server = Server {
    name: "chromium",
    package: "chromium",
    prepare: ":",
    // Its own sandbox requires namespaces, and Chromium refuses to run as root with it.
    start: "exec chromium --headless --no-sandbox --disable-gpu --user-data-dir=/root/chromium \
            --remote-debugging-port=9222 file:///root/page.html",
    up: "curl -fsS http://127.0.0.1:9222/json/list | grep -Eq '\"title\": \"[0-9a-f]+ [0-9]+\"'",
};

fn all() -> bool {
    std::env::var_os("BURROW_TEST_ALL").is_some()
}

/// How often a sandbox is put to sleep in one test.
fn cycles() -> u64 {
    let said = std::env::var("BURROW_TEST_CYCLES").ok();
    said.map_or(if all() { 100 } else { 3 }, |cycles| cycles.parse().unwrap())
}

/// A daemon with an image that contains the servers. If the host's mirror is unreachable, the test is listed as skipped.
fn daemon_with(part: &str, servers: &[Server]) -> Option<Daemon> {
    let rules = mirrors::apt_rules();
    if rules.is_empty() || rules.iter().any(|rule| mirrors::addresses_of(rule).is_empty()) {
        mirrors::skipped(part, "the host's package sources cannot be looked up");
        return None;
    }
    let daemon = mirrors::daemon(&rules);
    let packages: Vec<&str> = servers.iter().map(|server| server.package).collect();
    daemon.ok(&["image", "build", "--packages", &packages.join(","), "--name", "servers"]);
    Some(daemon)
}

/// Writes a file into a sandbox.
#[track_caller]
fn write(daemon: &Daemon, sandbox: &str, path: &str, text: &str) {
    let written = daemon.fed(&["files", "write", sandbox, path], text.as_bytes());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
}

/// Starts the servers in the background of a sandbox, then the program that feeds them.
fn start(daemon: &Daemon, sandbox: &str, servers: &[Server]) -> FeederState {
    daemon.ok(&["create", "--name", sandbox, "--image", "servers", "--ram", "2G"]);
    write(daemon, sandbox, "/root/page.html", PAGE);
    write(daemon, sandbox, "/root/feeder.py", FEEDER);
    let mut feeder = format!("exec python3 /root/feeder.py {PORT}");
    for server in servers {
        daemon.sh(sandbox, server.prepare);
        let exec = daemon.ok(&["exec", "-d", sandbox, "-c", server.start]);
        eventually(server.name, || {
            let running = daemon.json(&["ps", sandbox, "--running", "--json"]);
            let runs = running.as_array().unwrap().iter().any(|found| found["id"] == exec.as_str());
            assert!(runs, "{} ended: {}", server.name, daemon.ok(&["logs", &exec]));
            daemon.holds(sandbox, server.up).then_some(())
        });
        feeder = format!("{feeder} {}", server.name);
    }
    daemon.ok(&["exec", "-d", sandbox, "-c", &feeder]);
    let url = format!("http://127.0.0.1:{PORT}/");
    eventually("the feeder to answer", || daemon.holds(sandbox, &format!("curl -fsS {url}")).then_some(()));
    ask(daemon, sandbox)
}

/// The state that the feeder reports of itself and of each server.
#[derive(Debug)]
struct FeederState {
    /// Chosen once, when it started.
    nonce: String,
    /// By name: which process of a server answers, and its progress.
    servers: BTreeMap<String, (String, u64)>,
}

/// Through an exec, which wakes the sandbox.
#[track_caller]
fn ask(daemon: &Daemon, sandbox: &str) -> FeederState {
    let url = format!("http://127.0.0.1:{PORT}/");
    let said = daemon.ok(&["exec", sandbox, "--", "curl", "-sS", "--max-time", "50", &url]);
    let state: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let servers = state["servers"].as_object().unwrap_or_else(|| panic!("{sandbox}: {said}"));
    let judged = servers.iter().map(|(name, server)| {
        assert_eq!(server["broken"], Value::Null, "{name} lost something, {said}");
        assert_eq!(server["count"], server["stored"], "what {name} confirmed is what it holds, {said}");
        (name.clone(), (server["who"].as_str().unwrap().to_owned(), server["count"].as_u64().unwrap()))
    });
    FeederState { nonce: state["nonce"].as_str().unwrap().to_owned(), servers: judged.collect() }
}

/// Waits until every server has made progress, in the same processes.
#[track_caller]
fn goes_on(daemon: &Daemon, sandbox: &str, before: &FeederState, context: &str) -> FeederState {
    eventually(&format!("every server of {sandbox} to go on, {context}, from {before:?}"), || {
        let after = ask(daemon, sandbox);
        assert_eq!(after.nonce, before.nonce, "another feeder answers, {context}");
        let mut further = true;
        for (name, (who, count)) in &before.servers {
            let (now, reached) = &after.servers[name];
            assert_eq!(now, who, "another {name} answers, {context}");
            assert!(reached >= count, "{name} went back, {context}: {before:?} {after:?}");
            further &= reached > count;
        }
        further.then_some(after)
    })
}

/// A shell on a terminal, whose client disconnects and reconnects.
struct Shell {
    program: &'static str,
    exec: String,
    client: Terminal,
    asked: u64,
}

impl Shell {
    fn start(daemon: &Daemon, sandbox: &str, program: &'static str) -> Self {
        let client = Terminal::run(daemon, &["exec", "-it", sandbox, "--", program], 80, 24);
        let exec = eventually("the shell among the execs", || {
            let running = daemon.json(&["ps", sandbox, "--running", "--json"]);
            let found = running.as_array().unwrap().iter().find(|exec| exec["argv"][0] == program)?;
            Some(found["id"].as_str().unwrap().to_owned())
        });
        let mut shell = Self { program, exec, client, asked: 0 };
        shell.client.type_in("secret=kept; count=0; echo rea''dy\n");
        shell.client.wait_for("ready");
        shell
    }

    /// A new client, which finds the variables of the previous one.
    fn attach(&mut self, daemon: &Daemon) {
        self.client = Terminal::run(daemon, &["attach", "--no-replay", &self.exec], 80, 24);
        self.ask();
    }

    fn ask(&mut self) {
        self.asked += 1;
        self.client.type_in("count=$((count+1)); echo $secret by $count on $(tty)\n");
        self.client.wait_for(&format!("kept by {} on /dev/pts/", self.asked));
    }

    /// When its sandbox is put to sleep, the client reports that, and how to attach again.
    fn is_told(&mut self) {
        assert_eq!(self.client.exit_code(), Some(125), "{}: {}", self.program, self.client.screen());
        self.client.wait_for("burrow attach");
        assert!(self.client.is_cooked(), "the terminal is put back as it was");
    }
}

/// Puts a sandbox to sleep repeatedly; returns the progress of the servers.
fn sleep_and_wake(daemon: &Daemon, sandbox: &str, before: FeederState) -> FeederState {
    let mut before = before;
    let mut shells = [Shell::start(daemon, sandbox, "bash"), Shell::start(daemon, sandbox, "sh")];
    for cycle in 1..=cycles() {
        daemon.ok(&["hibernate", sandbox]);
        let left = daemon.inventory();
        assert!(left.processes.is_empty() && left.cgroups.is_empty() && left.networks.is_empty(), "{left:?}");
        for shell in &mut shells {
            shell.is_told();
        }
        // Woken by the terminal in one cycle, by a request in the next.
        if cycle % 2 == 0 {
            shells.iter_mut().for_each(|shell| shell.attach(daemon));
        }
        before = goes_on(daemon, sandbox, &before, &format!("after cycle {cycle}"));
        if cycle % 2 == 1 {
            shells.iter_mut().for_each(|shell| shell.attach(daemon));
        }
    }
    assert_eq!(
        std::fs::read_dir(daemon.pool().join("dumps")).unwrap().count(),
        0,
        "dumps of the awake are gone"
    );
    before
}

/// Printed beside the test results, because the progress is the purpose of these tests.
fn tell(what: &str, told: &FeederState) {
    use std::io::Write as _;
    let counts: Vec<String> =
        told.servers.iter().map(|(name, (_, count))| format!("{name} {count}")).collect();
    let _ = writeln!(std::io::stderr(), "{what}, {} cycles of sleep: {}", cycles(), counts.join(", "));
}

#[test]
fn redis_and_shells_on_terminals_sleep_and_wake_where_the_mirror_is_reachable() {
    let Some(daemon) = daemon_with("Redis", &[REDIS]) else { return };
    let before = start(&daemon, "alpha", &[REDIS]);
    let after = sleep_and_wake(&daemon, "alpha", before);
    // Acknowledged writes are also on the disk: another server reads them from the log of the first.
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    daemon.ok(&["exec", "-d", "alpha", "-c", REDIS.start]);
    eventually("redis", || daemon.holds("alpha", REDIS.up).then_some(()));
    let kept: u64 = daemon.sh("alpha", "redis-cli --raw get n").parse().unwrap();
    assert!(kept >= after.servers["redis"].1, "{kept} {after:?}");
    tell("redis", &after);
}

/// Together with the program of the other tests: SQLite in WAL mode, an HTTP server in Python, one more shell.
#[test]
fn databases_a_browser_and_shells_sleep_and_wake_where_the_mirror_is_reachable() {
    if !all() {
        return mirrors::skipped("PostgreSQL and Chromium asleep", "large, and left to `make test-all`");
    }
    let Some(daemon) = daemon_with("PostgreSQL and Chromium", &[REDIS, POSTGRES, CHROMIUM]) else { return };
    let before = start(&daemon, "alpha", &[REDIS, POSTGRES, CHROMIUM]);
    let beside = survivor::start(&daemon, "alpha");
    let after = sleep_and_wake(&daemon, "alpha", before);
    survivor::goes_on(&beside, &survivor::ask_within(&daemon, "alpha"), "beside the servers");
    survivor::still_locked(&daemon, "alpha", "beside the servers");
    tell("redis, postgresql, chromium, sqlite, shells", &after);
}

#[test]
fn a_fork_of_running_databases_answers_and_its_parent_goes_on_where_the_mirror_is_reachable() {
    let servers = if all() { vec![REDIS, POSTGRES] } else { vec![REDIS] };
    let Some(daemon) = daemon_with("a fork of Redis and PostgreSQL", &servers) else { return };
    let before = start(&daemon, "alpha", &servers);
    daemon.ok(&["fork", "alpha", "--count", "2", "--name", "child"]);
    let mut told = BTreeMap::new();
    for sandbox in ["alpha", "child-1", "child-2"] {
        told.insert(sandbox, goes_on(&daemon, sandbox, &before, "after the fork"));
    }
    // Independent from here on: a write to one is not visible in any other.
    daemon.sh("child-1", "redis-cli set mark one");
    assert_eq!(daemon.sh("alpha", "redis-cli --raw get mark"), "");
    assert_eq!(daemon.sh("child-2", "redis-cli --raw get mark"), "");
    // A child can sleep like its parent.
    daemon.ok(&["hibernate", "child-1"]);
    for (sandbox, before) in &told {
        goes_on(&daemon, sandbox, before, "after a child slept");
    }
    assert_eq!(daemon.sh("child-1", "redis-cli --raw get mark"), "one");
    daemon.ok(&["rm", "--purge", "-f", "alpha"]);
    goes_on(&daemon, "child-2", &told["child-2"], "after its parent was deleted");
}
