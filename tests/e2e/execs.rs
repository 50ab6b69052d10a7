//! Execs: how they are started, fed, ended and reported.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Daemon, as_many, eventually, run};

/// Starts an exec over HTTP and returns it.
#[track_caller]
fn start(daemon: &Daemon, sandbox: &str, body: &Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/execs"), body).expect(201)
}

/// Runs an exec to its end over HTTP.
#[track_caller]
fn run_to_end(daemon: &Daemon, sandbox: &str, mut body: Value) -> Value {
    body["wait"] = true.into();
    daemon.post(&format!("/v1/sandboxes/{sandbox}/execs"), &body).expect(200)
}

#[track_caller]
fn state(daemon: &Daemon, sandbox: &str, exec: &str) -> String {
    let exec = daemon.get(&format!("/v1/sandboxes/{sandbox}/execs/{exec}")).expect(200);
    exec["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_signal_a_missing_program_and_a_missing_sandbox_each_have_their_own_exit_code() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let output = daemon.cli(&["exec", "alpha", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(143));
    let said = daemon.refused(&["exec", "alpha", "--", "no-such-program"], 127);
    assert!(said.contains("no-such-program") && said.contains("alpha"), "{said}");
    let said = daemon.refused(&["exec", "nowhere", "--", "true"], 125);
    assert!(said.contains("nowhere") && said.contains("hint: "), "{said}");
}

#[test]
fn argv_shell_lines_env_workdir_and_user_are_as_requested() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", "$HOME", "a  b", "*"]), "$HOME a  b *");
    assert_eq!(daemon.ok(&["exec", "alpha", "-c", "echo a | tr a b; echo $((1+1))"]), "b\n2");
    let line = "echo $A:$PWD:$(id -un):$HOME";
    let arguments = ["exec", "-e", "A=set here", "-w", "/srv", "-u", "user", "alpha", "--", "sh", "-c", line];
    assert_eq!(daemon.ok(&arguments), "set here:/srv:user:/home/user");
    assert_eq!(daemon.sh("alpha", "echo $PWD:$(id -un)"), "/root:root");
    let ids = run_to_end(&daemon, "alpha", json!({ "command": "id -u; id -g", "user": "1234:2345" }));
    assert_eq!(ids["stdout"], "1234\n2345\n");
    let said = daemon.refused(&["exec", "-u", "nobody-of-that-name", "alpha", "--", "true"], 125);
    assert!(said.contains("nobody-of-that-name"), "{said}");
}

#[test]
fn standard_input_reaches_an_exec_with_i_and_only_then() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    // More than any buffer on the path can store, with every byte value.
    let input: Vec<u8> = (0..3 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let output = daemon.fed(&["exec", "-i", "alpha", "--", "cat"], &input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == input, "{} bytes came back of {}", output.stdout.len(), input.len());
    let output = daemon.fed(&["exec", "alpha", "--", "cat"], b"not for you");
    assert_eq!(output.stdout, b"");
    let result =
        run_to_end(&daemon, "alpha", json!({ "argv": ["tr", "a-z", "A-Z"], "input": "over http\n" }));
    assert_eq!(result["stdout"], "OVER HTTP\n");
}

#[test]
fn an_exec_is_fed_and_signalled_over_plain_http() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let line = "trap 'echo caught; exit 9' USR1; read first; echo got $first; while :; do sleep 0.05; done";
    let exec = start(&daemon, "alpha", &json!({ "command": line, "stdin": "pipe" }));
    let at = format!("/v1/sandboxes/alpha/execs/{}", exec["id"].as_str().unwrap());
    daemon.http("POST", &format!("{at}/stdin")).body("hello\n").send().expect(204);
    let mut output = daemon.http("GET", &format!("{at}/output?follow=true&format=raw")).open();
    let mut got = [0; 10];
    output.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"got hello\n");
    // Only the first process: its `sleep` would also die, and the shell would report that.
    daemon.post(&format!("{at}/signal"), &json!({ "signal": "USR1", "group": false })).expect(204);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "caught\n");
    let exec = daemon.get(&format!("{at}/wait")).expect(200);
    assert_eq!(exec["outcome"]["exit_code"], 9);
    daemon.post(&format!("{at}/signal"), &json!({ "signal": "TERM" })).refused(409, "exec_ended");
    daemon.post(&format!("{at}/signal"), &json!({ "signal": "NOPE" })).refused(400, "invalid_request");
}

