//! Sleep and wake: processes of a sandbox continue afterwards, and any use wakes it.

use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Daemon, all_on_microvms, eventually};
use crate::survivor;
use crate::terminal::Terminal;

/// Of a sandbox, by name.
fn state(daemon: &Daemon, sandbox: &str) -> String {
    let found = daemon.json(&["inspect", sandbox, "--json"]);
    let row = if found.is_array() { found[0].clone() } else { found };
    row["state"].as_str().unwrap().to_owned()
}

/// A way to use a sandbox, and its name.
type SandboxUse<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// How often a sandbox is put to sleep in one test; `make test-all` has time for more.
fn cycles() -> usize {
    if std::env::var_os("BURROW_TEST_ALL").is_some() { 100 } else { 4 }
}

#[test]
fn cycles_of_sleep_and_wake_lose_nothing() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let mut before = survivor::start(&daemon, "alpha");
    survivor::still_locked(&daemon, "alpha", "before it slept");
    for cycle in 1..=cycles() {
        daemon.ok(&["hibernate", "alpha"]);
        assert_eq!(state(&daemon, "alpha"), "hibernated");
        let left = daemon.inventory();
        assert!(left.processes.is_empty() && left.cgroups.is_empty() && left.networks.is_empty(), "{left:?}");
        let after = survivor::ask_within(&daemon, "alpha");
        survivor::goes_on(&before, &after, &format!("after cycle {cycle}"));
        before = after;
    }
    survivor::still_locked(&daemon, "alpha", "after it woke");
    assert_eq!(
        std::fs::read_dir(daemon.pool().join("dumps")).unwrap().count(),
        0,
        "dumps of the awake are gone"
    );
    daemon.ok(&["rm", "--purge", "-f", "alpha"]);
}

#[test]
fn any_use_of_a_sleeping_sandbox_wakes_it_and_inspecting_it_does_not() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["create", "--name", "alpha"]);
    let before = survivor::start(&daemon, "alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", "echo first; read line; echo $line"]);
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo text > /root/file"]);
    let port = format!("http://{}-{id}.localhost/", survivor::PORT);
    let touches: [SandboxUse<'_>; 6] = [
        ("exec", Box::new(|| drop(daemon.ok(&["exec", "alpha", "--", "true"])))),
        ("files", Box::new(|| assert_eq!(daemon.ok(&["files", "cat", "alpha", "/root/file"]), "text"))),
        ("wake", Box::new(|| drop(daemon.ok(&["wake", "alpha"])))),
        ("start", Box::new(|| drop(daemon.ok(&["start", "alpha"])))),
        ("attach", Box::new(|| assert!(daemon.ok(&["logs", &exec]).contains("first")))),
        (
            "a request to its port",
            Box::new(|| {
                let host = port.trim_start_matches("http://").trim_end_matches('/').to_owned();
                let answer = daemon.http("GET", "/").header("host", &host).send();
                assert_eq!(answer.status, 200, "{}", answer.text());
            }),
        ),
    ];
    for (what, touch) in touches {
        daemon.ok(&["hibernate", "alpha"]);
        let looks = ["ls", "inspect alpha", "port ls alpha", "ps alpha", "stats alpha"];
        for look in looks.map(|look| look.split(' ').collect::<Vec<_>>()) {
            daemon.ok(&look);
            assert_eq!(state(&daemon, "alpha"), "hibernated", "{look:?} only looks");
        }
        touch();
        let awake = if what == "attach" { ["running", "hibernated"] } else { ["running", "running"] };
        assert!(awake.contains(&state(&daemon, "alpha").as_str()), "{what}");
    }
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after it was touched in every way");
}

#[test]
fn concurrent_requests_wake_a_sandbox_once() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let before = survivor::start(&daemon, "alpha");
    daemon.ok(&["hibernate", "alpha"]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", "here"]), "here"));
        }
    });
    let events = daemon.ok(&["events", "--json"]);
    let woken = events.lines().filter(|line| line.contains("\"sandbox.woken\"")).count();
    assert_eq!(woken, 1, "{events}");
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after it was woken by many");
}

