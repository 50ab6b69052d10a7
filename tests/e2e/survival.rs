//! What survives what: a test for each column of the table in `docs/what-survives.md`, and for related failures.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use burrow_model::{DumpId, SandboxId, SnapshotId};

use crate::belongings::{self, ALL, ExpectedBelongings};
use crate::harness::{Daemon, burrow, eventually, run};
use crate::island::{self, CONFIG, Decoy, OUTSIDE, Web};
use crate::survivor;
use crate::zoo;

fn state(daemon: &Daemon, sandbox: &str) -> String {
    daemon.inspect(sandbox)["state"].as_str().unwrap().to_owned()
}

fn entries(folder: &Path) -> BTreeSet<String> {
    let found = fs::read_dir(folder).into_iter().flatten();
    found.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

// === the columns of the table ===

#[test]
fn everything_survives_a_client_a_pause_a_sleep_and_the_daemon() {
    let mut daemon = Daemon::start();
    let all = belongings::give(&daemon, "alpha");
    let check = |daemon: &Daemon, context: &str| {
        all.check(daemon, "alpha", ALL, context);
        all.check_exec(daemon, "alpha", context);
    };

    let mut client = daemon.command(&["exec", "alpha", "--", "sh", "-c", "touch /root/begun; sleep 1000"]);
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("its client's exec", || daemon.holds("alpha", "test -e /root/begun").then_some(()));
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(daemon.holds("alpha", "pgrep -x sleep"), "an exec whose client is gone runs on");
    check(&daemon, "after a client was killed");

    daemon.ok(&["pause", "alpha"]);
    check(&daemon, "after a pause");
    daemon.ok(&["hibernate", "alpha"]);
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    check(&daemon, "after a sleep on disk");
    daemon.ok(&["pause", "alpha"]);
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["wake", "alpha"]);
    check(&daemon, "after a sleep on disk that a pause began");
    daemon.kill();
    daemon.launch();
    assert_eq!(state(&daemon, "alpha"), "running");
    check(&daemon, "after a kill of the daemon");
    daemon.ok(&["hibernate", "alpha"]);
    daemon.kill();
    daemon.launch();
    check(&daemon, "after a kill of the daemon while it slept");
    assert_eq!(daemon.terminate(), Some(0));
    daemon.launch();
    check(&daemon, "after a restart of the daemon, as at an upgrade");
}

#[test]
fn a_restore_brings_back_everything_except_network_rules_and_ports() {
    let daemon = Daemon::start();
    let all = belongings::give(&daemon, "alpha");
    daemon.ok(&["snapshot", "create", "alpha", "--name", "then"]);
    all.check(&daemon, "alpha", ALL, "after a snapshot was taken");
    all.check_exec(&daemon, "alpha", "after a snapshot was taken");
    daemon.sh("alpha", "rm /root/kept; dpkg -r belonging; pkill python3");
    daemon.ok(&["env", "set", "alpha", "STAGE=later"]);
    daemon.ok(&["snapshot", "restore", "then", "--in-place", "alpha", "--yes"]);
    all.check(&daemon, "alpha", ALL, "after a restore in place");
    all.check_exec(&daemon, "alpha", "after a restore in place");

    // A rule that was removed since then stays removed, whatever is restored.
    daemon.ok(&["port", "unpublish", "alpha", &survivor::PORT.to_string()]);
    daemon.ok(&["update", "alpha", "--disallow", "up.example"]);
    daemon.ok(&["snapshot", "restore", "then", "--in-place", "alpha", "--yes"]);
    assert!(!daemon.inspect("alpha")["network"].to_string().contains("up.example"), "a rule was revived");
    daemon.ok(&["update", "alpha", "--allow", "up.example"]);
    all.check(
        &daemon,
        "alpha",
        ExpectedBelongings { published: false, ..ALL },
        "after a second restore in place",
    );
    daemon.ok(&["snapshot", "restore", "then", "--name", "beta"]);
    all.check(&daemon, "beta", ExpectedBelongings { published: false, ..ALL }, "in a new sandbox");
    daemon.ok(&["snapshot", "restore", "then", "--name", "gamma", "--files-only"]);
    let files = ExpectedBelongings { processes: false, published: false };
    all.check(&daemon, "gamma", files, "in a new sandbox of the files only");
}

