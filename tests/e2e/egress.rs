//! Network egress, end to end: denied by default, decided by name, logged, explained, and not interrupted by restarts.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually, run};
use crate::island::{self, CONFIG, Decoy, FORBIDDEN, OUTSIDE, OUTSIDE_V6, Web};

/// Whether a page can be fetched, without a proxy and with a short timeout.
fn fetch(daemon: &Daemon, sandbox: &str, url: &str) -> Result<String, String> {
    let output = daemon.cli(&["exec", sandbox, "--", "curl", "-fsS", "-k", "--max-time", "20", url]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// An exec that ran to its end, as the API describes it.
fn run_in(daemon: &Daemon, sandbox: &str, script: &str) -> Value {
    let body = json!({ "command": script, "wait": true, "timeout_ms": 60_000 });
    daemon.post(&format!("/v1/sandboxes/{sandbox}/execs"), &body).expect(200)
}

fn log(daemon: &Daemon, sandbox: &str) -> Vec<Value> {
    daemon.json(&["egress", "log", sandbox, "-n", "1000", "--json"]).as_array().unwrap().clone()
}

/// The pid of the egress process of a daemon.
fn egress_pid(daemon: &Daemon) -> u32 {
    eventually("an egress process", || daemon.egress_processes().first().copied())
}

#[test]
fn a_denial_is_reported_at_once_and_only_with_the_exec_that_caused_it() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    // Every question is asked several times; equal denials are reported together.
    let ask = "for i in 1 2 3; do getent hosts quiet.example; done";
    // The end of an exec waits for the egress process only if the exec failed.
    for end in ["sleep 1; exit 0", "exit 1"] {
        let output = daemon.cli(&["exec", "alpha", "-c", &format!("{ask}; {end}")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("quiet.example"), "{end}: {said}");
        let logged = log(&daemon, "alpha");
        let times: u64 = logged.iter().map(|entry| entry["times"].as_u64().unwrap()).sum();
        assert!(
            times >= 3 && logged.iter().all(|entry| entry["host"] == "quiet.example"),
            "{end}: {logged:?}"
        );
        let output = daemon.cli(&["exec", "alpha", "--", "false"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("quiet.example"), "after {end}: {said}");
    }
}

#[test]
fn a_sandbox_reaches_nothing_until_a_rule_allows_it() {
    if !island::landed("egress::a_sandbox_reaches_nothing_until_a_rule_allows_it") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 443, folder.path());
    let _http = Web::http(OUTSIDE, 80);
    let daemon = Daemon::start_with(CONFIG);
    let id = daemon.create("alpha");

    // Denied: the name is refused, and the reason is visible in the exec, the log and the events.
    let result = run_in(&daemon, "alpha", "curl -sS https://up.example/ 2>&1");
    assert_ne!(result["exec"]["outcome"]["exit_code"], 0, "{result}");
    let denied = &result["exec"]["egress_denied"][0];
    assert_eq!(denied["host"], "up.example", "{result}");
    assert!(denied["reason"].as_str().unwrap().contains("no rule allows `up.example`"), "{denied}");
    let output = daemon.cli(&["exec", "alpha", "--", "curl", "-sS", "https://up.example/"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("egress denied: `up.example`; `burrow egress allow {id} up.example`")),
        "{said}"
    );
    let explained = daemon.json(&["egress", "explain", "alpha", "https://up.example/x", "--json"]);
    assert_eq!(explained["allowed"], false);
    assert_eq!(explained["hint"], "`burrow egress allow alpha up.example` allows it");

    // Allowed, while the sandbox runs.
    daemon.ok(&["egress", "allow", "alpha", "up.example"]);
    assert_eq!(fetch(&daemon, "alpha", "https://up.example/").unwrap(), "hello from outside\n");
    assert_eq!(fetch(&daemon, "alpha", "http://up.example/").unwrap(), "hello from outside\n");
    fetch(&daemon, "alpha", "https://other.example/").unwrap_err();
    fetch(&daemon, "alpha", "https://www.up.example/").unwrap_err();
    let trial = daemon.json(&["egress", "test", "alpha", "up.example", "--json"]);
    assert_eq!(trial["reached"], true, "{trial}");
    assert!(trial["steps"].as_array().unwrap().len() >= 2, "{trial}");
    let failed = daemon.cli(&["egress", "test", "alpha", "other.example"]);
    assert_eq!(failed.status.code(), Some(1));

    // Denied again.
    daemon.ok(&["egress", "deny", "alpha", "up.example"]);
    fetch(&daemon, "alpha", "https://up.example/").unwrap_err();

    let entries = eventually("the log to be written", || {
        let entries = log(&daemon, "alpha");
        let has = |verdict: &str| entries.iter().any(|entry| entry["verdict"] == verdict);
        (has("denied") && has("closed")).then_some(entries)
    });
    let closed = entries.iter().find(|entry| entry["verdict"] == "closed").unwrap();
    assert_eq!((&closed["host"], &closed["address"]), (&json!("up.example"), &json!(OUTSIDE)), "{closed}");
    assert!(closed["received_bytes"].as_u64().unwrap() > 100, "{closed}");
    let denied = daemon.json(&["egress", "log", "alpha", "--denied", "--json"]);
    assert!(denied.as_array().unwrap().iter().all(|entry| entry["verdict"] == "denied"));
    let shown = daemon.json(&["egress", "show", "alpha", "--json"]);
    assert!(shown["counters"]["denied"].as_u64().unwrap() >= 3, "{shown}");
    let metrics = daemon.get("/metrics").text();
    assert!(metrics.contains("burrow_egress_connections_total{verdict=\"allowed\"}"), "{metrics}");
    daemon.ok(&["rm", "--purge", "alpha"]);
    daemon.get(&format!("/v1/sandboxes/{id}/egress/log")).refused(404, "not_found");
    assert_eq!(daemon.complaints(), [""; 0]);
}

#[test]
fn rules_match_host_port_and_protocol_in_both_address_families() {
    if !island::landed("egress::rules_match_host_port_and_protocol_in_both_address_families") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 8443, folder.path());
    let _six = Web::https(OUTSIDE_V6, 443, folder.path());
    let database = Decoy::open(OUTSIDE, 5432);
    let daemon = Daemon::start_with(&format!(
        "{CONFIG}\negress.sets.ours = [\"*.example:8443\", \"https://six.example\"]"
    ));
    daemon.ok(&["create", "--name", "alpha", "--set", "ours", "--allow", "tcp://db.example:5432"]);
    assert_eq!(fetch(&daemon, "alpha", "https://www.up.example:8443/").unwrap(), "hello from outside\n");
    for flag in ["-4", "-6"] {
        // Whichever address family the program chooses, the host is reached by the family it has.
        let line = format!("curl -sS -k {flag} --max-time 20 https://six.example/");
        assert_eq!(daemon.sh("alpha", &line), "hello from outside", "{flag}");
    }
    let talk = "exec 3<>/dev/tcp/db.example/5432; read -u 3 line; echo $line; echo hi >&3; read -u 3 line; echo $line";
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "timeout", "20", "bash", "-c", talk]), "ready\nhi");
    assert_eq!(database.hits(), 1);
    let talk = "exec 3<>/dev/tcp/db.example/22; echo hi >&3; read -t 20 -u 3 line";
    let other = daemon.cli(&["exec", "alpha", "--", "timeout", "30", "bash", "-c", talk]);
    assert!(!other.status.success(), "another port of the same host is another matter");
    eventually("the other port to be logged as denied", || {
        let denied = |entry: &Value| entry["port"] == 22 && entry["verdict"] == "denied";
        log(&daemon, "alpha").iter().any(denied).then_some(())
    });
    let unknown = daemon.cli(&["update", "alpha", "--set", "theirs"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        said.contains("unknown host set `theirs`; known host sets: ") && said.contains("`ours`"),
        "{said}"
    );
    let inspected = daemon.json(&["inspect", "alpha"]);
    assert_eq!(inspected["network"]["sets"], json!(["ours"]), "{inspected}");
}