#[test]
fn a_hibernated_sandbox_survives_the_daemon_and_the_host() {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let before = survivor::start(&daemon, "alpha");
    daemon.ok(&["hibernate", "alpha"]);
    daemon.kill();
    daemon.launch();
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    daemon.reboot();
    daemon.launch();
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    let after = survivor::ask(&daemon, "alpha");
    survivor::goes_on(&before, &after, "after a reboot");
    survivor::still_locked(&daemon, "alpha", "after a reboot");
}

#[test]
fn an_exec_and_its_output_outlive_a_sleep() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let count = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 3";
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", count]);
    for _ in 0..2 {
        daemon.ok(&["hibernate", "alpha"]);
        daemon.ok(&["wake", "alpha"]);
    }
    let output = daemon.cli(&["attach", &exec]);
    let lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    let expected: Vec<String> = (0..300).map(|number| format!("line {number}")).collect();
    assert_eq!(lines, expected);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_client_whose_sandbox_is_put_to_sleep_gets_a_message_and_does_not_wake_it() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let mut client = daemon.command(&["exec", "alpha", "--", "sh", "-c", "echo begun; sleep 1000"]);
    let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line.trim(), "begun");
    daemon.ok(&["hibernate", "alpha"]);
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("sleep") && said.contains("burrow attach"), "{said}");
    assert_eq!(state(&daemon, "alpha"), "hibernated");
}

#[test]
fn processes_that_cannot_be_dumped_are_refused_beforehand_and_continue() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    // More deleted bytes than a dump includes.
    let hold = "exec 3>/root/big; head -c 100M /dev/zero >&3; rm /root/big; echo held; sleep 1000";
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", hold]);
    eventually("it to hold the file", || daemon.ok(&["logs", &exec]).contains("held").then_some(()));
    for attempt in [vec!["hibernate", "alpha"], vec!["snapshot", "create", "alpha"], vec!["fork", "alpha"]] {
        let output = daemon.cli(&attempt);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("sh") && said.contains("deleted"),
            "{attempt:?}: {said}"
        );
    }
    assert_eq!(state(&daemon, "alpha"), "running");
    daemon.ok(&["exec", "alpha", "--", "pgrep", "sleep"]);
    daemon.ok(&["snapshot", "create", "alpha", "--files-only"]);
    // Without it, nothing prevents a sleep.
    daemon.ok(&["kill", &exec]);
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["exec", "alpha", "--", "true"]);
}

/// Connections inside the sandbox with undelivered data: one reader does not read, one writer has also closed its side.
/// Each prints its digest at the end, once `/root/go` exists.
const STUCK_CONNECTIONS: &str = "\
import hashlib, os, socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
def pair(close):
    writer = socket.create_connection(listener.getsockname())
    reader = listener.accept()[0]
    writer.setblocking(False)
    sent = hashlib.sha256()
    try:
        while True:
            data = os.urandom(1 << 14)
            sent.update(data[:writer.send(data)])
    except BlockingIOError:
        pass
    if close:
        writer.shutdown(socket.SHUT_WR)
    return writer, reader, sent
pairs = [pair(close) for close in (False, True)]
print('stuck', flush=True)
while not os.path.exists('/root/go'):
    time.sleep(0.05)
for writer, reader, sent in pairs:
    try:
        writer.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    got = hashlib.sha256()
    while data := reader.recv(1 << 16):
        got.update(data)
    print('whole' if got.digest() == sent.digest() else 'broken', flush=True)
";

#[test]
fn connections_with_unread_data_survive() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", STUCK_CONNECTIONS]);
    eventually("the connections to be stuck", || daemon.ok(&["logs", &exec]).contains("stuck").then_some(()));
    for _ in 0..2 {
        daemon.ok(&["hibernate", "alpha"]);
        daemon.ok(&["wake", "alpha"]);
    }
    daemon.sh("alpha", "touch /root/go");
    let logs = eventually("both to be read", || {
        let logs = daemon.ok(&["logs", &exec]);
        (logs.lines().count() >= 3).then_some(logs)
    });
    assert_eq!(logs.lines().collect::<Vec<_>>(), ["stuck", "whole", "whole"]);
}

