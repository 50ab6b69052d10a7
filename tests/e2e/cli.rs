//! The command line: what scripts and people rely on, command by command.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Daemon, burrow, eventually};
use crate::terminal::Terminal;

#[test]
fn every_list_is_json_when_asked() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "true");
    daemon.ok(&["service", "add", "alpha", "app", "--", "sleep", "1000"]);
    daemon.ok(&["env", "set", "alpha", "A=b"]);
    for list in [
        &["ls"][..],
        &["ps", "alpha"],
        &["files", "ls", "alpha", "/"],
        &["service", "ls", "alpha"],
        &["key", "ls"],
        &["image", "ls"],
        &["stats"],
        &["stats", "alpha"],
    ] {
        let json = daemon.json(&[list, &["--json"]].concat());
        assert!(json.as_array().is_some_and(|rows| !rows.is_empty()), "{list:?}: {json}");
        let table = daemon.ok(list);
        assert!(table.lines().count() > 1 && !table.contains('\u{1b}'), "{list:?}: {table}");
    }
    assert_eq!(daemon.json(&["env", "ls", "alpha", "--json"]), json!({ "A": "b" }));
    assert!(daemon.json(&["inspect", "alpha"]).is_object());
    assert!(daemon.json(&["config", "show"]).is_object());
    assert!(daemon.json(&["version", "--json"])["server"]["version"].is_string());
    for line in daemon.ok(&["events", "--json"]).lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap()["seq"].is_u64());
    }
}

#[test]
fn names_and_unique_id_prefixes_work_wherever_ids_do() {
    let daemon = Daemon::start();
    let (alpha, beta) = (daemon.create("alpha"), daemon.create("beta"));
    let shared = alpha.chars().zip(beta.chars()).take_while(|(a, b)| a == b).count();
    let beginning = &alpha[..shared + 1];
    for reference in ["alpha", &alpha, beginning] {
        assert_eq!(daemon.inspect(reference)["id"], alpha.as_str(), "{reference}");
        assert_eq!(daemon.ok(&["exec", reference, "--", "hostname"]), "alpha");
        assert!(daemon.cli(&["files", "ls", reference, "/"]).status.success());
        assert!(daemon.cli(&["stats", reference]).status.success());
    }
    let said = daemon.refused(&["inspect", &alpha[..shared]], 1);
    assert!(said.contains("hint: "), "{said}");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "true"]);
    assert_eq!(daemon.cli(&["wait", "alpha", &exec[..12]]).status.code(), Some(0));
    daemon.ok(&["stop", beginning]);
    daemon.ok(&["rm", "--purge", beginning, &beta]);
    assert_eq!(daemon.json(&["ls", "--json"]), json!([]));
}

