//! Interactive execs: terminals, the WebSocket, detaching and attaching again.

use burrow_client::{AttachEvent, AttachMode, AttachOptions};
use serde_json::json;

use crate::harness::{Daemon, eventually};
use crate::terminal::Terminal;

#[test]
fn a_terminal_is_real_follows_the_window_and_passes_keys_on() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let mut terminal = Terminal::run(&daemon, &["exec", "-it", "alpha", "--", "bash", "--norc"], 97, 31);
    terminal.type_in("test -t 0 && test -t 1 && test -t 2 && echo it is a $((1))tty: $(tty)\n");
    terminal.wait_for("it is a 1tty: /dev/pts/");
    assert!(!terminal.is_cooked(), "keys reach the far side one by one");
    terminal.type_in("echo size=$(stty size)\n");
    terminal.wait_for("size=31 97");
    terminal.resize(123, 45);
    // A change of the window size arrives as SIGWINCH; a shell reads the size again at each prompt.
    eventually("the new size on the far side", || {
        terminal.type_in("echo size=$(stty size)\n");
        terminal.screen().contains("size=45 123").then_some(())
    });
    // Ctrl-C is a key that the terminal in the sandbox turns into a signal for the process there.
    terminal.type_in("echo going to sl''eep; sleep 1000; echo code=$?\n");
    terminal.wait_for("going to sleep");
    terminal.type_in("\u{3}");
    terminal.type_in("echo still he''re\n");
    terminal.wait_for("still here");
    terminal.type_in("exit 6\n");
    assert_eq!(terminal.exit_code(), Some(6));
    assert!(terminal.is_cooked(), "the terminal is put back as it was");
}

#[test]
fn a_detached_terminal_continues_to_run_and_attach_returns_to_it() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let mut terminal = Terminal::run(&daemon, &["shell", "alpha"], 80, 24);
    terminal.type_in("echo fir''st; mark=kept\n");
    terminal.wait_for("first");
    terminal.type_in("\u{10}\u{11}");
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.wait_for("burrow attach exe");
    assert!(terminal.is_cooked());
    let mut again = Terminal::run(&daemon, &["attach", "alpha"], 80, 24);
    again.wait_for("first");
    again.type_in("echo mark is ${mark}; exit 8\n");
    again.wait_for("mark is kept");
    assert_eq!(again.exit_code(), Some(8));
}

#[test]
fn a_websocket_carries_output_with_offsets_input_and_the_end() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let client = daemon.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let line = "echo to out; echo to err >&2; while read line; do echo got $line; done; exit 2";
        let request = serde_json::from_value(json!({ "command": line, "stdin": "pipe" })).unwrap();
        let exec = client.create_exec("alpha", &request).await.unwrap();
        let options = AttachOptions { offset: 0, mode: AttachMode::Lossless };
        let (sender, mut attachment) = client.attach("alpha", &exec.id, options).await.unwrap();
        sender.stdin("one\ntwo\n").await.unwrap();
        sender.close_stdin().await.unwrap();
        let (mut out, mut err, mut end) = (String::new(), String::new(), 0);
        let exec = loop {
            match attachment.next().await.unwrap().unwrap() {
                AttachEvent::Output { stream, offset, bytes } => {
                    assert_eq!(offset, end, "no byte is missed or sent twice");
                    end = offset + bytes.len() as u64;
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    match stream {
                        burrow_api::OutputStream::Stdout => out.push_str(&text),
                        burrow_api::OutputStream::Stderr => err.push_str(&text),
                    }
                }
                AttachEvent::Exit(exec) => break exec,
                other @ (AttachEvent::Gap { .. } | AttachEvent::Reattached { .. }) => panic!("{other:?}"),
            }
        };
        assert_eq!((out.as_str(), err.as_str()), ("to out\ngot one\ngot two\n", "to err\n"));
        assert_eq!(exec.outcome.unwrap().exit_code, Some(2));
        assert_eq!(exec.output_end, end);
    });
}

#[test]
fn a_websocket_reader_that_does_not_read_keeps_lossless_output_waiting_and_nothing_else() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let client = daemon.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = serde_json::from_value(json!({ "command": "seq 3000000", "hold": true })).unwrap();
        let exec = client.create_exec("alpha", &request).await.unwrap();
        let options = AttachOptions { offset: 0, mode: AttachMode::Lossless };
        let (_sender, mut attachment) = client.attach("alpha", &exec.id, options).await.unwrap();
        // Not read yet: the process waits for its reader, and other clients are served meanwhile.
        let other = serde_json::from_value(json!({ "command": "echo served" })).unwrap();
        assert_eq!(client.run("alpha", &other).await.unwrap().stdout, "served\n");
        let waiting = client.exec("alpha", &exec.id).await.unwrap();
        assert_eq!(waiting.state, burrow_api::ExecState::Running);
        let (mut expected, mut seen) = (1u32, Vec::new());
        loop {
            match attachment.next().await.unwrap().unwrap() {
                AttachEvent::Output { bytes, .. } => seen.extend_from_slice(&bytes),
                AttachEvent::Exit(exec) => {
                    assert_eq!(exec.output_dropped, 0);
                    break;
                }
                other @ (AttachEvent::Gap { .. } | AttachEvent::Reattached { .. }) => panic!("{other:?}"),
            }
        }
        for line in seen.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            assert_eq!(std::str::from_utf8(line).unwrap().parse::<u32>().unwrap(), expected);
            expected += 1;
        }
        assert_eq!(expected, 3_000_001, "every line arrived once and in order");
    });
}

#[test]
fn a_pipe_that_is_closed_ends_the_exec_quietly() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let mut command = std::process::Command::new("sh");
    command
        .arg("-c")
        .arg("\"$BURROW\" exec alpha -- yes | head -n 1; exit 0")
        .env("BURROW", crate::harness::burrow());
    command.env("BURROW_URL", daemon.url()).env("BURROW_API_KEY", daemon.key());
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "a closed pipe is no error to tell of");
    eventually("`yes` to end", || (!daemon.holds("alpha", "pgrep -x yes")).then_some(()));
}
