//! Commands over SSH, by OpenSSH's own client: what they print, read and return, and the ports behind them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use crate::harness::{Daemon, eventually};
use crate::ssh_client::{CONFIG, SshClient, succeeded, text};

#[test]
fn a_command_over_ssh_is_a_command() {
    let daemon = Daemon::start_with(CONFIG);
    let id = daemon.create("web");
    let client = SshClient::known(&daemon);

    // Its own streams, apart, and its own code.
    let output = client.exec("web", "echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(client.ok(&id, "hostname"), "web\n", "by its id");
    let killed = client.exec("web", "kill -TERM $$");
    assert_eq!(killed.status.code(), Some(255), "as OpenSSH's client tells of a signal");

    // Input streams in, and its end is told.
    let fed = succeeded(client.fed("web", "cat; echo end", b"line\n"));
    assert_eq!(text(&fed.stdout), "line\nend\n");
    let megabytes = vec![b'x'; 24 << 20];
    let counted = succeeded(client.fed("web", "wc -c", &megabytes));
    assert_eq!(text(&counted.stdout).trim(), megabytes.len().to_string());
    // Both ways at once, more than any buffer holds.
    let echoed = succeeded(client.fed("web", "cat", &megabytes));
    assert_eq!(echoed.stdout.len(), megabytes.len());
    // A command that never reads what it is sent.
    let unread = succeeded(client.fed("web", "head -c 33554432 /dev/zero", &megabytes));
    assert_eq!(unread.stdout.len(), 32 << 20);

    // Of the environment, its language.
    let mut command =
        client.ssh(&["-o", "SendEnv=LANG LC_* EVIL", "web@127.0.0.1", "echo $LANG-$LC_TEST-$EVIL-"]);
    let output = succeeded(command.env("LC_TEST", "de").env("EVIL", "x").output().unwrap());
    assert_eq!(text(&output.stdout), "C.UTF-8-de--\n");

    // Many at once on one connection.
    let socket = client.folder.path().join("mux");
    let shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o"];
    let path = format!("ControlPath={}", socket.display());
    let many: Vec<_> = (0..8)
        .map(|number| {
            let line = format!("echo {number}");
            let mut command = client.ssh(&shared);
            command
                .args([path.as_str(), "web@127.0.0.1", line.as_str()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (number, child) in many.into_iter().enumerate() {
        assert_eq!(text(&succeeded(child.wait_with_output().unwrap()).stdout), format!("{number}\n"));
    }
    let _ = client.ssh(&["-O", "exit", "-o", &path, "web@127.0.0.1"]).output();
}

#[test]
fn a_command_whose_client_goes_away_is_hung_up_on() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let line = "trap 'touch /tmp/hung-up; exit' HUP; touch /tmp/begun; while :; do sleep 0.1; done";
    let mut child = client.ssh(&["web@127.0.0.1", line]).spawn().unwrap();
    eventually("the command to begin", || daemon.holds("web", "test -e /tmp/begun").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the command to be hung up on", || daemon.holds("web", "test -e /tmp/hung-up").then_some(()));
}

#[test]
fn ports_are_forwarded_into_the_sandbox_and_nowhere_else() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    // On loopback, which the gateway of ports would reach too, and nobody else.
    let serve = "cd /srv && echo hello > index.html && exec python3 -m http.server --bind 127.0.0.1 8000";
    daemon.ok(&["exec", "-d", "web", "--", "sh", "-c", serve]);
    daemon.sh("web", "until curl -sf localhost:8000 >/dev/null; do sleep 0.05; done");

    let get = |arguments: &[&str]| {
        let mut command = client.ssh(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n");
        child.wait_with_output().unwrap()
    };
    let answer = get(&["-W", "localhost:8000", "web@127.0.0.1"]);
    assert!(text(&answer.stdout).contains("hello"), "{}{}", text(&answer.stdout), text(&answer.stderr));
    let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = here.local_addr().unwrap().port();
    let outside = here.local_addr().unwrap().to_string();
    for elsewhere in ["198.51.100.7:80", "example.com:80", "10.0.0.1:7700"] {
        let answer = get(&["-W", elsewhere, "web@127.0.0.1"]);
        assert!(!answer.status.success() && answer.stdout.is_empty(), "{elsewhere}: {answer:?}");
    }
    // A port of this host's is the sandbox's own, where nothing listens.
    let answer = get(&["-W", &outside, "web@127.0.0.1"]);
    assert!(!answer.status.success() && answer.stdout.is_empty(), "{answer:?}");
    drop(here);

    let forward = format!("{free}:localhost:8000");
    let mut child = client.ssh(&["-N", "-L", &forward, "web@127.0.0.1"]).spawn().unwrap();
    let mut through = eventually("the forwarded port", || TcpStream::connect(("127.0.0.1", free)).ok());
    through.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    through.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("hello"), "{answer}");
    child.kill().unwrap();
    child.wait().unwrap();

    // From the sandbox to the client there is no way.
    let back = ["-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1", "web@127.0.0.1", "true"];
    assert!(!client.ssh(&back).output().unwrap().status.success());
    let mut agent = client.ssh(&["-A", "web@127.0.0.1", "echo agent=$SSH_AUTH_SOCK"]);
    let output = succeeded(agent.env("SSH_AUTH_SOCK", "/dev/null").output().unwrap());
    assert_eq!(text(&output.stdout), "agent=\n");
}
