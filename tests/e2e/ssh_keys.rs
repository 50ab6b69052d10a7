//! Who may log in over SSH, to which sandboxes, and for how long.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::harness::{Daemon, eventually, run};
use crate::ssh_client::{CONFIG, SshClient, succeeded, text};

#[test]
fn an_ssh_key_has_the_rights_of_the_api_key_that_added_it() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    daemon.create("other");

    // A login requires an added key, and a removed key no longer works.
    let client = SshClient::stranger(&daemon);
    assert_eq!(client.exec("web", "true").status.code(), Some(255));
    let public = client.public_key();
    let public = public.to_str().unwrap();
    let id = daemon.ok(&["ssh-key", "add", public, "--name", "ada"]);
    assert!(id.starts_with("ssk"), "{id}");
    assert_eq!(daemon.ok(&["ssh-key", "add", public]), id, "once is enough");
    assert_eq!(client.ok("web", "echo in"), "in\n");
    let listed = daemon.json(&["ssh-key", "ls", "--json"]);
    assert_eq!((&listed[0]["name"], &listed[0]["id"]), (&"ada".into(), &id.as_str().into()));
    assert!(listed[0]["last_used_ms"].is_u64(), "{listed}");
    daemon.ok(&["ssh-key", "rm", "ada"]);
    assert_eq!(client.exec("web", "true").status.code(), Some(255));
    assert!(daemon.refused(&["ssh-key", "rm", "ada"], 1).contains("ada"));

    // A key that was added with an API key bound to one sandbox opens that sandbox only; others appear not to exist.
    let bound = daemon.json(&["key", "create", "bound", "--sandbox", "web", "--json"]);
    let secret = bound["secret"].as_str().unwrap();
    let as_bound =
        |arguments: &[&str]| daemon.command(arguments).env("BURROW_API_KEY", secret).output().unwrap();
    succeeded(as_bound(&["ssh-key", "add", public]));
    assert_eq!(client.ok("web", "hostname"), "web\n");
    let elsewhere = client.exec("other", "hostname");
    assert_eq!(elsewhere.status.code(), Some(1));
    let nowhere = client.exec("nothing", "hostname");
    assert_eq!(
        text(&elsewhere.stderr).replace("other", "nothing"),
        text(&nowhere.stderr),
        "as if there were none"
    );
    let created = client.exec("new", "true");
    assert_eq!(created.status.code(), Some(255), "it makes none: {}", text(&created.stderr));
    assert!(daemon.refused(&["ssh-key", "add", public], 1).contains("another API key"));
    assert_eq!(daemon.json(&["ssh-key", "ls", "--json"]).as_array().unwrap().len(), 1, "an admin sees all");

    // A key with read scope cannot log in anywhere.
    let reader = daemon.json(&["key", "create", "reader", "--scope", "read", "--json"]);
    let secret = reader["secret"].as_str().unwrap();
    let refused = daemon.command(&["ssh-key", "add", public]).env("BURROW_API_KEY", secret).output().unwrap();
    assert!(!refused.status.success());

    // It ends with its API key.
    daemon.ok(&["key", "revoke", bound["key"]["id"].as_str().unwrap()]);
    assert_eq!(client.exec("web", "true").status.code(), Some(255));

    // The row of a dead API key blocks no other key. A login that proves possession of the private key takes over the
    // public key.
    daemon.ok(&["ssh-key", "add", public]);
    assert_eq!(client.ok("other", "hostname"), "other\n");
    let owner = daemon.json(&["key", "create", "owner", "--sandbox", "web", "--json"]);
    let mut add = daemon.command(&["ssh-key", "add", public]);
    let refused = add.env("BURROW_API_KEY", owner["secret"].as_str().unwrap()).output().unwrap();
    let said = text(&refused.stderr);
    let login = said.split_whitespace().find(|word| word.starts_with("claim+")).expect(&said);
    let login = login.split('@').next().unwrap();
    assert_eq!(SshClient::known(&daemon).exec(login, "true").status.code(), Some(255), "with another key");
    let claimed = client.exec(login, "true");
    assert!(claimed.status.success() && text(&claimed.stderr).contains("now belongs to you"), "{claimed:?}");
    assert_eq!(client.ok("web", "hostname"), "web\n");
    assert_eq!(
        client.exec("other", "hostname").status.code(),
        Some(1),
        "it stands for the other API key now"
    );
    assert_eq!(client.exec(login, "true").status.code(), Some(255), "a code is good once");

    // The log records who logged in.
    let log = daemon.json(&["audit", "ls", "--json"]);
    for action in ["ssh.login", "exec.start"] {
        let mut of_it = log.as_array().unwrap().iter().filter(|event| event["action"] == action);
        let by_ssh = |event: &serde_json::Value| {
            event["actor"].as_str().is_some_and(|by| by.contains("by ssh ssk") && by.contains("SHA256:"))
        };
        assert!(of_it.any(by_ssh), "no `{action}` by SSH: {log}");
    }
    assert!(log.to_string().contains("as `web` from 127.0.0.1:"), "{log}");
}

