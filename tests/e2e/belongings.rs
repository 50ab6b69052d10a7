//! Gives one sandbox everything that a sandbox can have, and checks what remains after an event.
//!
//! The rows of the table in `docs/what-survives.md`.

use crate::harness::{Daemon, eventually};
use crate::survivor::{self, SurvivorState};

/// A package made and installed inside, with no mirror.
const PACKAGE: &str = "set -e; mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin; cd /tmp\n\
    printf 'Package: belonging\\nVersion: 1\\nArchitecture: all\\nMaintainer: t <t@example.com>\\nDescription: t\\n' > p/DEBIAN/control\n\
    printf '#!/bin/sh\\necho packaged\\n' > p/usr/bin/belonging; chmod 755 p/usr/bin/belonging\n\
    dpkg-deb --root-owner-group --build p belonging.deb >/dev/null; dpkg -i belonging.deb >/dev/null 2>&1";

/// Prints a first line, then one more for each line it is given.
const TALKER: &str =
    "mkfifo /root/talk; exec 3<>/root/talk; echo first words; while read -r line <&3; do echo $line; done";

/// What one sandbox was given.
#[derive(Clone, Debug)]
pub(crate) struct Belongings {
    /// Files, locks, sockets, a connection within, a timer and a shell on a terminal, all in one program.
    told: SurvivorState,
    exec: String,
    network: serde_json::Value,
}

/// What must still exist. Files, packages, variables and the policy must always exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedBelongings {
    /// Processes and all their resources, including the output of execs.
    pub(crate) processes: bool,
    pub(crate) published: bool,
}

pub(crate) const ALL: ExpectedBelongings = ExpectedBelongings { processes: true, published: true };

/// Creates a sandbox with everything.
pub(crate) fn give(daemon: &Daemon, sandbox: &str) -> Belongings {
    daemon.ok(&["create", "--name", sandbox, "--allow", "up.example", "--env", "STAGE=made"]);
    let told = survivor::start(daemon, sandbox);
    daemon.sh(sandbox, PACKAGE);
    daemon.sh(sandbox, "echo kept > /root/kept");
    daemon.ok(&["env", "set", sandbox, "STAGE=set"]);
    daemon.ok(&["port", "publish", sandbox, &survivor::PORT.to_string()]);
    let exec = daemon.ok(&["exec", "-d", sandbox, "--", "sh", "-c", TALKER]);
    eventually("the first words", || daemon.ok(&["logs", &exec]).contains("first words").then_some(()));
    let network = daemon.inspect(sandbox)["network"].clone();
    assert!(network.to_string().contains("up.example"), "{network}");
    let belongings = Belongings { told, exec, network };
    belongings.check(daemon, sandbox, ALL, "as it was given");
    belongings
}

impl Belongings {
    /// Checks everything, in the same sandbox or in another one that was made from it.
    #[track_caller]
    pub(crate) fn check(&self, daemon: &Daemon, sandbox: &str, expected: ExpectedBelongings, context: &str) {
        assert_eq!(daemon.sh(sandbox, "cat /root/kept"), "kept", "files, {context}");
        assert_eq!(daemon.sh(sandbox, "belonging"), "packaged", "packages, {context}");
        assert!(daemon.holds(sandbox, "dpkg -s belonging | grep -q 'ok installed'"), "packages, {context}");
        assert_eq!(daemon.sh(sandbox, "echo $STAGE"), "set", "the environment, {context}");
        assert_eq!(daemon.inspect(sandbox)["network"], self.network, "the network policy, {context}");
        assert_eq!(is_published(daemon, sandbox), expected.published, "the published port, {context}");
        if expected.processes {
            self.check_processes(daemon, sandbox, context);
            if expected.published {
                let host = format!("{}-{sandbox}.localhost", survivor::PORT);
                let answer = daemon.http_open("GET", "/").header("host", &host).send();
                assert_eq!(answer.status, 200, "through the published port, {context}: {}", answer.text());
            }
        } else {
            assert!(survivor::try_ask(daemon, sandbox).is_none(), "processes that should be gone, {context}");
            assert!(!daemon.holds(sandbox, "pgrep -x python3"), "processes, {context}");
        }
    }

    #[track_caller]
    fn check_processes(&self, daemon: &Daemon, sandbox: &str, context: &str) {
        let now = survivor::ask(daemon, sandbox);
        survivor::goes_on(&self.told, &now, context);
        survivor::still_locked(daemon, sandbox, context);
        let later = eventually("its timer to go on", || {
            survivor::try_ask(daemon, sandbox).filter(|later| later.beats > now.beats)
        });
        survivor::goes_on(&now, &later, context);
        // The process of the exec continues to answer, in whichever sandbox it now runs.
        assert!(daemon.holds(sandbox, "echo more > /root/talk"), "{context}");
        let runs = |exec: &serde_json::Value| exec["id"] == self.exec.as_str();
        let execs = daemon.json(&["ps", sandbox, "--json"]);
        if execs.as_array().unwrap().iter().any(runs) {
            eventually("the exec's further words", || {
                let said = daemon.ok(&["logs", sandbox, &self.exec]);
                (said.starts_with("first words\n") && said.ends_with("more")).then_some(())
            });
        }
    }

    /// The exec itself is known and running, with its earlier output.
    #[track_caller]
    pub(crate) fn check_exec(&self, daemon: &Daemon, sandbox: &str, context: &str) {
        let execs = daemon.json(&["ps", sandbox, "--json"]);
        let found = execs.as_array().unwrap().iter().find(|exec| exec["id"] == self.exec.as_str());
        let found = found.unwrap_or_else(|| panic!("the exec is not known, {context}: {execs}"));
        assert_eq!(found["state"], "running", "{context}: {found}");
        assert!(daemon.ok(&["logs", sandbox, &self.exec]).starts_with("first words\n"), "{context}");
    }

    /// The exec is reported as lost.
    #[track_caller]
    pub(crate) fn check_exec_lost(&self, daemon: &Daemon, sandbox: &str, context: &str) {
        let exec = daemon.get(&format!("/v1/sandboxes/{sandbox}/execs/{}", self.exec)).expect(200);
        assert_ne!(exec["state"], "running", "{context}: {exec}");
    }
}

fn is_published(daemon: &Daemon, sandbox: &str) -> bool {
    let ports = daemon.json(&["port", "ls", sandbox, "--json"]);
    let public = |port: &serde_json::Value| port["port"] == survivor::PORT && port["published"] == true;
    ports.as_array().unwrap().iter().any(public)
}