#[test]
fn a_fork_has_everything_but_what_is_published() {
    let daemon = Daemon::start();
    let all = belongings::give(&daemon, "alpha");
    daemon.ok(&["fork", "alpha", "--count", "2", "--name", "child"]);
    for child in ["child-1", "child-2"] {
        all.check(&daemon, child, ExpectedBelongings { published: false, ..ALL }, child);
    }
    all.check(&daemon, "alpha", ALL, "the parent");
    all.check_exec(&daemon, "alpha", "the parent");
    daemon.ok(&["fork", "alpha", "--name", "plain", "--files-only"]);
    all.check(&daemon, "plain", ExpectedBelongings { processes: false, published: false }, "of files only");
}

#[test]
fn a_stop_and_a_reboot_keep_all_but_processes_and_sleepers_and_snapshots_keep_those_too() {
    let mut daemon = Daemon::start();
    let all = belongings::give(&daemon, "alpha");
    let nothing_runs = ExpectedBelongings { processes: false, published: true };
    for name in ["sleeper", "pausing", "stopped"] {
        daemon.ok(&["fork", "alpha", "--name", name]);
    }
    daemon.ok(&["hibernate", "sleeper"]);
    daemon.ok(&["pause", "pausing"]);
    daemon.ok(&["stop", "stopped"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "whole"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "files", "--files-only"]);
    daemon.sh("alpha", "sync");
    daemon.reboot();
    daemon.launch();
    let after =
        [("alpha", "stopped"), ("sleeper", "hibernated"), ("pausing", "stopped"), ("stopped", "stopped")];
    for (name, expected) in after {
        assert_eq!(state(&daemon, name), expected, "{name} after a reboot");
    }
    daemon.ok(&["start", "alpha"]);
    all.check(&daemon, "alpha", nothing_runs, "after a reboot");
    all.check_exec_lost(&daemon, "alpha", "after a reboot");
    all.check(
        &daemon,
        "sleeper",
        ExpectedBelongings { published: false, ..ALL },
        "one that slept through a reboot",
    );
    daemon.ok(&["start", "pausing", "stopped"]);
    for name in ["pausing", "stopped"] {
        all.check(&daemon, name, ExpectedBelongings { processes: false, published: false }, name);
    }
    daemon.ok(&["snapshot", "restore", "whole", "--in-place", "alpha", "--yes"]);
    all.check(&daemon, "alpha", ALL, "from a snapshot, after a reboot");
    daemon.ok(&["snapshot", "restore", "files", "--in-place", "alpha", "--yes"]);
    all.check(&daemon, "alpha", nothing_runs, "from a snapshot of files, after a reboot");
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    all.check(&daemon, "alpha", nothing_runs, "after a stop and a start");
}

// === clients that disconnect early ===

/// Sends a request, and disconnects as soon as the host shows that its work has begun.
fn leave_during(daemon: &Daemon, arguments: &[&str]) {
    let dumps = daemon.pool().join("dumps");
    let before = entries(&dumps);
    let mut client: Child =
        daemon.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the operation to begin", || {
        (entries(&dumps) != before || client.try_wait().unwrap().is_some()).then_some(())
    });
    let _ = client.kill();
    client.wait().unwrap();
}

#[test]
fn an_operation_is_finished_although_its_client_disconnected() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    leave_during(&daemon, &["snapshot", "create", "alpha", "--name", "taken"]);
    eventually("the snapshot", || {
        daemon.cli(&["snapshot", "inspect", "taken"]).status.success().then_some(())
    });
    leave_during(&daemon, &["fork", "alpha", "--count", "2", "--name", "child"]);
    for child in ["child-1", "child-2"] {
        eventually("a child", || daemon.cli(&["inspect", child]).status.success().then_some(()));
        survivor::goes_on(&before, &survivor::ask(&daemon, child), child);
    }
    leave_during(&daemon, &["hibernate", "alpha"]);
    eventually("it to sleep", || (state(&daemon, "alpha") == "hibernated").then_some(()));
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after all of it");
}