/// Uses a resource that a restore could not open again.
const HELD_IN_PROC: [(&str, &str); 2] = [
    (
        "/proc/{pid}/task/{tid}/schedstat",
        "import os, threading, time\nt = threading.Thread(target=time.sleep, args=(1000,)); t.start()\n\
         f = open(f'/proc/{os.getpid()}/task/{t.native_id}/schedstat'); print('held', flush=True)",
    ),
    (
        "/proc/{other}",
        "import os, subprocess, time\nc = subprocess.Popen(['sleep', '1000'])\n\
         f = os.open(f'/proc/{c.pid}', os.O_RDONLY); print('held', flush=True); time.sleep(1000)",
    ),
];

#[test]
fn resources_that_a_restore_could_not_reopen_are_refused_beforehand() {
    if all_on_microvms() {
        return;
    }
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    for (what, program) in HELD_IN_PROC {
        let exec = daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", program]);
        eventually("it to be held", || daemon.ok(&["logs", &exec]).contains("held").then_some(()));
        let output = daemon.cli(&["hibernate", "alpha"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let named = said.contains("python3") && said.contains("/proc/") && said.contains("descriptor");
        assert!(!output.status.success() && named, "{what}: {said}");
        assert_eq!(state(&daemon, "alpha"), "running");
        daemon.ok(&["kill", &exec]);
    }
    daemon.sh("alpha", "pkill sleep; true");
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["exec", "alpha", "--", "true"]);
}

#[test]
fn an_idle_sandbox_falls_asleep_and_a_computing_one_does_not() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "idle", "--sleep-after", "2s", "--hibernate-after", "4s"]);
    daemon.ok(&["create", "--name", "busy", "--sleep-after", "2s", "--hibernate-after", "4s"]);
    // Starting a program takes long on an emulated processor.
    let pause = if all_on_microvms() { 15 } else { 1 };
    let line = format!("n=$$; while :; do sleep {pause}; echo $n; done");
    let exec = daemon.ok(&["exec", "-d", "idle", "--", "sh", "-c", &line]);
    let first =
        eventually("its first word", || daemon.ok(&["logs", &exec]).lines().next().map(str::to_owned));
    // It keeps a processor busy without any input or output.
    daemon.ok(&["exec", "-d", "busy", "--", "sh", "-c", "while :; do :; done"]);
    eventually("the idle one to sleep deeply", || (state(&daemon, "idle") == "hibernated").then_some(()));
    assert_eq!(state(&daemon, "busy"), "running");
    let said = daemon.ok(&["logs", &exec]).lines().count();
    daemon.ok(&["wake", "idle"]);
    eventually("it to go on", || (daemon.ok(&["logs", &exec]).lines().count() > said).then_some(()));
    assert!(daemon.ok(&["logs", &exec]).lines().all(|line| line == first), "it is the shell it was");
    daemon.ok(&["update", "busy", "--sleep-after", "never", "--hibernate-after", "never"]);
}

#[test]
fn a_damaged_dump_is_detected_before_its_processes_run_and_the_files_are_intact() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo kept > /root/file"]);
    daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    daemon.ok(&["hibernate", "alpha"]);
    let dumps = daemon.pool().join("dumps");
    let dump = std::fs::read_dir(&dumps).unwrap().next().unwrap().unwrap().path();
    let name = if all_on_microvms() { "ram" } else { "pages-1.img" };
    let file = std::fs::File::options().read(true).write(true).open(dump.join(name)).unwrap();
    let (middle, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let output = daemon.cli(&["exec", "alpha", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(name) && said.contains("damaged"), "{said}");
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    daemon.ok(&["start", "alpha", "--files-only"]);
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "kept");
    assert!(!daemon.cli(&["exec", "alpha", "--", "pgrep", "sleep"]).status.success());
    assert_eq!(std::fs::read_dir(&dumps).unwrap().count(), 0);
}

/// The commands that a message suggests.
fn offered(said: &str) -> Vec<Vec<&str>> {
    let commands = said.split('`').filter_map(|part| part.strip_prefix("burrow "));
    commands.map(|command| command.split(' ').collect()).collect()
}