#[test]
fn an_open_sandbox_reaches_public_hosts_and_no_internal_addresses() {
    if !island::landed("egress::an_open_sandbox_reaches_public_hosts_and_no_internal_addresses") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 443, folder.path());
    let decoys: Vec<Decoy> = FORBIDDEN.iter().map(|address| Decoy::open(address, 8080)).collect();
    assert!(decoys.iter().all(Decoy::answers), "without a guard they answer");
    let before: Vec<usize> = decoys.iter().map(Decoy::hits).collect();
    let daemon = Daemon::start_with(CONFIG);
    daemon.ok(&["create", "--name", "alpha", "--net", "open"]);
    assert_eq!(fetch(&daemon, "alpha", "https://other.example/").unwrap(), "hello from outside\n");
    for name in ["private", "loopback", "loopback6", "metadata", "carrier"] {
        fetch(&daemon, "alpha", &format!("http://{name}.example:8080/")).unwrap_err();
    }
    for address in FORBIDDEN {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        // Traffic on the sandbox's own loopback is not restricted.
        let _ = fetch(&daemon, "alpha", &format!("http://{host}:8080/"));
    }
    assert_eq!(decoys.iter().map(Decoy::hits).collect::<Vec<_>>(), before, "nobody came");
    let question = json!({ "target": "http://metadata.example:8080" });
    let metadata = daemon.post("/v1/sandboxes/alpha/egress/test", &question).expect(200);
    assert_eq!(metadata["reached"], false, "{metadata}");
    daemon.ok(&["update", "alpha", "--net", "none"]);
    fetch(&daemon, "alpha", "https://other.example/").unwrap_err();
}

