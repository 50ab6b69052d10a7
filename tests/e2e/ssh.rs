//! Commands over SSH with OpenSSH's own client: their output, input and exit codes, and port forwarding.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::harness::{Daemon, PATIENCE, eventually};
use crate::ssh_client::{CONFIG, SshClient, succeeded, text};

#[test]
fn a_command_over_ssh_behaves_like_a_local_one() {
    let daemon = Daemon::start_with(CONFIG);
    let id = daemon.create("web");
    let client = SshClient::known(&daemon);

    // Separate output streams, and the exit code.
    let output = client.exec("web", "echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(client.ok(&id, "hostname"), "web\n", "by its id");
    let killed = client.exec("web", "kill -TERM $$");
    assert_eq!(killed.status.code(), Some(255), "as OpenSSH's client tells of a signal");

    // Standard input arrives, and its end is reported.
    let fed = succeeded(client.fed("web", "cat; echo end", b"line\n"));
    assert_eq!(text(&fed.stdout), "line\nend\n");
    let megabytes = vec![b'x'; 24 << 20];
    let counted = succeeded(client.fed("web", "wc -c", &megabytes));
    assert_eq!(text(&counted.stdout).trim(), megabytes.len().to_string());
    // Both directions at once, more than any buffer can store.
    let echoed = succeeded(client.fed("web", "cat", &megabytes));
    assert_eq!(echoed.stdout.len(), megabytes.len());
    // A command that never reads its input.
    let unread = succeeded(client.fed("web", "head -c 33554432 /dev/zero", &megabytes));
    assert_eq!(unread.stdout.len(), 32 << 20);

    // Of the client's environment, only the locale is passed on.
    let mut command =
        client.ssh(&["-o", "SendEnv=LANG LC_* EVIL", "web@127.0.0.1", "echo $LANG-$LC_TEST-$EVIL-"]);
    let output = succeeded(command.env("LC_TEST", "de").env("EVIL", "x").output().unwrap());
    assert_eq!(text(&output.stdout), "C.UTF-8-de--\n");

    // Many commands at once on one connection.
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
fn a_command_ends_when_its_client_disconnects() {
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

/// On port 8000 of the sandbox's loopback, which is not reachable from elsewhere.
fn serve_hello(daemon: &Daemon) {
    let serve = "cd /srv && echo hello > index.html && exec python3 -m http.server --bind 127.0.0.1 8000";
    daemon.ok(&["exec", "-d", "web", "--", "sh", "-c", serve]);
    daemon.sh("web", "until curl -sf localhost:8000 >/dev/null; do sleep 0.05; done");
}

#[test]
fn ports_are_forwarded_into_the_sandbox_and_nowhere_else() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    serve_hello(&daemon);

    let get = |arguments: &[&str]| {
        let mut command = client.ssh(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n");
        child.wait_with_output().unwrap()
    };
    let answer = get(&["-W", "localhost:8000", "web@127.0.0.1"]);
    assert!(text(&answer.stdout).contains("hello"), "{}{}", text(&answer.stdout), text(&answer.stderr));
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let outside = here.local_addr().unwrap().to_string();
    for elsewhere in ["198.51.100.7:80", "example.com:80", "10.0.0.1:7700"] {
        let answer = get(&["-W", elsewhere, "web@127.0.0.1"]);
        assert!(!answer.status.success() && answer.stdout.is_empty(), "{elsewhere}: {answer:?}");
    }
    // A port of this host means the sandbox's own port, where nothing listens.
    let answer = get(&["-W", &outside, "web@127.0.0.1"]);
    assert!(!answer.status.success() && answer.stdout.is_empty(), "{answer:?}");
    drop(here);

    // A socket in a private folder cannot be taken by another process in the meantime, unlike a port.
    let socket = client.folder.path().join("forwarded");
    let forward = format!("{}:localhost:8000", socket.display());
    let mut child = client.ssh(&["-N", "-L", &forward, "web@127.0.0.1"]).spawn().unwrap();
    let mut through = eventually("the forwarded port", || UnixStream::connect(&socket).ok());
    through.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    through.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("hello"), "{answer}");
    child.kill().unwrap();
    child.wait().unwrap();

    // Forwarding from the sandbox to the client is impossible.
    let back = ["-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1", "web@127.0.0.1", "true"];
    assert!(!client.ssh(&back).output().unwrap().status.success());
    let mut agent = client.ssh(&["-A", "web@127.0.0.1", "echo agent=$SSH_AUTH_SOCK"]);
    let output = succeeded(agent.env("SSH_AUTH_SOCK", "/dev/null").output().unwrap());
    assert_eq!(text(&output.stdout), "agent=\n");
}

/// Dynamic forwarding, as editors use it over SSH.
#[test]
fn a_proxy_of_the_clients_leads_to_the_sandbox_and_nowhere_else() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    serve_hello(&daemon);
    let control = client.folder.path().join("control").display().to_string();
    let control = ["-S", control.as_str(), "web@127.0.0.1"];
    let mut child = client.ssh(&["-N", "-M"]).args(control).spawn().unwrap();
    // With this option, the forwarding fails if the port is already in use.
    let forwards = |port: u16| {
        let mut command = client.ssh(&["-O", "forward", "-D", &port.to_string()]);
        command.args(control).output().unwrap().status.success().then_some(port)
    };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = eventually("a proxy in the client", || forwards(free()));
    let ask = |address: [u8; 4], port: u16| {
        let mut proxy = TcpStream::connect(("127.0.0.1", proxy)).unwrap();
        proxy.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend(address);
        request.extend(port.to_be_bytes());
        request.extend(b"GET / HTTP/1.0\r\n\r\n");
        proxy.write_all(&request).unwrap();
        let mut answer = Vec::new();
        // The server may close the connection before all input was read.
        let _ = proxy.read_to_end(&mut answer);
        text(&answer)
    };
    let answer = ask([127, 0, 0, 1], 8000);
    assert!(answer.contains("hello"), "{answer}");
    for (address, port) in [([198, 51, 100, 7], 80), ([10, 0, 0, 1], 7700)] {
        let answer = ask(address, port);
        assert!(!answer.contains("HTTP"), "{address:?}: {answer}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