#[test]
fn signals_sent_to_the_command_line_reach_the_exec() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let line = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = daemon.command(&["exec", "alpha", "-c", line]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    stdout.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    run(std::process::Command::new("kill").arg("-TERM").arg(child.id().to_string()));
    said.clear();
    stdout.read_to_string(&mut said).unwrap();
    assert_eq!(said, "caught\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn ps_logs_wait_and_kill_accept_the_id_of_a_detached_exec() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec =
        daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", "echo begun; read gone < /dev/null; exit 3"]);
    assert!(exec.starts_with("exe"), "{exec}");
    assert_eq!(daemon.cli(&["wait", &exec]).status.code(), Some(3));
    assert_eq!(daemon.ok(&["logs", "alpha", &exec]), "begun");
    let sleeper = daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    let running = daemon.ok(&["ps", "alpha", "--running", "-q"]);
    assert_eq!(running, sleeper);
    assert_eq!(daemon.cli(&["wait", "--timeout", "50ms", &sleeper]).status.code(), Some(124), "it goes on");
    assert_eq!(state(&daemon, "alpha", &sleeper), "running");
    daemon.ok(&["kill", "-s", "KILL", &sleeper]);
    assert_eq!(daemon.cli(&["wait", &sleeper]).status.code(), Some(137));
    let ended = daemon.json(&["ps", "alpha", "--json"]);
    let ended = ended.as_array().unwrap().iter().find(|row| row["id"] == sleeper.as_str()).unwrap();
    assert_eq!(ended["outcome"]["signal"], "SIGKILL");
    assert_eq!(ended["outcome"]["killed_from_outside"], false, "it was us, and not the kernel");
}

#[test]
fn a_timeout_ends_the_whole_process_group_with_code_124() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    // A child that ignores SIGTERM, and a grandchild: both must end, not only the shell.
    let line = "(trap '' TERM; exec sleep 7771) & sh -c 'sleep 7772; true' & wait";
    let output = daemon.cli(&["exec", "--timeout", "300ms", "alpha", "-c", line]);
    assert_eq!(output.status.code(), Some(124), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("every process of the group to be gone", || {
        (!daemon.holds("alpha", "pgrep -f 'sleep 777[12]'")).then_some(())
    });
    let result = run_to_end(&daemon, "alpha", json!({ "command": "sleep 7773", "timeout_ms": 100 }));
    assert_eq!(result["exec"]["outcome"]["timed_out"], true);
}

#[test]
fn attaching_again_replays_from_any_offset_and_misses_nothing() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let line = "for i in $(seq 100); do echo line $i; done; read more; echo after $more; exit 4";
    let exec = start(&daemon, "alpha", &json!({ "command": line, "stdin": "pipe" }));
    let (id, at) =
        (exec["id"].as_str().unwrap(), format!("/v1/sandboxes/alpha/execs/{}", exec["id"].as_str().unwrap()));
    let expected: String = (1..=100).map(|number| format!("line {number}\n")).collect();
    eventually("a hundred lines", || {
        let end = daemon.get(&at).expect(200)["output_end"].as_u64().unwrap();
        (end == expected.len() as u64).then_some(())
    });
    // One client disconnects in the middle; the next one continues from that offset.
    let half = expected.len() as u64 / 2;
    let mut first = daemon.http("GET", &format!("{at}/output?follow=true&format=raw")).open();
    let mut read = vec![0; usize::try_from(half).unwrap()];
    first.read_exact(&mut read).unwrap();
    drop(first);
    let second = daemon.get(&format!("{at}/output?offset={half}&format=raw"));
    assert_eq!(String::from_utf8(read).unwrap() + &second.text(), expected);
    daemon.http("POST", &format!("{at}/stdin?close=true")).body("input\n").send().expect(204);
    let output = daemon.cli(&["attach", "--no-stdin", id]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{expected}after input\n"));
    assert_eq!(output.status.code(), Some(4), "the exit code comes with the replay");
    let output = daemon.cli(&["attach", "--no-stdin", "--from", &expected.len().to_string(), id]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "after input\n");
}

#[test]
fn an_overflowed_output_ring_returns_its_last_bytes_and_reports_the_lost_ones() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec = start(&daemon, "alpha", &json!({ "command": "seq 100000", "ring_bytes": 65536 }));
    let at = format!("/v1/sandboxes/alpha/execs/{}", exec["id"].as_str().unwrap());
    let ended = daemon.get(&format!("{at}/wait")).expect(200);
    let whole: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(ended["output_end"], whole.len());
    let start = usize::try_from(ended["output_start"].as_u64().unwrap()).unwrap();
    assert!(whole.len() - start <= 65536 && start < whole.len(), "{ended}");
    assert!(ended["output_dropped"].as_u64().unwrap() > 0, "{ended}");
    let mut output = daemon.http("GET", &format!("{at}/output")).open();
    assert_eq!(output.line().unwrap(), json!({ "kind": "gap", "from": 0, "to": start }));
    let mut text = String::new();
    loop {
        let line = output.line().unwrap();
        if line["kind"] != "output" {
            assert_eq!(line["kind"], "exit", "the last line tells how it ended");
            break;
        }
        text.push_str(line["text"].as_str().unwrap());
    }
    assert_eq!(text, whole[start..]);
}