/// A connection from inside that sends data on request.
struct TestConnection {
    child: std::process::Child,
}

impl TestConnection {
    fn open(daemon: &Daemon, sandbox: &str) -> Self {
        let program = "import socket,sys\n\
            s=socket.create_connection(('db.example',5432),20)\n\
            s.settimeout(20)\n\
            f=s.makefile('rw')\n\
            print(f.readline().strip(),flush=True)\n\
            for line in sys.stdin:\n\
            \x20 f.write(line); f.flush()\n\
            \x20 back=f.readline()\n\
            \x20 if not back: sys.exit('closed')\n\
            \x20 print(back.strip(),flush=True)\n";
        let mut command = daemon.command(&["exec", "-i", sandbox, "--", "python3", "-c", program]);
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut flow = Self { child };
        assert_eq!(flow.line(), "ready");
        flow
    }

    fn line(&mut self) -> String {
        use std::io::Read as _;
        let mut line = String::new();
        let mut byte = [0];
        let stdout = self.child.stdout.as_mut().unwrap();
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        line
    }

    fn say(&mut self, word: &str) -> String {
        use std::io::Write as _;
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
        self.line()
    }

    /// Waits for the end of the connection, which must be an error.
    fn cut(mut self) {
        drop(self.child.stdin.take());
        assert!(!self.child.wait().unwrap().success(), "the flow was not cut");
    }
}

#[test]
fn flows_outlive_the_daemon_and_end_with_the_rule_that_allowed_them() {
    if !island::landed("egress::flows_outlive_the_daemon_and_end_with_the_rule_that_allowed_them") {
        return;
    }
    let _database = Decoy::open(OUTSIDE, 5432);
    let mut daemon = Daemon::start_with(CONFIG);
    daemon.ok(&["create", "--name", "alpha", "--allow", "tcp://db.example:5432"]);
    let process = egress_pid(&daemon);
    // The same address after a restart, so that the client finds its daemon again.
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    let address = daemon.url().trim_start_matches("http://").to_owned();
    std::fs::write(daemon.config(), config.replace("127.0.0.1:0", &address)).unwrap();
    let mut flow = TestConnection::open(&daemon, "alpha");
    assert_eq!(flow.say("one"), "one");
    daemon.kill();
    daemon.launch();
    assert_eq!(egress_pid(&daemon), process, "the egress process outlives the daemon");
    // The client attaches again by itself; the connection inside is not interrupted.
    assert_eq!(flow.say("two"), "two");
    assert_eq!(daemon.terminate(), Some(0));
    daemon.launch();
    assert_eq!(egress_pid(&daemon), process);
    assert_eq!(flow.say("three"), "three");
    daemon.ok(&["update", "alpha", "--disallow", "tcp://db.example:5432"]);
    eventually("the revoked flow to be cut", || {
        let cut = |entry: &Value| {
            entry["reason"].as_str().is_some_and(|reason| reason.contains("the policy was changed"))
        };
        log(&daemon, "alpha").iter().any(cut).then_some(())
    });
    let _ = flow.child.stdin.as_mut().map(|stdin| std::io::Write::write_all(stdin, b"four\n"));
    flow.cut();
}

