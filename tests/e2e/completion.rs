//! Completion of names in shells, with the scripts that `burrow completion` prints.

use std::process::{Command, Output, Stdio};

use crate::harness::{Daemon, burrow};
use crate::ssh_client::text;

/// Runs the script for bash as bash does when its user presses the tab key after the last word. Returns the candidates.
fn in_bash(daemon: &Daemon, line: &str) -> Vec<String> {
    let script = "set -u; source <(burrow completion bash); COMP_TYPE=9; read -ra COMP_WORDS <<< \"$1\"; \
                  [[ $1 == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                  _clap_complete_burrow burrow \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!("{}:/usr/bin:/bin", burrow().parent().unwrap().display());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash", line]).env("PATH", path).stdin(Stdio::null());
    let output = bash.env("BURROW_URL", daemon.url()).env("BURROW_API_KEY", daemon.key()).output().unwrap();
    assert!(output.stderr.is_empty(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_the_names_of_objects() {
    let daemon = Daemon::start_with("egress.sets.ours = [\"ours.example\"]");
    daemon.create("web");
    daemon.ok(&["create", "--name", "worker"]);
    daemon.ok(&["snapshot", "create", "web", "--name", "before"]);
    daemon.ok(&["volume", "create", "data"]);
    let mut secret =
        daemon.command(&["secret", "set", "token", "--from-env", "T", "--allow", "https://a.example/**"]);
    secret.args(["--header", "Authorization"]).env("T", "0123456789abcdef");
    assert!(secret.output().unwrap().status.success());
    for (line, expected) in [
        ("burrow exec w", &["web", "worker"][..]),
        ("burrow exec we", &["web"]),
        ("burrow rm web wor", &["worker"]),
        ("burrow snapshot rm b", &["before"]),
        ("burrow create --from b", &["before"]),
        ("burrow create --image deb", &["debian"]),
        ("burrow create --set ou", &["ours"]),
        ("burrow volume rm d", &["data"]),
        ("burrow secret rm t", &["token"]),
        ("burrow snapshot creat", &["create"]),
        ("burrow exec nothing-begins-like-this", &[]),
    ] {
        let found = in_bash(&daemon, line);
        let mut found: Vec<&str> =
            found.iter().map(String::as_str).filter(|found| !found.is_empty()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{line}");
    }
    // The script for fish calls the program like this; that for zsh is sourced by a shell that the host may not have.
    let mut fish = daemon.command(&["--", "burrow", "inspect", "wo"]);
    let answer = fish.env("BURROW_COMPLETE", "fish").output().unwrap();
    assert_eq!(text(&answer.stdout).trim(), "worker");
    assert!(daemon.ok(&["completion", "zsh"]).contains("BURROW_COMPLETE"));
    assert!(daemon.ok(&["completion", "fish"]).contains("BURROW_COMPLETE=fish"));
}

#[test]
fn completion_without_a_daemon_is_empty_and_silent() {
    let daemon = Daemon::start();
    daemon.create("web");
    let complete = |url: &str, key: &str, words: &[&str]| -> Output {
        let mut command = Command::new(burrow());
        command.arg("--").args(words).env("BURROW_COMPLETE", "fish").stdin(Stdio::null());
        command.env("BURROW_URL", url).env("BURROW_API_KEY", key).output().unwrap()
    };
    // From the command line; the environment names no daemon.
    let (url, key) = (daemon.url(), daemon.key());
    let given =
        complete("http://127.0.0.1:1", "none", &["burrow", "--url", &url, "--key", &key, "inspect", "w"]);
    assert_eq!(text(&given.stdout).trim(), "web");
    for (url, key) in
        [("http://127.0.0.1:1", "none"), (url.as_str(), "wrong"), ("not a url", "none"), ("", "")]
    {
        let output = complete(url, key, &["burrow", "inspect", "w"]);
        assert!(output.status.success(), "{url}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{url}: {output:?}");
    }
    let mut unknown = Command::new(burrow());
    unknown.args(["--", "burrow", ""]).env("BURROW_COMPLETE", "tcsh").stdin(Stdio::null());
    let output = unknown.output().unwrap();
    assert!(output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn nothing_that_is_not_a_terminal_gets_a_carriage_return() {
    let daemon = Daemon::start();
    daemon.create("web");
    let folder = tempfile::tempdir().unwrap();
    let (file, archive) = (folder.path().join("file"), folder.path().join("archive"));
    std::fs::write(&file, vec![b'x'; 8 << 20]).unwrap();
    daemon.ok(&["snapshot", "create", "web", "--name", "before"]);
    for arguments in [
        &["cp", file.to_str().unwrap(), "web:/root/file"][..],
        &["cp", "web:/root/file", file.to_str().unwrap()],
        &["export", "before", archive.to_str().unwrap()],
        &["import", archive.to_str().unwrap()],
        &["fork", "web", "--count", "2"],
        &["hibernate", "web"],
        &["wake", "web"],
        &["backup", "-o", folder.path().join("backup").to_str().unwrap()],
    ] {
        let output = daemon.cli(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.contains(&b'\r') && !said.contains(&0x1b), "{arguments:?}: {}", text(&said));
    }
}