#[test]
fn two_hundred_execs_in_one_sandbox_run_concurrently() {
    const EXECS: usize = 200;
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkfifo /tmp/gate");
    // Each waits for one byte from the gate, so that none can end before all have started.
    let ids: Vec<String> = std::thread::scope(|scope| {
        let starters: Vec<_> = (0..8)
            .map(|starter| {
                let daemon = &daemon;
                scope.spawn(move || {
                    let mine = (starter..EXECS).step_by(8);
                    let begin = |number| {
                        let line = format!("read go <> /tmp/gate; echo {number}");
                        start(daemon, "alpha", &json!({ "command": line }))["id"].as_str().unwrap().to_owned()
                    };
                    mine.map(begin).collect::<Vec<_>>()
                })
            })
            .collect();
        starters.into_iter().flat_map(|starter| starter.join().unwrap()).collect()
    });
    let stats = daemon.get("/v1/sandboxes/alpha/stats").expect(200);
    assert_eq!(stats["execs_running"], EXECS, "all of them run");
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", "not blocked"]), "not blocked");
    daemon.sh("alpha", &format!("exec 3<>/tmp/gate; yes '' | head -n {EXECS} >&3"));
    let mut answers: Vec<usize> = ids
        .iter()
        .map(|id| {
            let at = format!("/v1/sandboxes/alpha/execs/{id}");
            let ended = daemon.get(&format!("{at}/wait")).expect(200);
            assert_eq!(ended["outcome"]["exit_code"], 0, "{ended}");
            daemon.get(&format!("{at}/output?format=raw")).text().trim().parse().unwrap()
        })
        .collect();
    answers.sort_unstable();
    assert_eq!(answers, (0..EXECS).collect::<Vec<_>>());
}

#[test]
fn a_client_that_does_not_read_stalls_neither_the_daemon_nor_other_clients() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec = start(&daemon, "alpha", &json!({ "argv": ["yes"] }));
    let at = format!("/v1/sandboxes/alpha/execs/{}", exec["id"].as_str().unwrap());
    let (before, _) = daemon.ram_kib();
    let deaf: Vec<_> =
        (0..20).map(|_| daemon.http("GET", &format!("{at}/output?follow=true")).open()).collect();
    let end = || daemon.get(&at).expect(200)["output_end"].as_u64().unwrap();
    let write_on = |bytes: u64| {
        let begun = end();
        eventually("the process to go on writing", || (end() > begun + bytes).then_some(()));
    };
    // Twenty streams first fill their buffers, with some 35 MiB together, and accept nothing after that.
    write_on(as_many(256 << 20));
    let (filled, _) = daemon.ram_kib();
    assert!(filled < before + (64 << 10), "from {before} KiB to {filled} KiB");
    for number in 0..20 {
        assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", &number.to_string()]), number.to_string());
    }
    write_on(as_many(1 << 30));
    let (after, _) = daemon.ram_kib();
    assert!(after < filled + (16 << 10), "from {filled} KiB to {after} KiB");
    assert!(deaf.iter().all(|stream| stream.status == 200));
    drop(deaf);
    daemon.ok(&["kill", "-s", "KILL", "alpha"]);
}