// === connections to the outside ===

/// Keeps a connection to the outside, and reports on request whether it still works.
const REACHING: &str = "import http.server, socket\n\
    out = socket.create_connection(('db.example', 5432), 20); lines = out.makefile('rw'); lines.readline()\n\
    class Handler(http.server.BaseHTTPRequestHandler):\n\
    \x20 def do_GET(self):\n\
    \x20  try: lines.write('word\\n'); lines.flush(); said = lines.readline().strip() or 'closed'\n\
    \x20  except OSError as error: said = 'closed'\n\
    \x20  self.send_response(200); self.end_headers(); self.wfile.write(said.encode())\n\
    \x20 def log_message(self, *_): pass\n\
    http.server.ThreadingHTTPServer(('127.0.0.1', 9000), Handler).serve_forever()\n";

fn through(daemon: &Daemon, sandbox: &str) -> Option<String> {
    let ask = ["exec", sandbox, "--", "curl", "-fsS", "--max-time", "30", "http://127.0.0.1:9000/"];
    let output = daemon.cli(&ask);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn connections_to_the_outside_outlive_a_pause_and_a_snapshot_and_end_with_a_sleep_or_in_a_child() {
    if !island::landed(
        "survival::connections_to_the_outside_outlive_a_pause_and_a_snapshot_and_end_with_a_sleep_or_in_a_child",
    ) {
        return;
    }
    let outside = Decoy::open(OUTSIDE, 5432);
    let mut daemon = Daemon::start_with(CONFIG);
    daemon.ok(&["create", "--name", "alpha", "--allow", "tcp://db.example:5432"]);
    daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", REACHING]);
    let said = eventually("it to be connected", || through(&daemon, "alpha"));
    assert_eq!(said, "word");
    daemon.ok(&["pause", "alpha"]);
    assert_eq!(through(&daemon, "alpha").unwrap(), "word", "after a pause");
    daemon.kill();
    daemon.launch();
    assert_eq!(through(&daemon, "alpha").unwrap(), "word", "after a kill of the daemon");
    daemon.ok(&["snapshot", "create", "alpha"]);
    assert_eq!(through(&daemon, "alpha").unwrap(), "word", "after a snapshot was taken");
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    assert_eq!(through(&daemon, "alpha").unwrap(), "word", "after a fork, in the parent");
    assert_eq!(through(&daemon, "child").unwrap(), "closed", "in the child");
    assert_eq!(outside.hits(), 1, "nobody came but the first");
    daemon.ok(&["hibernate", "alpha"]);
    assert_eq!(through(&daemon, "alpha").unwrap(), "closed", "after a sleep");
    // A closed connection can be opened again, as after a laptop's sleep.
    let talk = "exec 3<>/dev/tcp/db.example/5432; read -u 3 line; echo $line";
    for name in ["alpha", "child"] {
        assert_eq!(daemon.ok(&["exec", name, "--", "timeout", "20", "bash", "-c", talk]), "ready", "{name}");
    }
}

#[test]
fn the_rules_apply_after_a_sleep_although_the_egress_process_died_meanwhile() {
    if !island::landed("survival::the_rules_apply_after_a_sleep_although_the_egress_process_died_meanwhile") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 443, folder.path());
    let daemon = Daemon::start_with(CONFIG);
    let fetch = |sandbox: &str, host: &str| {
        let url = format!("https://{host}/");
        let output = daemon.cli(&["exec", sandbox, "--", "curl", "-fsS", "-k", "--max-time", "20", &url]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let kill_egress = || {
        let process = eventually("an egress process", || daemon.egress_processes().first().copied());
        run(Command::new("kill").args(["-9", &process.to_string()]));
    };
    daemon.ok(&["create", "--name", "alpha", "--allow", "up.example"]);
    // A second sandbox that needs the egress process.
    daemon.create("awake");
    let before = survivor::start(&daemon, "alpha");
    assert!(fetch("alpha", "up.example").is_some());
    daemon.ok(&["hibernate", "alpha"]);
    kill_egress();
    daemon.ok(&["wake", "alpha"]);
    eventually("the network to work again", || fetch("alpha", "up.example"));
    assert!(fetch("alpha", "other.example").is_none());
    assert!(fetch("awake", "up.example").is_none());
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after a sleep and an egress crash");

    // A child may reach the same hosts as its parent, and a rule that is removed from a sleeping sandbox no longer
    // applies when it wakes.
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    eventually("the child's network", || fetch("child", "up.example"));
    assert!(fetch("child", "other.example").is_none());
    daemon.ok(&["hibernate", "alpha"]);
    kill_egress();
    daemon.ok(&["update", "alpha", "--disallow", "up.example"]);
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    eventually("the child's network again", || fetch("child", "up.example"));
    assert!(fetch("alpha", "up.example").is_none(), "a rule that was taken away while it slept");
}

// === failures ===

/// A separate disk for the dumps of a pool, so that a dump that passes the initial space check fails midway.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn under(daemon: &Daemon) -> Self {
        let at = daemon.pool().join("dumps");
        fs::create_dir_all(&at).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M,mode=700", "small-disk"]).arg(&at));
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_disk_that_fills_in_the_middle_of_a_dump_leaves_the_sandbox_running_and_nothing_else() {
    let mut daemon = Daemon::prepare("");
    let disk = SmallDisk::under(&daemon);
    daemon.launch();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    for attempt in [vec!["hibernate", "alpha"], vec!["snapshot", "create", "alpha"], vec!["fork", "alpha"]] {
        let said = daemon.refused(&attempt, 1);
        assert!(said.to_lowercase().contains("space"), "{attempt:?}: {said}");
        assert_eq!(state(&daemon, "alpha"), "running", "{attempt:?}");
        assert_eq!(entries(&disk.0), BTreeSet::new(), "partials, {attempt:?}");
        assert_eq!(entries(&daemon.pool().join("snapshots")), BTreeSet::new(), "partials, {attempt:?}");
        survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), &format!("{attempt:?}"));
        survivor::still_locked(&daemon, "alpha", &format!("{attempt:?}"));
    }
    // The catalog accepts any value.
    daemon.create("beta");
    daemon.ok(&["snapshot", "create", "beta", "--files-only", "--name", "files"]);
    daemon.kill();
    drop(disk);
    daemon.launch();
    daemon.ok(&["hibernate", "alpha"]);
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "once there is room");
}