#[test]
fn e_n9_without_the_egress_process_nothing_leaves_and_it_comes_back_by_itself() {
    if !island::landed("egress::e_n9_without_the_egress_process_nothing_leaves_and_it_comes_back_by_itself") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 443, folder.path());
    let daemon = Daemon::start_with(CONFIG);
    daemon.ok(&["create", "--name", "alpha", "--allow", "up.example"]);
    fetch(&daemon, "alpha", "https://up.example/").unwrap();
    for _ in 0..3 {
        let process = egress_pid(&daemon);
        run(Command::new("kill").args(["-9", &process.to_string()]));
        let again = eventually("another egress process", || {
            daemon.egress_processes().into_iter().find(|pid| *pid != process)
        });
        assert_ne!(again, process);
        eventually("the network to work again", || fetch(&daemon, "alpha", "https://up.example/").ok());
        fetch(&daemon, "alpha", "https://other.example/").unwrap_err();
    }
    // A policy that is changed while the process is down applies when it is back.
    let process = egress_pid(&daemon);
    run(Command::new("kill").args(["-9", &process.to_string()]));
    daemon.ok(&["update", "alpha", "--disallow", "up.example"]);
    eventually("another egress process", || {
        daemon.egress_processes().into_iter().find(|pid| *pid != process)
    });
    for _ in 0..5 {
        fetch(&daemon, "alpha", "https://up.example/").unwrap_err();
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_egress_process_is_unprivileged_and_ends_when_it_is_not_needed() {
    if !island::landed("egress::the_egress_process_is_unprivileged_and_ends_when_it_is_not_needed") {
        return;
    }
    let mut daemon = Daemon::start_with(CONFIG);
    daemon.create("alpha");
    let process = egress_pid(&daemon);
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
    };
    assert!(field("Uid").split_whitespace().all(|uid| uid == "99077"), "{status}");
    assert!(field("Gid").split_whitespace().all(|gid| gid == "99077"), "{status}");
    assert_eq!(field("Groups"), "", "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("Seccomp"), "2", "under a filter");
    assert_eq!(field("NoNewPrivs"), "1");
    // Not dumpable: its files in /proc belong to root, not to its own user.
    let maps = Command::new("setpriv")
        .args([
            "--reuid",
            "99077",
            "--regid",
            "99077",
            "--clear-groups",
            "cat",
            &format!("/proc/{process}/environ"),
        ])
        .output()
        .unwrap();
    assert!(!maps.status.success(), "its own user cannot look into it");

    assert_eq!(daemon.terminate(), Some(0));
    assert!(alive(process), "a sandbox runs, so it stays");
    daemon.launch();
    daemon.ok(&["rm", "--purge", "-f", "alpha"]);
    assert_eq!(daemon.terminate(), Some(0));
    eventually("the egress process to end with the last sandbox", || (!alive(process)).then_some(()));
    assert_eq!(daemon.egress_processes(), [0; 0]);
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_log_is_followed_as_it_is_written() {
    if !island::landed("egress::the_log_is_followed_as_it_is_written") {
        return;
    }
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("alpha");
    let mut lines = daemon.http("GET", "/v1/sandboxes/alpha/egress/log?follow=true&denied=true").open();
    fetch(&daemon, "alpha", "https://nowhere.example/").unwrap_err();
    let line = lines.line().unwrap();
    assert_eq!((&line["host"], &line["verdict"]), (&json!("nowhere.example"), &json!("denied")), "{line}");
    let key = daemon.ok(&["key", "create", "reader", "--scope", "read"]);
    let reader = daemon.client_with(&key);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let page = burrow_client::PageQuery { cursor: None, limit: Some(1) };
    let page = runtime.block_on(reader.egress_log("alpha", true, &page)).unwrap();
    assert_eq!(page.items[0].host, "nowhere.example");
}

#[test]
fn git_clones_over_https_with_a_rule_for_its_host() {
    if !island::landed("egress::git_clones_over_https_with_a_rule_for_its_host") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let web = Web::https(OUTSIDE, 443, folder.path());
    let repository = web.folder.path().join("thing.git");
    let script = "set -e; cd \"$1\"; git init -q work; cd work; echo content > file; git add file\n\
        git -c user.name=t -c user.email=t@example.com commit -q -m first\n\
        git clone -q --bare . \"$2\"; cd \"$2\"; git update-server-info";
    run(Command::new("sh").args(["-c", script, "sh"]).arg(folder.path()).arg(&repository));
    let daemon = Daemon::start_with(CONFIG);
    daemon.ok(&["create", "--name", "alpha", "--allow", "https://git.example"]);
    daemon.ok(&["cp", folder.path().join("ca.pem").to_str().unwrap(), "alpha:/root/ca.pem"]);
    let clone = "GIT_SSL_CAINFO=/root/ca.pem git clone -q https://git.example/thing.git /root/thing && cat /root/thing/file";
    assert_eq!(daemon.sh("alpha", clone), "content");
    daemon.ok(&["egress", "deny", "alpha", "https://git.example"]);
    let result = run_in(
        &daemon,
        "alpha",
        "GIT_SSL_CAINFO=/root/ca.pem git clone https://git.example/thing.git /root/other",
    );
    assert_ne!(result["exec"]["outcome"]["exit_code"], 0);
    assert_eq!(result["exec"]["egress_denied"][0]["host"], "git.example", "{result}");
}