#[test]
fn an_error_names_the_operation_its_object_and_a_solution() {
    let daemon = Daemon::start();
    for (arguments, code, parts) in [
        (&["inspect", "nowhere"][..], 1, &["could not inspect sandbox `nowhere`", "hint: "][..]),
        (&["stop", "nowhere"], 1, &["could not stop sandbox `nowhere`", "hint: "]),
        (&["rm", "nowhere"], 1, &["could not delete sandbox `nowhere`", "hint: "]),
        (&["cp", "/etc/hosts", "nowhere:/x"], 1, &["could not copy `/etc/hosts` to `nowhere:/x`", "hint: "]),
        (&["cp", "/a", "/b"], 1, &["could not copy", "hint: "]),
        (&["exec", "nowhere", "--", "true"], 125, &["could not run `true` in sandbox `nowhere`", "hint: "]),
        (&["create", "--if-not-exists"], 1, &["needs a name", "hint: "]),
        (&["create", "--image", "none"], 1, &["no image `none`", "hint: "]),
        (&["update", "nowhere"], 1, &["no change was given", "hint: "]),
        (&["key", "show", "nowhere"], 1, &["could not show key `nowhere`"]),
        (&["attach", "exe00000000000000000000"], 125, &["exe00000000000000000000"]),
    ] {
        let said = daemon.refused(arguments, code);
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    daemon.create("alpha");
    let said = daemon.refused(&["inspect", "aplha"], 1);
    assert!(said.contains("did you mean `alpha`?"), "{said}");
    daemon.ok(&["rm", "-f", "nowhere"]);
    // Errors of argument parsing exit with 2, before any request is sent.
    for arguments in [
        &["create", "--ram", "5"][..],
        &["ls", "--state", "asleep"],
        &["nonsense"],
        &["kill", "-s", "NOPE", "x"],
    ] {
        assert_eq!(daemon.cli(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn an_unreachable_daemon_is_reported_with_a_hint() {
    let mut command = Command::new(burrow());
    // Nothing listens on port 1 of this host.
    command.arg("ls").env("BURROW_URL", "http://127.0.0.1:1").env("NO_COLOR", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("http://127.0.0.1:1") && said.contains("hint: ") && said.contains("burrow up"),
        "{said}"
    );
}

#[test]
fn colours_are_for_terminals_whose_user_wants_them() {
    let daemon = Daemon::start();
    let mut plain = Terminal::run(&daemon, &["inspect", "nowhere"], 80, 24);
    plain.exit_code();
    plain.wait_for("hint: ");
    assert!(!plain.screen().contains('\u{1b}'), "{:?}", plain.screen());
    let mut coloured = Terminal::run_with(&daemon, &["inspect", "nowhere"], 80, 24, &[("NO_COLOR", "")]);
    coloured.exit_code();
    coloured.wait_for("\u{1b}[");
    let output = daemon.command(&["inspect", "nowhere"]).env("NO_COLOR", "").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains('\u{1b}'), "a pipe gets none");
}

#[test]
fn output_of_a_sandbox_cannot_control_the_terminal_that_shows_it() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec = daemon.ok(&[
        "exec",
        "-d",
        "alpha",
        "-c",
        "printf '\\033]0;owned\\007\\033[2Jafter'; touch \"$(printf '/srv/\\033[31mred')\"",
    ]);
    daemon.ok(&["wait", &exec]);
    for arguments in [&["logs", "alpha", &exec][..], &["files", "ls", "alpha", "/srv"], &["ps", "alpha"]] {
        let mut terminal = Terminal::run(&daemon, arguments, 200, 24);
        terminal.exit_code();
        eventually("something on the terminal", || (!terminal.screen().is_empty()).then_some(()));
        assert!(
            !terminal.screen().contains('\u{1b}') && !terminal.screen().contains('\u{7}'),
            "{:?}",
            terminal.screen()
        );
    }
    let piped = daemon.cli(&["logs", "alpha", &exec]);
    assert_eq!(piped.stdout, b"\x1b]0;owned\x07\x1b[2Jafter", "a pipe gets the bytes as they are");
}

#[test]
fn a_specification_creates_a_sandbox_and_an_invalid_key_is_reported_with_its_line() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spec.yaml");
    let path = file.to_str().unwrap();
    let spec = "# a comment\nname: web\nlimits: { ram_mib: 128, cpu_millis: 500 }\nenv:\n  A: from file\n  B: kept\n\
                labels: { team: a }\nworkdir: /srv\nuser: user\n";
    std::fs::write(&file, spec).unwrap();
    let made = daemon.json(&["create", "-f", path, "-e", "A=from flag", "--label", "tier=gold", "--json"]);
    assert_eq!(made["limits"]["ram_mib"], 128);
    assert_eq!(made["labels"], json!({ "team": "a", "tier": "gold" }));
    assert_eq!(daemon.sh("web", "echo $A, $B; pwd; id -un"), "from flag, kept\n/srv\nuser");
    std::fs::write(&file, "name: other\nlimits:\n  memory: 5\n").unwrap();
    let said = daemon.refused(&["create", "-f", path], 1);
    assert!(said.contains("`memory`") && said.contains("line 3") && said.contains("spec.yaml"), "{said}");
    std::fs::write(&file, "name: [unfinished\n").unwrap();
    assert!(daemon.refused(&["create", "-f", path], 1).contains("line"));
    let said = daemon.refused(&["create", "-f", "/nonexistent/spec.yaml"], 1);
    assert!(said.contains("/nonexistent/spec.yaml"), "{said}");
    let output = daemon.fed(&["create", "-f", "-"], b"name: piped\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(daemon.json(&["ls", "--json"]).as_array().unwrap().len(), 2);
}

#[test]
fn run_creates_a_sandbox_for_a_command_and_rm_removes_it_afterwards() {
    let daemon = Daemon::start();
    let output = daemon.cli(&["run", "--rm", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(9), &b"out\n"[..]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
    eventually("nothing to be left", || daemon.inventory().sandboxes().is_empty().then_some(()));
    let output = daemon.fed(&["run", "--rm", "-i", "--", "cat"], b"through");
    assert_eq!(output.stdout, b"through");
    // A user who presses Ctrl-C, or whose terminal closes, leaves nothing behind either.
    let mut command = daemon.command(&["run", "--rm", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    let mut client = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    crate::harness::run(Command::new("kill").arg("-INT").arg(client.id().to_string()));
    assert_eq!(client.wait().unwrap().code(), Some(130));
    eventually("nothing to be left", || daemon.inventory().sandboxes().is_empty().then_some(()));
    daemon.refused(&["run", "--rm", "--", "/etc/passwd"], 126);
    let said = daemon.refused(&["run", "--rm", "--", "no-such-program"], 127);
    assert!(said.contains("no-such-program"), "{said}");
    eventually("nothing to be left", || daemon.inventory().sandboxes().is_empty().then_some(()));
    let output = daemon.cli(&["run", "--name", "stays", "--", "echo", "kept"]);
    assert_eq!(output.stdout, b"kept\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stays"), "its name is told");
    assert_eq!(daemon.inspect("stays")["state"], "running");
}

#[test]
fn rm_asks_in_a_terminal_before_it_deletes_a_running_sandbox() {
    let daemon = Daemon::start();
    for (answer, code, left) in [("n\n", 1, 1), ("y\n", 0, 0)] {
        if left == 1 {
            daemon.create("alpha");
        }
        let mut terminal = Terminal::run(&daemon, &["rm", "alpha"], 80, 24);
        terminal.wait_for("[y/N]");
        terminal.type_in(answer);
        assert_eq!(terminal.exit_code(), Some(code), "{}", terminal.screen());
        assert_eq!(daemon.json(&["ls", "--json"]).as_array().unwrap().len(), left);
    }
    daemon.create("beta");
    assert_eq!(Terminal::run(&daemon, &["rm", "-f", "beta"], 80, 24).exit_code(), Some(0));
}

#[test]
fn a_deleted_sandbox_can_be_restored_for_a_day_unless_it_was_purged() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "echo precious > /root/work");
    let output = daemon.cli(&["rm", "alpha"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("is kept for 24h"), "{said}");
    let snapshots = daemon.json(&["snapshot", "ls", "--json"]);
    let kept = snapshots[0].clone();
    let day_ms = 24 * 60 * 60 * 1000;
    assert_eq!(
        kept["expires_ms"].as_u64().unwrap() / 10_000,
        (kept["created_ms"].as_u64().unwrap() + day_ms) / 10_000
    );
    let hint = said.split('`').find(|text| text.starts_with("burrow snapshot restore")).unwrap();
    let mut arguments: Vec<&str> = hint.split(' ').skip(1).collect();
    arguments.extend(["--name", "alpha"]);
    daemon.ok(&arguments);
    assert_eq!(daemon.sh("alpha", "cat /root/work"), "precious");

    daemon.ok(&["snapshot", "rm", kept["id"].as_str().unwrap()]);
    daemon.ok(&["rm", "--purge", "alpha"]);
    daemon.ok(&["create", "beta", "--ephemeral"]);
    daemon.ok(&["rm", "beta"]);
    assert_eq!(daemon.json(&["snapshot", "ls", "--json"]).as_array().unwrap().len(), 0);
}

#[test]
fn create_if_not_exists_returns_the_same_sandbox_and_wakes_it() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["create", "--name", "shared", "--if-not-exists"]);
    for down in ["pause", "stop"] {
        daemon.ok(&[down, "shared"]);
        assert_eq!(daemon.ok(&["create", "--name", "shared", "--if-not-exists"]), id, "after {down}");
        assert_eq!(daemon.inspect("shared")["state"], "running", "after {down}");
    }
    let said = daemon.refused(&["create", "--name", "shared"], 1);
    assert!(said.contains(&id) && said.contains("--if-not-exists"), "{said}");
}

#[test]
fn rename_frees_the_old_name_and_refuses_a_taken_one() {
    let daemon = Daemon::start();
    let id = daemon.create("old");
    daemon.create("taken");
    daemon.ok(&["rename", "old", "new"]);
    assert_eq!(daemon.inspect("new")["id"], id.as_str());
    daemon.refused(&["inspect", "old"], 1);
    let said = daemon.refused(&["rename", "new", "taken"], 1);
    assert!(said.contains("could not rename sandbox `new` to `taken`"), "{said}");
    daemon.refused(&["rename", "new", "Not A Name"], 1);
    assert_eq!(daemon.inspect("new")["id"], id.as_str());
    daemon.create("old");
}

#[test]
fn env_set_ls_and_rm_reach_every_exec_from_then_on() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["env", "set", "alpha", "A=one", "B=with spaces and = signs"]);
    assert_eq!(daemon.sh("alpha", "echo \"$A,$B\""), "one,with spaces and = signs");
    assert_eq!(daemon.ok(&["env", "ls", "alpha"]), "A=one\nB=with spaces and = signs");
    daemon.ok(&["env", "rm", "alpha", "A"]);
    assert_eq!(daemon.sh("alpha", "echo \"${A-unset},$B\""), "unset,with spaces and = signs");
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    assert_eq!(daemon.sh("alpha", "echo \"$B\""), "with spaces and = signs", "it survives a stop");
    assert_eq!(daemon.cli(&["env", "set", "alpha", "1A=x"]).status.code(), Some(2));
}

#[test]
fn update_sets_and_removes_labels() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--label", "tmp=yes"]);
    daemon.ok(&["update", "alpha", "--label", "tier=gold", "--unlabel", "tmp"]);
    assert_eq!(daemon.inspect("alpha")["labels"], json!({ "tier": "gold" }));
    assert_eq!(daemon.ok(&["ls", "-q", "--label", "tmp=yes"]), "");
    assert_eq!(daemon.ok(&["ls", "-q", "--label", "tier=gold"]).lines().count(), 1);
}