/// PID 1 of a sandbox, by its pid on the host.
fn first_process(daemon: &Daemon, id: &str) -> u32 {
    let inside = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        numbers.split_whitespace().last() == Some("1") && cgroup.contains(id)
    };
    daemon.inventory().processes.into_iter().find(inside).expect("a running sandbox has a first process")
}

/// D21: sleeping does not depend on the agent's cooperation, and a fork fails if its agent does not answer.
///
/// CRIU sometimes cannot seize a stopped first process, and gives up after a while; then the request is refused, the
/// sandbox is unchanged, and a retry works.
#[test]
fn a_guest_that_hangs_can_be_put_to_sleep_and_other_sandboxes_are_unaffected() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    daemon.create("beta");
    let before = survivor::start(&daemon, "alpha");
    run(Command::new("kill").args(["-STOP", &first_process(&daemon, &id).to_string()]));
    eventually("a snapshot", || {
        let taken = daemon.cli(&["snapshot", "create", "alpha", "--name", "hung"]).status.success();
        assert_eq!(state(&daemon, "alpha"), "running");
        taken.then_some(())
    });
    std::thread::scope(|scope| {
        let forked = scope.spawn(|| daemon.refused(&["fork", "alpha", "--name", "child"], 1));
        while !forked.is_finished() {
            assert_eq!(daemon.sh("beta", "echo well"), "well");
        }
        forked.join().unwrap();
    });
    assert!(!daemon.cli(&["inspect", "child"]).status.success(), "a child that nobody could talk to");
    eventually("it to sleep", || {
        let asleep = daemon.cli(&["hibernate", "alpha"]).status.success();
        assert_eq!(state(&daemon, "alpha"), if asleep { "hibernated" } else { "running" });
        asleep.then_some(())
    });
    daemon.ok(&["wake", "alpha"]);
    assert_eq!(state(&daemon, "alpha"), "running");
    run(Command::new("kill").args(["-CONT", &first_process(&daemon, &id).to_string()]));
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after its agent hung");
    crate::sleep_crash::check_inventory(&daemon, "after its agent hung");
}

