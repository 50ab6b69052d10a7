//! Code contexts that keep their variables, with real kernels in the image that is made for them.

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually};
use crate::terminal::Terminal;

fn start() -> Daemon {
    let mut daemon = Daemon::prepare_for_code("");
    daemon.launch();
    daemon
}

/// A sandbox that can run code.
fn lab(daemon: &Daemon, name: &str) -> String {
    daemon.ok(&["create", "--name", name, "--image", "python-interpreter"])
}

/// Standard output and results of a piece of Python.
#[track_caller]
fn code(daemon: &Daemon, sandbox: &str, code: &str) -> String {
    daemon.ok(&["code", sandbox, "-e", code])
}

/// The complete result of a run.
#[track_caller]
fn run(daemon: &Daemon, context: &str, code: &str, more: &Value) -> Value {
    let mut body = json!({ "code": code, "wait": true });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    daemon.post(&format!("/v1/sandboxes/lab/contexts/{context}/run"), &body).expect(200)
}

#[test]
fn variables_stay_through_sleep_restore_and_fork() {
    let mut daemon = start();
    lab(&daemon, "lab");
    assert_eq!(code(&daemon, "lab", "x = 41\nimport threading, time"), "");
    assert_eq!(code(&daemon, "lab", "x + 1"), "42");
    // A background task that continues between runs.
    let counting = "n = 0\ndef count():\n    global n\n    while True:\n        n += 1\n        time.sleep(0.01)\n\
                    threading.Thread(target=count, daemon=True).start()";
    code(&daemon, "lab", counting);

    daemon.ok(&["hibernate", "lab"]);
    assert_eq!(code(&daemon, "lab", "x"), "41", "asking wakes it");
    daemon.kill();
    daemon.launch();
    assert_eq!(code(&daemon, "lab", "x"), "41", "a new daemon finds the same bridge");

    let snapshot = daemon.ok(&["snapshot", "create", "lab"]);
    code(&daemon, "lab", "x = 'changed'");
    let child = daemon.ok(&["fork", "lab", "--name", "child"]);
    assert_eq!(code(&daemon, &child, "x"), "changed", "a fork goes on with the same variables");
    code(&daemon, &child, "x = 'of the child'");
    assert_eq!(code(&daemon, "lab", "x"), "changed", "and for itself");
    daemon.ok(&["snapshot", "restore", &snapshot, "--in-place", "lab", "-y"]);
    assert_eq!(code(&daemon, "lab", "x"), "41", "a restore takes variables back");
    let before: u64 = code(&daemon, "lab", "n").parse().unwrap();
    eventually("its thread to go on", || {
        (code(&daemon, "lab", "n").parse::<u64>().unwrap() > before).then_some(())
    });

    daemon.ok(&["stop", "lab"]);
    assert_eq!(daemon.get("/v1/sandboxes/child/contexts/default").expect(200)["language"], "python");
    let gone = daemon.cli(&["code", "lab", "-e", "x"]);
    assert_eq!(gone.status.code(), Some(1), "processes end with a stop, and variables with them");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("NameError"), "{gone:?}");
}