#[test]
fn a_failed_wake_names_process_and_descriptor_and_suggests_commands_that_work() {
    if all_on_microvms() {
        return;
    }
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let program = "import time\nf = open('/root/held', 'w+'); f.write('x' * 100); f.flush()\n\
                   print(f.fileno(), flush=True); time.sleep(1000)";
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", program]);
    let number =
        eventually("its descriptor", || daemon.ok(&["logs", &exec]).lines().next().map(str::to_owned));
    let id = daemon.inspect("alpha")["id"].as_str().unwrap().to_owned();
    let held = daemon.pool().join("sandboxes").join(id).join("rootfs/root/held");
    let cut_to = |length| std::fs::File::options().write(true).open(&held).unwrap().set_len(length).unwrap();
    for attempt in 0..2 {
        daemon.ok(&["hibernate", "alpha"]);
        // A process with an open file that has another size cannot be restored.
        cut_to(50);
        let output = daemon.cli(&["wake", "alpha"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let named =
            said.contains(&format!("(`python3`), descriptor {number}:")) && said.contains("root/held");
        assert!(!output.status.success() && named, "{said}");
        assert_eq!(state(&daemon, "alpha"), "hibernated");
        let [again, files_only] = &offered(&said)[..] else { panic!("{said}") };
        if attempt == 0 {
            cut_to(100);
            daemon.ok(again);
            assert!(daemon.ok(&["ps", "alpha", "--running"]).contains(&exec), "its processes are lost");
        } else {
            daemon.ok(files_only);
            assert_eq!(daemon.sh("alpha", "wc -c < /root/held"), "50");
        }
    }
}

#[test]
fn a_dump_that_does_not_fit_is_refused_with_the_sizes() {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    // The same host, with a reserve that leaves no space.
    daemon.terminate();
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    std::fs::write(daemon.config(), config.replace("[pool]\n", "[pool]\nreserve = \"1000T\"\n")).unwrap();
    daemon.launch();
    for attempt in [vec!["hibernate", "alpha"], vec!["snapshot", "create", "alpha"], vec!["fork", "alpha"]] {
        let output = daemon.cli(&attempt);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("TiB of them reserved"), "{attempt:?}: {said}");
        assert_eq!(state(&daemon, "alpha"), "running", "{attempt:?}");
    }
    let answer = daemon.post("/v1/sandboxes/alpha/hibernate", &Value::Null);
    assert_eq!(answer.status, 507, "{}", answer.text());
}

/// Sleeps in two ways, and writes when each of them began and ended by the clock of the sandbox.
const SLEEPER: &str = r#"
import os, subprocess, sys, threading, time
seconds = sys.argv[1]
def timed(name, wait):
    begin = time.monotonic()
    open("/root/began-" + name, "w").close()
    wait()
    with open("/root/new-" + name, "w") as file:
        file.write("%f %f" % (begin, time.monotonic()))
    os.rename("/root/new-" + name, "/root/slept-" + name)
for name, wait in [("program", lambda: subprocess.run(["sleep", seconds], check=True)), ("thread", lambda: time.sleep(int(seconds)))]:
    threading.Thread(target=timed, args=(name, wait)).start()
"#;

/// As documented, on both drivers: time asleep does not count, and a sleep continues with what was left of it. All times
/// but the length of the absence are by the sandbox's own clock.
#[test]
fn a_relative_sleep_across_a_hibernate_lasts_for_what_was_left_of_it() {
    const SECONDS: f64 = 24.0;
    const AWAY: Duration = Duration::from_secs(16);
    let daemon = Daemon::start();
    daemon.create("alpha");
    let clock = || -> f64 {
        let said =
            daemon.ok(&["exec", "alpha", "--", "python3", "-c", "import time; print(time.monotonic())"]);
        said.trim().parse().unwrap()
    };
    daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", SLEEPER, &SECONDS.to_string()]);
    let begun = "test -e /root/began-program && test -e /root/began-thread";
    eventually("both to sleep", || daemon.holds("alpha", begun).then_some(()));
    let (host, inside) = (Instant::now(), clock());
    // More than half of it is over at the hibernate, and what is left is shorter than the absence.
    let before = eventually("half of the sleep", || Some(clock()).filter(|now| now - inside > SECONDS / 2.0));
    daemon.ok(&["hibernate", "alpha"]);
    std::thread::sleep(AWAY);
    let passed = clock() - inside;
    let counted = host.elapsed().as_secs_f64() - passed;
    assert!(counted > AWAY.as_secs_f64() / 2.0, "the clock inside counted the time asleep: {passed} s");
    for name in ["program", "thread"] {
        let path = format!("/root/slept-{name}");
        eventually(name, || daemon.holds("alpha", &format!("test -e {path}")).then_some(()));
        let times = daemon.sh("alpha", &format!("cat {path}"));
        let [begin, end] = Vec::from_iter(times.split(' ').map(|time| time.parse::<f64>().unwrap()))[..]
        else {
            panic!("{times}")
        };
        assert!(end - begin >= SECONDS, "{name}: it ended {:.1} s early", SECONDS - (end - begin));
        // One that starts again at the wake lasts for the whole time after it.
        assert!(end < before + SECONDS, "{name}: it slept for {:.1} s, again from the start", end - begin);
    }
}

/// Suspended with Ctrl-Z in a shell on a terminal, by a signal, and by reading from the terminal in the background.
#[test]
fn stopped_jobs_stay_stopped_over_sleep_snapshot_and_fork_and_continue_on_request() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    // It starts no program: a shell that is stopped while it starts a program cannot be dumped, see
    // docs/what-survives.md.
    let tick = |name: &str| format!("while :; do i=$((i+1)); echo $i > /root/{name}; done");
    daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", &tick("signal")]);
    let mut shell = Terminal::run(&daemon, &["exec", "-it", "alpha", "--", "bash", "--norc"], 80, 24);
    let exec = eventually("the shell among the execs", || {
        let running = daemon.json(&["ps", "alpha", "--running", "--json"]);
        let found = running.as_array().unwrap().iter().find(|exec| exec["argv"][0] == "bash")?;
        Some(found["id"].as_str().unwrap().to_owned())
    });
    shell.type_in("cat > /dev/null & sleep 0.2; echo rea''dy\n");
    shell.wait_for("ready");
    shell.type_in(&format!("sh -c '{}'\n", tick("keys")));
    for name in ["signal", "keys"] {
        eventually(name, || daemon.holds("alpha", &format!("test -s /root/{name}")).then_some(()));
    }
    shell.type_in("\u{1a}");
    daemon.sh("alpha", "pkill -STOP -f '^sh -c while .*/signal'");
    let states = "ps -eo stat=,args= | grep -E '^T[^ ]* +(sh -c while|cat)' | wc -l";
    let stopped = |sandbox: &str| daemon.sh(sandbox, states) == "3";
    eventually("all three to be stopped", || stopped("alpha").then_some(()));
    let read =
        |sandbox: &str| ["signal", "keys"].map(|name| daemon.sh(sandbox, &format!("cat /root/{name}")));
    let before = read("alpha");
    for operation in ["hibernate", "snapshot", "hibernate", "hibernate", "snapshot", "fork", "hibernate"] {
        match operation {
            "hibernate" => drop(daemon.ok(&["hibernate", "alpha"])),
            "snapshot" => drop(daemon.ok(&["snapshot", "create", "alpha"])),
            _ => drop(daemon.ok(&["fork", "alpha", "--name", "child"])),
        }
        eventually("them to be stopped still", || stopped("alpha").then_some(()));
        assert_eq!(read("alpha"), before, "one of them ran, at {operation}");
    }
    eventually("them to be stopped in the child", || stopped("child").then_some(()));
    assert_eq!(read("child"), before);
    for sandbox in ["child", "alpha"] {
        daemon.sh(sandbox, "pkill -CONT -f '^sh -c while .*/signal'");
        let goes_on = || (daemon.sh(sandbox, "cat /root/signal") != before[0]).then_some(());
        eventually("the signalled one to go on", goes_on);
    }
    let mut shell = Terminal::run(&daemon, &["attach", "--no-replay", &exec], 80, 24);
    shell.type_in("fg %2\n");
    let goes_on = || (daemon.sh("alpha", "cat /root/keys") != before[1]).then_some(());
    eventually("the suspended one to go on", goes_on);
}
