//! A full disk: requests fail with a clear error, nothing is lost, and everything works again once there is space.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::harness::{Daemon, eventually, run};

/// A small file system on a directory, unmounted when dropped.
#[derive(Debug)]
struct SmallDisk {
    at: PathBuf,
    /// The mounted pool, where its file is on this disk.
    pool: Option<PathBuf>,
}

impl SmallDisk {
    /// Mounts it in place of the daemon's state directory, with the same content.
    fn under_the_state_of(daemon: &Daemon, mib: u32) -> Self {
        let at = daemon.state_dir();
        let kept = tempfile::tempdir().unwrap();
        run(Command::new("cp").arg("-a").arg(at.join(".")).arg(kept.path()));
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}M,mode=700"), "small-disk"])
            .arg(&at));
        run(Command::new("cp").arg("-a").arg(kept.path().join(".")).arg(&at));
        Self { at, pool: None }
    }

    /// A separate disk for a daemon that keeps its pool in a file there, as by default; `pool` is the maximum size of
    /// the pool.
    fn with_the_pool_of(daemon: &Daemon, mib: u64, pool: &str) -> Self {
        let (at, image) = (daemon.state_dir(), daemon.config().with_file_name("disk.img"));
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        let config = fs::read_to_string(daemon.config()).unwrap();
        let path = format!("path = {:?}\n", daemon.pool());
        assert!(config.contains(&path), "{config}");
        fs::write(daemon.config(), config.replace(&path, &format!("size = {pool:?}\n"))).unwrap();
        Self { at, pool: Some(daemon.config().with_file_name("run").join("pool")) }
    }

    /// Writes until the disk is full.
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
        for mounted in self.pool.iter().chain([&self.at]) {
            let _ = Command::new("umount").arg("-l").arg(mounted).output();
        }
    }
}

#[test]
fn a_full_state_directory_refuses_changes_loses_nothing_and_recovers() {
    let mut daemon = Daemon::prepare("");
    let disk = SmallDisk::under_the_state_of(&daemon, 48);
    daemon.launch();
    daemon.create("alpha");
    daemon.sh("alpha", "echo kept > /root/file");
    disk.fill();
    // Each takes much space in the catalog, so that one of the first few does not fit.
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
    // Deleting frees space: it works even now.
    for row in rows.as_array().unwrap().iter().filter(|row| row["name"].is_null()) {
        daemon.ok(&["rm", "--purge", row["id"].as_str().unwrap()]);
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

/// Stores artifacts through a sandbox's own listener, until it is refused; prints how many fit.
const STORE: &str = "n=0; while [ $n -lt 20 ] && head -c 16000000 /dev/urandom > /dev/shm/a && \
    burrow-memory artifact put a$n /dev/shm/a 2>/dev/shm/refused; do n=$((n+1)); done; echo $n";

#[test]
fn no_sandbox_takes_the_disk_from_the_pool_or_the_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seed.burrow");
    let file = file.to_str().unwrap();
    {
        let source = Daemon::start();
        source.create("seed");
        source.ok(&["snapshot", "create", "seed", "--name", "seed"]);
        source.ok(&["export", "seed", file]);
    }
    let mut daemon = Daemon::prepare_empty("");
    let disk = SmallDisk::with_the_pool_of(&daemon, 3 << 10, "64G");
    daemon.launch();
    daemon.ok(&["import", file, "--files-only"]);
    for name in ["greedy", "neighbour"] {
        daemon.ok(&["snapshot", "restore", "seed", "--name", name]);
    }
    daemon.ok(&["update", "greedy", "--disk", "64M"]);
    let stored: u64 = daemon.sh("greedy", STORE).parse().unwrap();
    let refused = daemon.sh("greedy", "cat /dev/shm/refused");
    assert!((1..=4).contains(&stored), "{stored} artifacts of 16 MB: {refused}");
    assert!(refused.contains("disk limit"), "{refused}");

    // A client fills the rest, through a space that is not limited by any sandbox, up to the bytes promised to the
    // pool.
    let large = folder.path().join("large");
    daemon.ok(&["space", "create", "shared"]);
    let mut said = String::new();
    for number in 0..64 {
        // The same content is stored once.
        fs::write(&large, format!("{number}")).unwrap();
        fs::File::options().write(true).open(&large).unwrap().set_len(100 << 20).unwrap();
        let put = ["artifact", "put", "shared", large.to_str().unwrap(), "--name", &format!("a{number}")];
        let output = daemon.cli(&put);
        if !output.status.success() {
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            break;
        }
    }
    assert!(said.contains("not enough disk space") && said.contains("hint: "), "{said}");

    // The bytes promised to the pool are available: a sandbox writes within its quota, and one that fills the pool is
    // refused.
    daemon.sh("neighbour", "head -c 200000000 /dev/urandom > /root/part && sync /root/part");
    daemon
        .sh("neighbour", "head -c 8000000000 /dev/zero | tr '\\0' x > /root/rest; sync; rm /root/rest; sync");
    assert_eq!(daemon.sh("neighbour", "echo kept > /root/file && sync /root/file && cat /root/file"), "kept");
    eventually("the catalog to take changes", || {
        daemon.cli(&["kv", "set", "neighbour", "step", "7"]).status.success().then_some(())
    });
    eventually("a sandbox to be created", || {
        daemon.cli(&["snapshot", "restore", "seed", "--name", "omega"]).status.success().then_some(())
    });
    drop(disk);
}