#[test]
fn results_are_returned_in_every_available_format() {
    let daemon = start();
    lab(&daemon, "lab");
    let one = |code: &str| {
        let run = run(&daemon, "default", code, &json!({}));
        assert_eq!(run["status"], "ok", "{run}");
        assert_eq!(run["results"].as_array().unwrap().len(), 1, "{run}");
        run["results"][0].clone()
    };
    let frame = one("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})");
    assert_eq!((&frame["main"], &frame["data"]), (&json!(true), &json!({"a": [1, 2], "b": ["x", "y"]})));
    assert!(frame["html"].as_str().unwrap().contains("<table"), "{frame}");
    let plot = one(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='up')\nplt.title('T')\nplt.show()",
    );
    assert!(plot["png"].as_str().unwrap().starts_with("iVBOR"), "{plot}");
    assert_eq!((&plot["chart"]["type"], &plot["chart"]["title"]), (&json!("line"), &json!("T")), "{plot}");
    for (expression, form, expected) in [
        ("HTML('<b>h</b>')", "html", json!("<b>h</b>")),
        ("Markdown('# m')", "markdown", json!("# m")),
        ("Latex('$x^2$')", "latex", json!("$x^2$")),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "svg", Value::Null),
        ("JSON({'k': [1]})", "json", json!({"k": [1]})),
        ("Javascript('1')", "javascript", json!("1")),
    ] {
        let shown = one(&format!("from IPython.display import *\n{expression}"));
        if expected.is_null() {
            assert!(shown[form].as_str().unwrap().contains("<svg"), "{shown}");
        } else {
            assert_eq!(shown[form], expected, "{shown}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plot.py");
    std::fs::write(&file, "plt.plot([1]); plt.show()").unwrap();
    let saved = folder.path().to_str().unwrap();
    daemon.ok(&["code", "lab", file.to_str().unwrap(), "--save", saved]);
    assert!(std::fs::read(folder.path().join("result-1.png")).unwrap().starts_with(b"\x89PNG"));
    let streamed =
        daemon.cli(&["code", "lab", "--json", "-e", "import sys; print(1); print(2, file=sys.stderr); 3"]);
    let kinds: Vec<Value> = String::from_utf8_lossy(&streamed.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].clone())
        .collect();
    assert!(kinds.contains(&json!("stdout")) && kinds.contains(&json!("stderr")), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&json!("end")));
}