#[test]
fn events_are_listed_in_order_and_followed_live() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    daemon.create("beta");
    let mut command = daemon.command(&["events", "-f", "--json", "--sandbox", "alpha"]);
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    daemon.ok(&["pause", "alpha"]);
    daemon.ok(&["resume", "alpha"]);
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    daemon.ok(&["rm", "--purge", "alpha"]);
    let (mut kinds, mut last) = (Vec::new(), 0);
    for line in BufReader::new(follower.stdout.as_mut().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(event["sandbox_id"], id.as_str());
        let seq = event["seq"].as_u64().unwrap();
        assert!(seq > last, "in order");
        last = seq;
        let kind = event["kind"].as_str().unwrap().to_owned();
        let deleted = kind == "sandbox.deleted";
        kinds.push(kind);
        if deleted {
            break;
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    let expected = ["created", "paused", "resumed", "stopped", "started", "deleted"];
    let sandbox: Vec<&str> = kinds.iter().filter_map(|kind| kind.strip_prefix("sandbox.")).collect();
    assert_eq!(sandbox, expected);
    let since = daemon.ok(&["events", "--json", "--since", &last.to_string()]);
    assert!(!since.contains(&format!("\"seq\":{last},")), "only what came after");
}

#[test]
fn stats_report_the_resource_usage_of_a_sandbox() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--ram", "256M", "--disk", "512M"]);
    let exec = daemon.ok(&[
        "exec",
        "-d",
        "alpha",
        "--",
        "python3",
        "-c",
        "x = b'x' * (50 << 20); import time; print('held', flush=True); time.sleep(1000)",
    ]);
    eventually("the memory to be held", || {
        daemon.ok(&["logs", "alpha", &exec]).contains("held").then_some(())
    });
    daemon.sh("alpha", "head -c 20M /dev/urandom > /root/file; sync");
    let number = |name: &str| daemon.json(&["stats", "alpha", "--json"])[0][name].as_u64().unwrap();
    assert!((50 << 20..256 << 20).contains(&number("ram_bytes")), "{}", number("ram_bytes"));
    assert_eq!((number("ram_limit_bytes"), number("disk_limit_bytes")), (256 << 20, 512 << 20));
    assert!(number("processes") >= 2 && number("threads") >= number("processes"));
    assert!(number("cpu_us") > 0 && number("uptime_ms") > 0);
    assert_eq!(number("execs_running"), 1);
    assert!(number("agent_ram_bytes") <= 5 << 20, "the agent is small: {}", number("agent_ram_bytes"));
    eventually("the disk's use to be counted", || (number("disk_used_bytes") >= 20 << 20).then_some(()));
    let table = daemon.ok(&["stats"]);
    assert!(table.contains("256"), "{table}");
}