#[test]
fn login_names_select_sandboxes_and_new_creates_one() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let made = succeeded(client.exec("new", "hostname"));
    assert!(text(&made.stderr).contains("created sandbox sbx"), "{}", text(&made.stderr));
    let ids = daemon.ok(&["ls", "-q"]);
    assert_eq!(ids.lines().count(), 2, "{ids}");
    // A login without a name lists the existing sandboxes.
    let lost = client.ssh(&["nobody@127.0.0.1"]).output().unwrap();
    assert_eq!(lost.status.code(), Some(1));
    assert!(
        text(&lost.stdout).contains("web") && text(&lost.stderr).contains("no sandbox `nobody`"),
        "{lost:?}"
    );
    let looking = client.ssh(&["-tt", "nobody@127.0.0.1"]).output().unwrap();
    assert_eq!(looking.status.code(), Some(0), "who looks around has not failed: {looking:?}");
    assert!(text(&looking.stdout).contains("web"), "{looking:?}");
    for odd in ["Web", "a b", "../web", "web/../x"] {
        let output = client.ssh(&["-l", odd, "127.0.0.1", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{odd}: {output:?}");
    }
    // `burrow ssh` accepts the same names, and needs no configuration.
    let home = tempfile::tempdir().unwrap();
    let burrow = |arguments: &[&str]| {
        succeeded(daemon.command(arguments).env("XDG_CONFIG_HOME", home.path()).output().unwrap())
    };
    assert_eq!(text(&burrow(&["ssh", "web", "--", "echo", "hi"]).stdout), "hi\n");
    assert_eq!(text(&burrow(&["ssh", "web", "--", "echo", "again"]).stdout), "again\n");
    let config = burrow(&["ssh-config"]).stdout;
    let path = home.path().join("config");
    std::fs::write(&path, config).unwrap();
    let mut ssh = std::process::Command::new("ssh");
    ssh.arg("-F").arg(&path).args(["-o", "BatchMode=yes", "web.burrow", "hostname"]);
    ssh.env("XDG_CONFIG_HOME", home.path());
    assert_eq!(text(&succeeded(ssh.stdin(std::process::Stdio::null()).output().unwrap()).stdout), "web\n");
    // A sandbox that was created afterwards has a host name, too, also for `rsync`.
    daemon.create("later");
    let mut ssh = std::process::Command::new("ssh");
    ssh.arg("-F").arg(&path).args(["-o", "BatchMode=yes", "later.burrow", "hostname"]);
    ssh.env("XDG_CONFIG_HOME", home.path());
    assert_eq!(text(&succeeded(ssh.stdin(std::process::Stdio::null()).output().unwrap()).stdout), "later\n");
    let mut rsync = std::process::Command::new("rsync");
    rsync
        .args(["-e", &format!("ssh -o BatchMode=yes -F {}", path.display())])
        .arg(&path)
        .arg("later.burrow:/root/config");
    succeeded(rsync.env("XDG_CONFIG_HOME", home.path()).stdin(std::process::Stdio::null()).output().unwrap());
    assert!(daemon.sh("later", "cat /root/config").contains("Match originalhost *.burrow"));
    // A name that is none of a sandbox is not passed on.
    let mut ssh = std::process::Command::new("ssh");
    ssh.arg("-F").arg(&path).args(["-G", "WEB_.burrow"]).env("XDG_CONFIG_HOME", home.path());
    let odd = ssh.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(!text(&odd.stdout).contains("user web_"), "{odd:?}");
    // A restarted daemon has the same host key.
    let mut daemon = daemon;
    let before = SshClient::stranger(&daemon);
    daemon.terminate();
    daemon.launch();
    let after = SshClient::stranger(&daemon);
    let known = |client: &SshClient| std::fs::read(client.folder.path().join("known_hosts")).unwrap();
    assert_eq!(known(&before), known(&after));
}

/// An interactive session that sends a line and gets an answer.
fn inside(client: &SshClient) -> Child {
    let mut command = client.ssh(&["web@127.0.0.1", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[track_caller]
fn ends(mut child: Child, why: &str) {
    let status = eventually(why, || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(255), "{why}");
}

#[test]
fn removing_a_key_ends_its_connections() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let (stays, removed, revoked) =
        (SshClient::known(&daemon), SshClient::stranger(&daemon), SshClient::stranger(&daemon));
    let path = |client: &SshClient| client.public_key().to_str().unwrap().to_owned();
    let id = daemon.ok(&["ssh-key", "add", &path(&removed)]);
    let key = daemon.json(&["key", "create", "short", "--json"]);
    let mut add = daemon.command(&["ssh-key", "add", &path(&revoked)]);
    succeeded(add.env("BURROW_API_KEY", key["secret"].as_str().unwrap()).output().unwrap());

    let (mut one, two, three) = (inside(&stays), inside(&removed), inside(&revoked));
    daemon.ok(&["ssh-key", "rm", &id]);
    ends(two, "the connection of a removed key to end");
    daemon.ok(&["key", "revoke", key["key"]["id"].as_str().unwrap()]);
    ends(three, "the connection of a revoked API key to end");

    // Other connections are not affected.
    let (mut stdin, mut stdout) = (one.stdin.take().unwrap(), one.stdout.take().unwrap());
    stdin.write_all(b"y").unwrap();
    let mut answer = [0];
    stdout.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"y");
    drop(stdin);
    assert!(one.wait().unwrap().success());
}

#[test]
fn keys_of_every_type_are_accepted_or_refused_with_a_reason() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    for (kind, bits) in [("ecdsa", "256"), ("ecdsa", "384"), ("ecdsa", "521")] {
        let client = SshClient::stranger(&daemon);
        make_key(&client, kind, bits);
        daemon.ok(&["ssh-key", "add", client.public_key().to_str().unwrap()]);
        assert_eq!(client.ok("web", "echo in"), "in\n", "{kind} {bits}");
    }
    let client = SshClient::stranger(&daemon);
    make_key(&client, "rsa", "3072");
    let refused = daemon.refused(&["ssh-key", "add", client.public_key().to_str().unwrap()], 1);
    assert!(refused.contains("ssh-rsa") && refused.contains("ssh-keygen -t ed25519"), "{refused}");
    let private = client.folder.path().join("id");
    let refused = daemon.refused(&["ssh-key", "add", private.to_str().unwrap()], 1);
    assert!(refused.contains("private key") && refused.contains(".pub"), "{refused}");
}

/// Replaces the key it has.
fn make_key(client: &SshClient, kind: &str, bits: &str) {
    let path = client.folder.path().join("id");
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(client.public_key()).unwrap();
    run(Command::new("ssh-keygen").args(["-q", "-t", kind, "-b", bits, "-N", "", "-f"]).arg(path));
}

#[test]
fn silent_connections_are_closed() {
    let daemon = Daemon::start_with(&format!("{CONFIG}\nidle = \"10s\"\nlogin_seconds = 15"));
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let strangers = ["", "SSH-2.0-stranger\r\n"].map(|said| {
        let mut stream = TcpStream::connect(("127.0.0.1", client.port)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream
    });
    ends(inside(&client), "a silent connection to end");
    for mut stream in strangers {
        stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
        let mut said = Vec::new();
        // It ends, with or without a reset.
        let ended = stream.read_to_end(&mut said);
        let in_vain = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(in_vain), "{ended:?} after {}", text(&said));
        assert!(text(&said).starts_with("SSH-2.0-"), "{}", text(&said));
    }
    assert_eq!(client.ok("web", "echo in"), "in\n");
}