#[test]
fn errors_are_reported_and_leave_the_context_usable() {
    let daemon = start();
    lab(&daemon, "lab");
    code(&daemon, "lab", "x = 7");
    let failed = run(&daemon, "default", "def f():\n    1/0\nf()", &json!({}));
    assert_eq!((&failed["status"], &failed["error"]["name"]), (&json!("error"), &json!("ZeroDivisionError")));
    assert!(failed["error"]["traceback"].as_str().unwrap().contains("1/0"), "{failed}");
    let late =
        run(&daemon, "default", "import time\nwhile True: time.sleep(0.1)", &json!({"timeout_ms": 500}));
    assert_eq!(late["status"], "timed_out", "{late}");
    let loud =
        run(&daemon, "default", "while True: print('x' * 1000)", &json!({"output_bytes_max": 100_000}));
    assert_eq!(loud["status"], "output_limit", "{loud}");
    assert!(loud["stdout"].as_str().unwrap().len() < 1_000_000);
    assert_eq!(code(&daemon, "lab", "x"), "7", "its variables are still there");
    assert_eq!(
        daemon.cli(&["code", "lab", "--timeout", "500ms", "-e", "time.sleep(60)"]).status.code(),
        Some(124)
    );

    // The context is ended by another client while code runs in it.
    let running = {
        let mut command = daemon.command(&["code", "lab", "-e", "time.sleep(600)"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let context = || daemon.get("/v1/sandboxes/lab/contexts/default").expect(200);
    eventually("it runs", || (context()["state"] == "busy").then_some(()));
    daemon.ok(&["context", "interrupt", "lab", "default"]);
    let code_of = running.wait_with_output().unwrap().status.code();
    assert_eq!(code_of, Some(130), "interrupted");

    // The attached client disconnects: no reader is left for the result.
    let mut leaving = daemon
        .command(&["code", "lab", "-e", "time.sleep(600)"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", || (context()["state"] == "busy").then_some(()));
    leaving.kill().unwrap();
    leaving.wait().unwrap();
    eventually("it is interrupted", || (context()["state"] == "idle").then_some(()));

    let died = run(&daemon, "default", "import os; os._exit(3)", &json!({}));
    assert_eq!(died["status"], "kernel_died", "{died}");
    let anew = run(&daemon, "default", "x", &json!({}));
    assert_eq!(anew["error"]["name"], "NameError", "{anew}");
    code(&daemon, "lab", "x = 8");
    daemon.ok(&["context", "restart", "lab", "default"]);
    assert_eq!(run(&daemon, "default", "x", &json!({}))["error"]["name"], "NameError");
}

#[test]
fn contexts_are_independent_and_run_concurrently() {
    let daemon = start();
    lab(&daemon, "lab");
    let other = daemon.ok(&["context", "create", "lab", "-w", "/tmp", "-e", "GREETING=hello"]);
    daemon.ok(&["code", "lab", "--context", &other, "-e", "x = 'other'; import os"]);
    code(&daemon, "lab", "x = 'default'");
    assert_eq!(
        daemon.ok(&["code", "lab", "--context", &other, "-e", "x, os.getcwd(), os.environ['GREETING']"]),
        "('other', '/tmp', 'hello')"
    );
    assert_eq!(code(&daemon, "lab", "x"), "default");
    // Run at the same time: one waits for a file that the other writes.
    let waiting =
        "import pathlib, time\nwhile not pathlib.Path('/tmp/go').exists(): time.sleep(0.01)\n'went'";
    let mut command = daemon.command(&["code", "lab", "--context", &other, "-e", waiting]);
    let first = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it waits", || {
        let state = daemon.get(&format!("/v1/sandboxes/lab/contexts/{other}")).expect(200);
        (state["state"] == "busy").then_some(())
    });
    code(&daemon, "lab", "open('/tmp/go', 'w').close()");
    assert_eq!(String::from_utf8_lossy(&first.wait_with_output().unwrap().stdout).trim(), "went");

    let listed = daemon.json(&["context", "ls", "lab", "--json"]);
    let languages: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["language"].as_str().unwrap()).collect();
    assert_eq!(languages, ["python", "python"]);
    let unknown = daemon.cli(&["code", "lab", "--language", "cobol", "-e", "1"]);
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("python"),
        "it names what there is: {unknown:?}"
    );
    daemon.ok(&["context", "rm", "lab", &other]);
    daemon.get(&format!("/v1/sandboxes/lab/contexts/{other}")).refused(404, "not_found");
}

#[test]
fn a_person_types_code_line_by_line() {
    let daemon = start();
    lab(&daemon, "lab");
    code(&daemon, "lab", "x = 20");
    let mut terminal = Terminal::run(&daemon, &["code", "lab"], 100, 30);
    terminal.wait_for(">>> ");
    // Input that is typed while code runs goes to the next reader. A person waits for the prompt, which reads key by
    // key.
    let prompt = |terminal: &Terminal| eventually("a prompt", || (!terminal.is_cooked()).then_some(()));
    terminal.type_in("x + 1\r");
    terminal.wait_for("21");
    prompt(&terminal);
    terminal.type_in("for i in range(2):\r    print('line', i + 40)\r\r");
    terminal.wait_for("line 41");
    prompt(&terminal);
    terminal.type_in("import time; time.sleep(600)\r");
    let context = || daemon.get("/v1/sandboxes/lab/contexts/default").expect(200);
    eventually("it runs", || (context()["state"] == "busy").then_some(()));
    terminal.type_in("\u{3}");
    terminal.wait_for("KeyboardInterrupt");
    prompt(&terminal);
    terminal.type_in("x + 3000\r");
    terminal.wait_for("3020");
    prompt(&terminal);
    terminal.type_in("\u{4}");
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn a_sandbox_without_a_kernel_reports_what_is_missing() {
    let daemon = Daemon::start();
    daemon.create("plain");
    let refused = daemon.refused(&["code", "plain", "-e", "1"], 125);
    assert!(refused.contains("image build --ready python-interpreter"), "{refused}");
    assert_eq!(daemon.json(&["context", "ls", "plain", "--json"]), json!([]));
}

#[test]
fn variables_stay_in_a_machine_with_a_kernel_of_its_own() {
    if std::env::var_os("BURROW_TEST_ALL").is_none() {
        crate::mirrors::skipped(
            "code in a microVM",
            "emulated, it takes minutes on a busy host; `make test-all` runs it",
        );
        return;
    }
    let mut daemon = Daemon::prepare_for_code("");
    daemon.use_microvms();
    daemon.launch();
    let size = ["--ram", "512M", "--cpu", "1", "--disk", "4G"];
    daemon.ok(&[&["create", "--name", "lab", "--image", "python-interpreter"][..], &size].concat());
    assert_eq!(daemon.inspect("lab")["driver"], "microvm");
    code(&daemon, "lab", "x = 41");
    daemon.ok(&["hibernate", "lab"]);
    assert_eq!(code(&daemon, "lab", "x + 1"), "42", "asking wakes it");
    let child = daemon.ok(&["fork", "lab", "--name", "child"]);
    code(&daemon, "lab", "x = 0");
    assert_eq!(code(&daemon, &child, "x"), "41", "a fork goes on with the same variables, for itself");
}