/// D12: programs never see the monotonic clocks go backwards, however long they slept, and the date is the host's.
#[test]
fn the_clocks_inside_continue_from_where_they_were_and_the_date_is_the_hosts() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let clocks = "import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns())";
    let look = || {
        let said = daemon.ok(&["exec", "alpha", "--", "python3", "-c", clocks]);
        let clocks: Vec<u128> = said.split(' ').map(|number| number.parse().unwrap()).collect();
        <[u128; 3]>::try_from(clocks).unwrap()
    };
    let date = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let before = look();
    daemon.ok(&["snapshot", "create", "alpha", "--name", "then"]);
    let then = look();
    // A restored sandbox continues from the clocks of its snapshot.
    let steps = [
        (vec!["hibernate", "alpha"], then),
        (vec!["snapshot", "restore", "then", "--in-place", "alpha", "--yes"], before),
    ];
    for (step, before) in steps {
        daemon.ok(&step);
        let early = date();
        let after = look();
        assert!(after[0] >= before[0] && after[1] >= before[1], "{step:?}: {before:?} {after:?}");
        assert!((early..=date()).contains(&after[2]), "{step:?}: {after:?}");
    }
}

/// A process in a cgroup, killed when it is dropped.
struct StrayProcess(Child);

impl StrayProcess {
    fn in_group(group: &Path) -> Self {
        fs::create_dir(group).unwrap();
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self(child)
    }

    fn ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for StrayProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon's groups in the v2 tree.
fn unified(daemon: &Daemon) -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let mount = line.expect("a v2 tree").split(' ').nth(1).unwrap().to_owned();
    Path::new(&mount).join(daemon.cgroup())
}

/// D18: the daemon removes resources of its own that no row names, and leaves foreign ones alone.
#[test]
fn orphaned_snapshots_dumps_and_machines_are_removed_at_the_start_and_no_others() {
    let mut daemon = Daemon::start();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    daemon.ok(&["snapshot", "create", "alpha", "--name", "kept"]);
    daemon.kill();
    let (pool, groups) = (daemon.pool().to_owned(), unified(&daemon));
    let (snapshots, dumps) = (pool.join("snapshots"), pool.join("dumps"));
    let kept = (entries(&snapshots), entries(&dumps), entries(&pool.join("sandboxes")));

    let source = pool.join("sandboxes").join(kept.2.first().unwrap());
    let subvolume = |place: PathBuf, flags: &[&str]| {
        run(Command::new("btrfs").args(["-q", "subvolume", "snapshot"]).args(flags).arg(&source).arg(place));
    };
    subvolume(snapshots.join(SnapshotId::generate().to_string()), &["-r"]);
    subvolume(pool.join("sandboxes").join(SandboxId::generate().to_string()), &[]);
    for name in [DumpId::generate().to_string(), format!("{}.staged", DumpId::generate())] {
        fs::create_dir(dumps.join(&name)).unwrap();
        fs::write(dumps.join(&name).join("pages-1.img"), "pages").unwrap();
    }
    let (machine, worker) = (SandboxId::generate(), SandboxId::generate());
    let mut ours = [
        StrayProcess::in_group(&groups.join(machine.to_string())),
        StrayProcess::in_group(&groups.join(format!("{worker}.aside"))),
    ];
    let foreign = ["notes", "sbx-not-an-id"];
    let mut theirs: Vec<StrayProcess> =
        foreign.iter().map(|name| StrayProcess::in_group(&groups.join(name))).collect();
    for name in foreign {
        fs::create_dir(snapshots.join(name)).unwrap();
        fs::create_dir(dumps.join(name)).unwrap();
    }

    daemon.launch();
    eventually("the strays to be gone", || {
        let gone =
            ours.iter_mut().all(StrayProcess::ended) && !groups.join(format!("{worker}.aside")).exists();
        gone.then_some(())
    });
    let with_foreign = |mut names: BTreeSet<String>| {
        names.extend(foreign.map(str::to_owned));
        names
    };
    eventually("the volumes and dumps to be swept", || {
        let found = (entries(&snapshots), entries(&dumps), entries(&pool.join("sandboxes")));
        let expected = (with_foreign(kept.0.clone()), with_foreign(kept.1.clone()), kept.2.clone());
        (found == expected).then_some(())
    });
    assert!(!groups.join(machine.to_string()).exists());
    assert!(theirs.iter_mut().all(|stray| !stray.ended()), "a process that is not ours was ended");
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "beside strays");
    daemon.ok(&["snapshot", "restore", "kept", "--in-place", "alpha", "--yes"]);
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "from a snapshot beside strays");
    drop(theirs);
    for name in foreign {
        eventually("a foreign group to empty", || fs::remove_dir(groups.join(name)).ok());
        fs::remove_dir(snapshots.join(name)).unwrap();
        fs::remove_dir(dumps.join(name)).unwrap();
    }
}