#[test]
fn an_exec_reports_its_exit_code_signal_processor_time_ram_and_wall_time() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let program = "import time\nx = b'x' * (64 << 20)\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ntime.sleep(0.1)";
    let result = run_to_end(&daemon, "alpha", json!({ "argv": ["python3", "-c", program] }));
    let outcome = &result["exec"]["outcome"];
    assert_eq!((&outcome["exit_code"], &outcome["signal"]), (&json!(0), &Value::Null));
    let number = |name: &str| outcome[name].as_u64().unwrap();
    assert!(number("cpu_us") >= 200_000, "{outcome}");
    assert!(number("wall_us") >= number("cpu_us") && number("wall_us") >= 300_000, "{outcome}");
    assert!((64 << 20..512 << 20).contains(&number("ram_max_bytes")), "{outcome}");
    let killed = run_to_end(&daemon, "alpha", json!({ "command": "kill -SEGV $$" }));
    assert_eq!(killed["exec"]["outcome"]["signal"], "SIGSEGV");
    assert_eq!(killed["exec"]["outcome"]["exit_code"], Value::Null);
}

#[test]
fn pausing_stops_every_process_and_any_use_wakes_them() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "-c", "while :; do echo tick; sleep 0.01; done"]);
    let output =
        || daemon.get(&format!("/v1/sandboxes/alpha/execs/{exec}")).expect(200)["output_end"].clone();
    eventually("a first tick", || (output() != 0).then_some(()));
    daemon.ok(&["pause", "alpha"]);
    assert_eq!(daemon.inspect("alpha")["state"], "paused");
    let frozen = daemon.inventory().processes;
    assert!(!frozen.is_empty(), "its processes are still there");
    let used = || frozen.iter().map(|pid| processor_time(*pid)).sum::<u64>();
    let before = used();
    daemon.ok(&["ls"]);
    assert_eq!(used(), before, "a paused sandbox uses no processor time, and listing does not wake it");
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", "awake"]), "awake");
    assert_eq!(daemon.inspect("alpha")["state"], "running");
    let woken = output();
    eventually("the ticks to go on", || (output() != woken).then_some(()));
    daemon.ok(&["pause", "alpha"]);
    daemon.ok(&["resume", "alpha"]);
    assert_eq!(daemon.inspect("alpha")["state"], "running");
}

/// In clock ticks, of the process itself.
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[test]
fn an_exec_that_is_repeated_after_a_crash_of_the_daemon_runs_once() {
    let mut daemon = Daemon::start();
    daemon.create("alpha");
    let body = json!({
        "command": "echo ran >> /srv/runs; echo first; until [ -e /srv/go ]; do sleep 0.05; done; echo last",
        "wait": true,
    });
    let call = |daemon: &Daemon, body: &Value| {
        daemon.http("POST", "/v1/sandboxes/alpha/execs").header("idempotency-key", "once").json(body)
    };
    // The first client's connection breaks, and it repeats the request to the next daemon.
    let first = call(&daemon, &body).begin(u64::try_from(body.to_string().len()).unwrap());
    {
        use std::io::Write as _;
        (&first).write_all(body.to_string().as_bytes()).unwrap();
    }
    eventually("it to run", || daemon.holds("alpha", "test -e /srv/runs").then_some(()));
    daemon.kill();
    drop(first);
    daemon.launch();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| call(&daemon, &body).send());
        daemon.sh("alpha", "touch /srv/go");
        let done = again.join().unwrap().expect(200);
        assert_eq!(done["stdout"], "first\nlast\n", "{done}");
        // A second repeat: the answer is stored.
        let kept = eventually("its answer to be kept", || {
            let answer = call(&daemon, &body).send();
            (answer.status != 409).then_some(answer)
        });
        assert_eq!(kept.expect(200), done);
    });
    assert_eq!(daemon.sh("alpha", "cat /srv/runs"), "ran");
    call(&daemon, &json!({"argv": ["true"], "wait": true})).send().refused(422, "idempotency_mismatch");
}
