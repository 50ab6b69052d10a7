//! Volumes: files that outlive sandboxes, over sleep, forks, restores, crashes and backups.

use std::collections::BTreeSet;
use std::process::Stdio;

use burrow_engine::faults::VOLUME_POINTS;

use crate::harness::Daemon;

fn names(folder: std::path::PathBuf) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Standard error of a command that must fail.
#[track_caller]
fn refused(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.cli(arguments);
    assert!(!output.status.success(), "{arguments:?} was not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn files_on_a_volume_are_shared_between_sandboxes_and_outlive_both() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["volume", "create", "data", "--size", "64M"]);
    assert!(id.starts_with("vol"), "{id}");
    daemon.ok(&["create", "--name", "writer", "--volume", "data:/data"]);
    daemon.ok(&["create", "--name", "reader", "--volume", "data:/srv/data:ro"]);
    daemon.sh("writer", "echo one > /data/file; chown user /data/file; mkdir /data/folder");
    assert_eq!(daemon.sh("reader", "cat /srv/data/file; stat -c %U /srv/data/file"), "one\nuser");
    let tried = daemon
        .sh("reader", "echo two > /srv/data/file; rm -r /srv/data/folder; echo left > /srv/data/x; true");
    assert_eq!(tried, "");
    assert_eq!(daemon.sh("writer", "cat /data/file; ls /data"), "one\nfile\nfolder");
    // No process inside can make a read-only attachment writable, or gain rights through a file.
    let options = daemon.sh("reader", "grep ' /srv/data ' /proc/self/mountinfo | cut -d' ' -f6");
    for option in ["ro", "nosuid", "nodev"] {
        assert!(options.split(',').any(|given| given == option), "{options}");
    }
    assert!(!daemon.holds("reader", "mount -o remount,rw /srv/data"));
    assert!(!daemon.holds("writer", "umount /data"));

    let said = refused(&daemon, &["create", "--volume", "data:/data"]);
    assert!(said.contains("already mounted for writing"), "{said}");
    let said = refused(&daemon, &["volume", "rm", "data", "--yes"]);
    assert!(said.contains("in use"), "{said}");
    // It has its own quota.
    assert!(!daemon.holds("writer", "head -c 200M /dev/zero > /data/big && sync"));
    // This includes copies, which would otherwise share blocks with a file of the machine and not count towards the
    // volume's quota.
    daemon.sh("writer", "rm -f /data/big; head -c 200M /dev/zero > /root/own");
    assert!(!daemon.holds("writer", "cp /root/own /data/big && sync"));
    daemon.sh("writer", "rm -f /data/big /root/own");
    daemon.ok(&["rm", "--purge", "-f", "writer", "reader"]);
    daemon.ok(&["run", "--rm", "--volume", "data:/data", "--", "sh", "-c", "cat /data/file > /data/copy"]);
    assert_eq!(daemon.ok(&["run", "--rm", "--volume", "data:/d:ro", "--", "cat", "/d/copy"]), "one");
    daemon.ok(&["volume", "rm", "data", "--yes"]);
    assert_eq!(names(daemon.pool().join("volumes")), BTreeSet::new());
}

#[test]
fn a_volume_is_attached_after_every_kind_of_sleep_and_a_fork_only_reads() {
    let mut daemon = Daemon::start();
    daemon.ok(&["volume", "create", "data"]);
    daemon.ok(&["create", "--name", "web", "--volume", "data:/data"]);
    daemon.ok(&[
        "exec",
        "-d",
        "web",
        "--",
        "sh",
        "-c",
        "n=0; while [ ! -e /data/stop ]; do n=$((n+1)); echo $n > /data/n.new; mv /data/n.new /data/n; sleep 0.1; done",
    ]);
    let counted = |daemon: &Daemon| -> u64 {
        crate::harness::eventually("a count", || daemon.sh("web", "cat /data/n || true").trim().parse().ok())
    };
    let mut last = counted(&daemon);
    for (down, up) in [("pause", "resume"), ("hibernate", "wake")] {
        daemon.ok(&[down, "web"]);
        daemon.ok(&[up, "web"]);
        last = crate::harness::eventually("the count to go on", || {
            Some(counted(&daemon)).filter(|number| *number > last + 1)
        });
    }
    // A sandbox that has a file open for writing there cannot be changed to a reader.
    daemon.sh("web", "touch /data/stop; while pgrep -x sleep; do sleep 0.2; done >/dev/null");
    daemon.ok(&["fork", "web", "--name", "child"]);
    assert!(daemon.holds("child", "cat /data/n"), "the child sees it");
    assert!(!daemon.holds("child", "echo x > /data/x"), "and does not write");
    assert!(daemon.holds("web", "echo x > /data/x"));
    daemon.ok(&["snapshot", "create", "web", "--name", "good"]);
    daemon.sh("web", "echo later > /data/later; echo later > /root/later");
    daemon.ok(&["snapshot", "restore", "good", "--in-place", "web", "--yes"]);
    assert!(!daemon.holds("web", "cat /root/later"), "its own files went back");
    assert_eq!(daemon.sh("web", "cat /data/later"), "later", "the volume's did not");
    daemon.sh("web", "echo again > /data/later");
    // Over a crash of the daemon, and of the host.
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.sh("web", "cat /data/later"), "again");
    daemon.reboot();
    daemon.launch();
    daemon.ok(&["start", "web"]);
    assert_eq!(daemon.sh("web", "cat /data/later; echo more > /data/later; cat /data/later"), "again\nmore");
}