/// Starts a daemon that must refuse to start, and returns its log.
fn refuses_to_start(daemon: &Daemon) -> String {
    let output = Command::new(burrow()).arg("serve").arg("--config").arg(daemon.config()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    said
}

/// D11: with an older copy of the catalog, everything created since would be removed; with an older copy of the pool,
/// sandboxes would return to an older state.
#[test]
fn a_catalog_and_a_pool_of_different_ages_are_refused_and_nothing_is_changed() {
    let mut daemon = Daemon::start();
    daemon.create("alpha");
    assert_eq!(daemon.terminate(), Some(0));
    let (state, pool) = (daemon.state_dir(), daemon.pool().to_owned());
    let files = ["catalog.db", "catalog.db-wal", "catalog.db-shm"];
    let copy = |from: &Path, to: &Path| {
        for file in files {
            let _ = fs::remove_file(to.join(file));
            if from.join(file).exists() {
                fs::copy(from.join(file), to.join(file)).unwrap();
            }
        }
    };
    let (older, newer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&state, older.path());
    let mark = fs::read(pool.join("epoch")).unwrap();
    daemon.launch();
    daemon.create("beta");
    daemon.sh("beta", "echo kept > /root/file; sync");
    daemon.ok(&["snapshot", "create", "beta", "--files-only"]);
    // Whatever its exit code is.
    daemon.kill();
    copy(&state, newer.path());

    copy(older.path(), &state);
    let (volumes, snapshots) = (entries(&pool.join("sandboxes")), entries(&pool.join("snapshots")));
    let said = refuses_to_start(&daemon);
    assert!(said.contains("the catalog is an older copy") && said.contains("--accept-rollback"), "{said}");
    // If the pool's own mark is rolled back too, as in a copy of the whole pool, the catalog is newer than the pool.
    copy(newer.path(), &state);
    let newest = fs::read(pool.join("epoch")).unwrap();
    fs::write(pool.join("epoch"), &mark).unwrap();
    let said = refuses_to_start(&daemon);
    assert!(said.contains("the pool is an older copy"), "{said}");
    assert_eq!((entries(&pool.join("sandboxes")), entries(&pool.join("snapshots"))), (volumes, snapshots));
    // A catalog without any row for what is in the pool.
    fs::write(pool.join("epoch"), newest).unwrap();
    for file in files {
        let _ = fs::remove_file(state.join(file));
    }
    let said = refuses_to_start(&daemon);
    assert!(said.contains("does not belong to this catalog"), "{said}");
    copy(newer.path(), &state);
    daemon.launch();
    assert_eq!(daemon.sh("beta", "cat /root/file"), "kept");
}

/// D11, for one dump: complete, but not the one that the sandbox was hibernated to.
#[test]
fn an_older_dump_in_place_of_a_newer_one_is_refused_and_the_files_start() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "echo kept > /root/file");
    let dumps = daemon.pool().join("dumps");
    let only = || dumps.join(entries(&dumps).first().unwrap());
    daemon.ok(&["hibernate", "alpha"]);
    let older = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copy(&only(), older.path());
    daemon.ok(&["wake", "alpha"]);
    daemon.ok(&["hibernate", "alpha"]);
    let newer = only();
    fs::remove_dir_all(&newer).unwrap();
    copy(older.path(), &newer);
    let said = daemon.refused(&["wake", "alpha"], 1);
    assert!(
        said.contains("another dump") && said.contains(&*newer.file_name().unwrap().to_string_lossy()),
        "{said}"
    );
    assert_eq!(state(&daemon, "alpha"), "hibernated");
    daemon.ok(&["start", "alpha", "--files-only"]);
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "kept");
}