#[test]
fn logs_show_streams_apart_their_tail_and_follow_to_the_end() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; done; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo last"]);
    eventually("six lines", || {
        let output = daemon.cli(&["logs", "alpha", &exec]);
        (output.stdout == b"out 1\nout 2\nout 3\n" && output.stderr == b"err 1\nerr 2\nerr 3\n").then_some(())
    });
    let tail = daemon.cli(&["logs", "-n", "1", "alpha", &exec]);
    assert_eq!(tail.stdout.len() + tail.stderr.len(), 6);
    let mut command = daemon.command(&["logs", "-f", "alpha", &exec]);
    let follower = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    daemon.sh("alpha", "touch /tmp/go");
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"out 1\nout 2\nout 3\nlast\n");
}

#[test]
fn completion_scripts_are_valid_and_every_command_has_help() {
    let bash = Command::new(burrow()).args(["completion", "bash"]).output().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bash.stdout).unwrap();
    assert!(Command::new("bash").arg("-n").arg(file.path()).status().unwrap().success());
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(burrow()).args(["completion", shell]).output().unwrap();
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("BURROW_COMPLETE"),
            "{shell}"
        );
    }
    for command in [
        "run",
        "create",
        "exec",
        "shell",
        "ls",
        "ps",
        "inspect",
        "logs",
        "attach",
        "kill",
        "wait",
        "stats",
        "events",
        "stop",
        "start",
        "pause",
        "resume",
        "update",
        "env",
        "rm",
        "rename",
        "cp",
        "files",
        "service",
        "key",
        "image",
        "config",
        "backup",
        "doctor",
        "serve",
        "up",
        "down",
        "version",
        "completion",
    ] {
        let output = Command::new(burrow()).args([command, "--help"]).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 100, "{command}");
    }
}

#[test]
fn version_and_config_show_describe_the_running_daemon() {
    let daemon = Daemon::start();
    let version = daemon.json(&["version", "--json"]);
    assert_eq!(version["client"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["server"]["version"], env!("CARGO_PKG_VERSION"));
    let own = Command::new(burrow()).args(["version", "--client"]).output().unwrap();
    assert!(own.status.success() && String::from_utf8_lossy(&own.stdout).contains(env!("CARGO_PKG_VERSION")));
    let config = daemon.json(&["config", "show"]);
    assert_eq!(config["listen"], "127.0.0.1:0");
    assert_eq!(config["pool"]["path"], daemon.pool().to_str().unwrap());
    assert_eq!(config["limits"]["sandboxes"], 1000, "defaults are shown too");
    assert!(!config.to_string().contains(&daemon.key()));
}

#[test]
fn a_key_file_of_the_user_is_found() {
    let daemon = Daemon::start();
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("burrow")).unwrap();
    std::fs::write(home.path().join("burrow/key"), format!("{}\n", daemon.key())).unwrap();
    let mut command = daemon.command(&["ls", "--json"]);
    let output = command.env_remove("BURROW_API_KEY").env("XDG_CONFIG_HOME", home.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]", "{output:?}");
}
