//! A full disk: a clear refusal, nothing lost, and everything works again once there is room.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::harness::{Daemon, eventually, run};

/// A small file system on a directory, unmounted when dropped.
#[derive(Debug)]
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Takes the place of the daemon's state directory, with what was in it.
    fn under_the_state_of(daemon: &Daemon, mib: u32) -> Self {
        let at = daemon.state_dir();
        let kept = tempfile::tempdir().unwrap();
        run(Command::new("cp").arg("-a").arg(at.join(".")).arg(kept.path()));
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}M,mode=700"), "small-disk"])
            .arg(&at));
        run(Command::new("cp").arg("-a").arg(kept.path().join(".")).arg(&at));
        Self { at }
    }

    /// Writes until nothing fits any more.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in [1 << 20, 4 << 10] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since the daemon still runs at this point.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

#[test]
fn a_full_state_directory_refuses_changes_keeps_what_is_there_and_recovers() {
    let mut daemon = Daemon::prepare("");
    let disk = SmallDisk::under_the_state_of(&daemon, 48);
    daemon.launch();
    daemon.create("alpha");
    daemon.sh("alpha", "echo kept > /root/file");
    disk.fill();
    // Each takes much room in the catalog, so that one of the first few does not fit.
    let mut taken = 0;
    let error = eventually("the catalog to be full", || {
        let labels =
            json!({ "labels": { "wide": "x".repeat(200) }, "env": { "LARGE": "x".repeat(100_000) } });
        let answer = daemon.post("/v1/sandboxes", &labels);
        if answer.status == 201 {
            taken += 1;
            return None;
        }
        Some(answer.refused(507, "no_space"))
    });
    assert!(!error["hint"].is_null(), "{error}");
    let rows = daemon.json(&["ls", "--json"]);
    assert_eq!(rows.as_array().unwrap().len(), taken + 1, "what was refused is not half there");
    eventually("what was begun to be undone", || {
        (daemon.inventory().volumes.len() == taken + 1).then_some(())
    });
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "kept", "what runs goes on");
    // Deleting is how room is made: it works even now.
    for row in rows.as_array().unwrap().iter().filter(|row| row["name"].is_null()) {
        daemon.ok(&["rm", row["id"].as_str().unwrap()]);
    }
    disk.free();
    let id = eventually("creating to work again", || {
        let answer = daemon.post("/v1/sandboxes", &json!({ "name": "omega" }));
        (answer.status == 201).then(|| answer.json()["id"].as_str().unwrap().to_owned())
    });
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.inspect("omega")["id"], id.as_str());
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "kept");
    assert_eq!(daemon.inventory().volumes.len(), 2);
}

#[test]
fn a_pool_below_its_reserve_takes_no_new_sandbox() {
    let mut daemon = Daemon::prepare("");
    let config = fs::read_to_string(daemon.config()).unwrap();
    let with_reserve =
        |reserve: &str| config.replace("[pool]\n", &format!("[pool]\nreserve = \"{reserve}\"\n"));
    fs::write(daemon.config(), with_reserve("900T")).unwrap();
    daemon.launch();
    let error = daemon.post("/v1/sandboxes", &json!({ "name": "alpha" })).refused(507, "no_space");
    assert!(!error["hint"].is_null(), "{error}");
    let said = daemon.refused(&["create", "--name", "alpha"], 1);
    assert!(said.contains("could not create sandbox `alpha`") && said.contains("hint: "), "{said}");
    assert!(daemon.inventory().sandboxes().is_empty());
    daemon.terminate();
    fs::write(daemon.config(), with_reserve("1M")).unwrap();
    daemon.launch();
    daemon.create("alpha");
}
