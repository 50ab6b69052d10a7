//! Shells over SSH: a terminal, a shell that survives its connection, a sandbox that sleeps.

use crate::harness::{Daemon, eventually};
use crate::ssh_client::{CONFIG, SshClient};
use crate::terminal::Terminal;

/// `burrow ssh`, with a home directory of the test.
fn login(daemon: &Daemon, home: &tempfile::TempDir, arguments: &[&str]) -> Terminal {
    let home = home.path().to_str().unwrap();
    Terminal::run_with(daemon, arguments, 100, 30, &[("XDG_CONFIG_HOME", home), ("HOME", home)])
}

/// Logs in until the shell of a lost connection is offered: the loss of a connection is noticed a moment later.
fn come_back(daemon: &Daemon, home: &tempfile::TempDir) -> Terminal {
    eventually("a shell to be offered", || {
        let mut terminal = login(daemon, home, &["ssh", "web"]);
        let offered = eventually("a question or a prompt", || {
            let screen = terminal.screen();
            let offered = screen.contains("q quits: ");
            (offered || screen.contains("# ")).then_some(offered)
        });
        if !offered {
            terminal.type_in("exit\n");
            terminal.exit_code();
        }
        offered.then_some(terminal)
    })
}

#[test]
fn a_shell_has_a_terminal_and_continues_when_its_client_detaches() {
    let mut daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let home = tempfile::tempdir().unwrap();

    let mut first = login(&daemon, &home, &["ssh", "web"]);
    first.wait_for("# ");
    first.type_in("stty size; echo term-$TERM\n");
    first.wait_for("30 100");
    first.wait_for("term-xterm-256color");
    first.resize(120, 40);
    first.type_in("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo re''sized\n");
    first.wait_for("resized");
    // Ctrl-C reaches the program that runs in the shell.
    first.type_in("sleep 1000; echo went-$((40+2))\n");
    first.wait_for("sleep 1000");
    first.type_in("\u{3}");
    first.type_in("kept=mine-$((6*7)); echo no''ted\n");
    first.wait_for("noted");
    assert!(!first.screen().contains("went-42"), "{}", first.screen());
    // The connection is cut.
    drop(first);

    let mut second = come_back(&daemon, &home);
    assert!(second.screen().contains("A shell was left open here"), "{}", second.screen());
    second.type_in("\r");
    second.type_in("echo found-$kept\n");
    second.wait_for("found-mine-42");

    // A second login is not offered a shell that is in use.
    let mut third = login(&daemon, &home, &["ssh", "web"]);
    third.wait_for("# ");
    third.type_in("echo other-$kept-; exit 5\n");
    third.wait_for("other--");
    assert_eq!(third.exit_code(), Some(5));
    assert!(!third.screen().contains("left open"), "{}", third.screen());

    // A restart of the daemon ends the connection, not the shell.
    daemon.terminate();
    assert_eq!(second.exit_code(), Some(255));
    daemon.launch();
    let mut fourth = come_back(&daemon, &home);
    fourth.type_in("1");
    fourth.type_in("echo still-$kept; exit 3\n");
    fourth.wait_for("still-mine-42");
    assert_eq!(fourth.exit_code(), Some(3), "{}", fourth.screen());
}

#[test]
fn a_login_wakes_a_sandbox_and_finds_its_shell_again() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let home = tempfile::tempdir().unwrap();
    let mut first = login(&daemon, &home, &["ssh", "web"]);
    first.wait_for("# ");
    first.type_in("kept=mine-$((6*7)); echo no''ted\n");
    first.wait_for("noted");

    daemon.ok(&["hibernate", "web"]);
    first.wait_for("log in again");
    assert_eq!(first.exit_code(), Some(255));
    let mut second = come_back(&daemon, &home);
    second.type_in("\r");
    second.type_in("echo found-$kept; exit\n");
    second.wait_for("found-mine-42");
    assert_eq!(second.exit_code(), Some(0));

    for sleep in [["pause", "web"], ["hibernate", "web"], ["stop", "web"]] {
        daemon.ok(&sleep);
        assert_eq!(client.ok("web", "echo awake"), "awake\n", "{sleep:?}");
    }
}