#[test]
fn a_volume_is_restored_to_its_snapshot_and_others_start_from_it() {
    let daemon = Daemon::start();
    daemon.ok(&["volume", "create", "data"]);
    daemon.ok(&["run", "--rm", "--volume", "data:/data", "--", "sh", "-c", "echo first > /data/file"]);
    let snapshot = daemon.ok(&["volume", "snapshot", "create", "data", "--name", "good"]);
    daemon.ok(&["create", "--name", "web", "--volume", "data:/data"]);
    daemon.sh("web", "echo second > /data/file");
    let said = refused(&daemon, &["volume", "restore", "data", "good", "--yes"]);
    assert!(said.contains("in use"), "{said}");
    daemon.ok(&["stop", "web"]);
    daemon.ok(&["volume", "restore", "data", "good", "--yes"]);
    daemon.ok(&["start", "web"]);
    assert_eq!(daemon.sh("web", "cat /data/file"), "first");
    daemon.ok(&["volume", "create", "copy", "--from", snapshot.trim()]);
    daemon.ok(&["stop", "web"]);
    daemon.ok(&["update", "web", "--volume", "copy:/data"]);
    daemon.ok(&["start", "web"]);
    assert_eq!(daemon.sh("web", "cat /data/file; echo own > /data/file"), "first");
    assert_eq!(daemon.ok(&["run", "--rm", "--volume", "data:/d:ro", "--", "cat", "/d/file"]), "first");
    let listed = daemon.json(&["volume", "ls", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert!(refused(&daemon, &["volume", "rm", "data", "--yes"]).contains("snapshots"));
    daemon.ok(&["volume", "rm", "data", "--snapshots", "--yes"]);
}

#[test]
fn a_kill_at_every_step_of_a_volumes_life_leaves_the_pool_as_the_catalog_says() {
    for point in VOLUME_POINTS {
        let mut daemon = Daemon::start();
        daemon.ok(&["volume", "create", "data"]);
        daemon.ok(&["run", "--rm", "--volume", "data:/data", "--", "sh", "-c", "echo first > /data/file"]);
        daemon.ok(&["volume", "snapshot", "create", "data", "--name", "good"]);
        daemon.ok(&["run", "--rm", "--volume", "data:/data", "--", "sh", "-c", "echo second > /data/file"]);
        daemon.terminate();
        daemon.arm(Some(&format!("{point}=kill")));
        daemon.launch();
        let operation = point.strip_prefix("volume.").unwrap();
        match operation.split('.').next().unwrap() {
            "snapshot" => daemon.cli(&["volume", "snapshot", "create", "data", "--name", "new"]),
            "restore" => daemon.cli(&["volume", "restore", "data", "good", "--yes"]),
            "remove" => daemon.cli(&["volume", "rm", "data", "--snapshots", "--yes"]),
            _ => daemon.cli(&["volume", "create", "new"]),
        };
        daemon.wait_dead();
        daemon.arm(None);
        daemon.launch();
        let volumes = daemon.json(&["volume", "ls", "--json"]);
        let known: BTreeSet<String> =
            volumes.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names(daemon.pool().join("volumes")), known, "{point}");
        let is_removal = operation.starts_with("remove");
        assert_eq!(known.len(), usize::from(!is_removal), "{point}");
        let snapshots = names(daemon.pool().join("volume-snapshots"));
        assert_eq!(snapshots.len(), usize::from(!is_removal), "{point}");
        assert_eq!(names(daemon.pool().join("replacing")), BTreeSet::new(), "{point}");
        if !is_removal {
            let expected = if operation.starts_with("restore") { "first" } else { "second" };
            let found = daemon.ok(&["run", "--rm", "--volume", "data:/d:ro", "--", "cat", "/d/file"]);
            assert_eq!(found, expected, "{point}");
        }
    }
}

#[test]
fn a_backup_brings_volumes_back_with_their_snapshots() {
    let daemon = Daemon::start();
    daemon.ok(&["volume", "create", "data"]);
    daemon.ok(&["create", "--name", "web", "--volume", "data:/data"]);
    daemon.sh("web", "echo first > /data/file; sync");
    daemon.ok(&["volume", "snapshot", "create", "data", "--name", "good"]);
    daemon.sh("web", "echo second > /data/file; sync");
    let archive = tempfile::NamedTempFile::new().unwrap();
    daemon.ok(&["backup", "-o", archive.path().to_str().unwrap()]);
    drop(daemon);
    let mut other = Daemon::prepare_empty("");
    let restored = std::process::Command::new(crate::harness::burrow())
        .args(["backup", "restore", archive.path().to_str().unwrap(), "--config"])
        .arg(other.config())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    other.launch();
    other.ok(&["start", "web"]);
    assert_eq!(other.sh("web", "cat /data/file; echo third > /data/file"), "second");
    other.ok(&["stop", "web"]);
    other.ok(&["volume", "restore", "data", "good", "--yes"]);
    other.ok(&["start", "web"]);
    assert_eq!(other.sh("web", "cat /data/file"), "first");
}
