//! The privileges that the egress process has dropped.

use std::fs;

use burrow_egress::Egress;

use crate::clients::{hello, send};
use crate::live_test;
use crate::upstreams::{echo, resolver};
use crate::world::{UID, UPSTREAM};

fn status(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

live_test! {
    async fn the_process_has_no_privileges_and_works(world: World) {
        let _upstream = echo(UPSTREAM, 443);
        let (daemon, sandbox) = world.with(&["ok.example"]).await;
        let pid = daemon.supervisor.pid().unwrap();
        let us = std::process::id();
        assert_eq!(status(pid, "Uid"), format!("{UID} {UID} {UID} {UID}"));
        assert_eq!(status(pid, "Gid"), format!("{UID} {UID} {UID} {UID}"));
        assert_eq!(status(pid, "Groups"), "");
        for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
            assert_eq!(status(pid, set), "0000000000000000", "{set}");
        }
        assert_eq!((status(pid, "NoNewPrivs").as_str(), status(pid, "Seccomp").as_str()), ("1", "2"));
        assert_ne!(status(pid, "NSsid"), status(us, "NSsid"), "its own session");
        // In `/proc`, a process that is not dumpable belongs to root, whatever its uid.
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}/environ")).unwrap());
        assert_eq!(owner, 0);
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert_eq!(environment.split(|b| *b == 0).filter(|word| !word.is_empty()).count(), 1, "nothing of the daemon's environment");
        // Every thread is under the filter, including those for lookups, and they work.
        let sent = hello("ok.example");
        assert_eq!(send(&sandbox, "ok.example", 443, &sent).await, sent);
        for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let text = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            assert!(text.contains("Seccomp:\t2"), "{text}");
        }
    }
}

live_test! {
    async fn the_hosts_resolver_is_used_under_the_filter(world: World) {
        let _upstream = echo(UPSTREAM, 443);
        resolver("dns.example", UPSTREAM.parse().unwrap());
        let (daemon, sandbox) = world.with(&["dns.example", "unknown.example"]).await;
        let sent = hello("dns.example");
        assert_eq!(send(&sandbox, "dns.example", 443, &sent).await, sent);
        let target = "https://unknown.example".parse().unwrap();
        let trial = daemon.supervisor.trial(&sandbox.id, &target).await.unwrap();
        let step = trial.steps.last().unwrap();
        assert_eq!((step.name.as_str(), step.ok), ("resolve", false), "{trial:?}");
        assert!(step.detail.contains("unknown.example"), "{trial:?}");
    }
}

live_test! {
    async fn only_its_owner_may_control_it(world: World) {
        let (daemon, _sandbox) = world.with(&[]).await;
        let socket = world.egress_dir().join("control.sock");
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&socket).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        // A client of another uid is rejected even if it can open the socket.
        fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        for folder in [world.egress_dir(), world.egress_dir().parent().unwrap().to_owned()] {
            fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let script = "import socket,sys,os; os.setuid(65534); s=socket.socket(socket.AF_UNIX); s.settimeout(10); \
                      s.connect(sys.argv[1]); sys.exit(0 if s.recv(10)==b'' else 1)";
        let output = std::process::Command::new("python3").args(["-c", script]).arg(&socket).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The daemon is still accepted.
        assert_eq!(daemon.supervisor.attached().await.unwrap().len(), 1);
    }
}
