//! Who may log in over SSH, to what, and for how long.

use crate::harness::Daemon;
use crate::ssh_client::{CONFIG, SshClient, succeeded, text};

#[test]
fn a_key_opens_what_the_api_key_opens_that_added_it() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    daemon.create("other");

    // Nobody comes in without a key that was added, and a key that was removed opens nothing more.
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

    // Added with a key that is bound to one sandbox it opens that one alone, and the rest is not there.
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

    // Who may only look gets in nowhere.
    let reader = daemon.json(&["key", "create", "reader", "--scope", "read", "--json"]);
    let secret = reader["secret"].as_str().unwrap();
    let refused = daemon.command(&["ssh-key", "add", public]).env("BURROW_API_KEY", secret).output().unwrap();
    assert!(!refused.status.success());

    // With its API key it ends.
    daemon.ok(&["key", "revoke", bound["key"]["id"].as_str().unwrap()]);
    assert_eq!(client.exec("web", "true").status.code(), Some(255));

    // And the log says who it was.
    let log = daemon.ok(&["audit", "ls", "--json"]);
    assert!(log.contains("by ssh ssk") && log.contains("SHA256:"), "{log}");
    assert!(log.contains("exec.start"), "{log}");
}

#[test]
fn login_names_mean_sandboxes_and_new_makes_one() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let made = succeeded(client.exec("new", "hostname"));
    assert!(text(&made.stderr).contains("made sandbox sbx"), "{}", text(&made.stderr));
    let ids = daemon.ok(&["ls", "-q"]);
    assert_eq!(ids.lines().count(), 2, "{ids}");
    // Whoever names none is shown those there are.
    let lost = client.ssh(&["nobody@127.0.0.1"]).output().unwrap();
    assert_eq!(lost.status.code(), Some(1));
    assert!(
        text(&lost.stdout).contains("web") && text(&lost.stderr).contains("no sandbox `nobody`"),
        "{lost:?}"
    );
    for odd in ["Web", "a b", "../web", "web/../x"] {
        let output = client.ssh(&["-l", odd, "127.0.0.1", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{odd}: {output:?}");
    }
    // The same words for `burrow ssh`, which needs no configuration.
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
    assert_eq!(text(&succeeded(ssh.stdin(std::process::Stdio::null()).output().unwrap()).stdout), "web\n");
    // A daemon that comes back is the same host.
    let mut daemon = daemon;
    let before = SshClient::stranger(&daemon);
    daemon.terminate();
    daemon.launch();
    let after = SshClient::stranger(&daemon);
    let known = |client: &SshClient| std::fs::read(client.folder.path().join("known_hosts")).unwrap();
    assert_eq!(known(&before), known(&after));
}