// === the document ===

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => rust_files(&path, found),
            Some(extension) if extension == "rs" => found.push(path),
            _ => {}
        }
    }
}

/// Every `place::test` that the document names, with places as in the source tree.
fn cited(document: &str) -> Vec<(String, String)> {
    let words = document.split('`').skip(1).step_by(2);
    let pairs = words.filter_map(|word| word.rsplit_once("::"));
    pairs
        .filter(|(_, test)| test.contains('_'))
        .map(|(place, test)| (place.to_owned(), test.to_owned()))
        .collect()
}

#[test]
fn every_test_named_in_the_table_of_what_survives_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let document = fs::read_to_string(root.join("docs/what-survives.md")).unwrap();
    let mut files = Vec::new();
    for parent in ["crates", "tests"] {
        rust_files(&root.join(parent), &mut files);
    }
    let within = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    let files: Vec<(String, String)> =
        files.into_iter().map(|path| (within(&path), fs::read_to_string(&path).unwrap())).collect();
    let cited = cited(&document);
    assert!(cited.len() > 30, "only {} tests are named", cited.len());
    for (place, test) in cited {
        // `crate/file`: a file of this name, or a folder for it, in that crate, or in that suite of `tests`.
        let (folder, file) = place.split_once('/').unwrap_or_else(|| panic!("`{place}` names no crate"));
        let here = |path: &str| {
            let (_, path) = path.split_once('/').unwrap();
            let inner = path.strip_prefix(&format!("{folder}/")).unwrap_or_default();
            let stem = inner.trim_end_matches(".rs");
            stem.ends_with(file) || stem.contains(&format!("{file}/"))
        };
        let declares = |text: &str| {
            text.match_indices(&format!("fn {test}(")).any(|(at, _)| {
                let before: Vec<&str> = text[..at].lines().rev().take(4).collect();
                before.iter().any(|line| line.trim().starts_with("#[") && line.contains("test"))
            })
        };
        let found = files.iter().any(|(path, text)| here(path) && declares(text));
        assert!(found, "docs/what-survives.md names `{place}::{test}`, which is not a test in the tree");
    }
}

#[test]
fn the_list_of_tested_programs_matches_the_table_of_the_zoo() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(root.join("docs/what-survives.md")).unwrap();
    let (_, listed) = document.split_once("### Tested programs").unwrap();
    let (kept, rest) = listed.split_once("- **refused**").unwrap();
    let (refused, _) = rest.split_once("\n\n").unwrap();
    let names = |list: &str, program: &str| {
        let words = |text: &str| {
            let text = text.to_lowercase();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            Vec::from_iter(words.map(str::to_owned))
        };
        let program = words(program);
        words(list).windows(program.len()).any(|found| found == program)
    };
    for program in zoo::all_programs() {
        let list = if zoo::REFUSED.contains(&program) { refused } else { kept };
        assert!(names(list, program), "docs/what-survives.md does not list `{program}` with its outcome");
    }
}
