//! Dumps and restores that are interrupted by the death of the daemon.

use std::process::{Child, Command};

use burrow_runtime::{DumpOptions, Machine, RestoreOptions, Runtime as _};

use super::support::{self, Host, Plot, await_counting, later, poll, unified};
use super::survive::is_closed;
use super::{LIMITS, assert_nothing_left, boot, dump, plainly};

/// The task of the other daemon: parent of the cgroups, directory, sandbox, root, images, and the machine or the
/// description of its dump.
const ERRAND: &str = "BURROW_TEST_ERRAND";

/// Acts as the daemon that dies: this program, started again with a task. Does nothing without one.
#[tokio::test]
async fn another_daemon_runs_its_errand() {
    let Ok(errand) = std::env::var(ERRAND) else { return };
    let [parent, directory, id, root, images, what]: [String; 6] = serde_json::from_str(&errand).unwrap();
    let runtime = support::open(&parent, directory.as_ref(), support::guest(), Some(support::criu()));
    let (id, root, images) = (id.parse().unwrap(), root.into(), images.into());
    match serde_json::from_str::<Machine>(&what) {
        Ok(machine) => {
            drop(runtime.dump(&id, DumpOptions { machine, root, images, mounts: Vec::new() }).await)
        }
        Err(_) => {
            let options = RestoreOptions {
                root,
                images,
                about: what,
                attachment: later(),
                limits: LIMITS,
                hostname: None,
                mounts: Vec::new(),
                introduce: None,
                trial: false,
            };
            drop(runtime.restore(&id, options).await);
        }
    }
}

fn send_another(host: &Host, plot: &Plot, images: &std::path::Path, what: String) -> Child {
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let errand = [
        host.parent().to_owned(),
        text(host.directory.path()),
        plot.id.to_string(),
        text(&plot.root),
        text(images),
        what,
    ];
    Command::new(std::env::current_exe().unwrap())
        .args(["interrupted::another_daemon_runs_its_errand", "--exact", "--quiet"])
        .env(ERRAND, serde_json::to_string(&errand).unwrap())
        .spawn()
        .unwrap()
}

fn kill(mut daemon: Child) {
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

/// Kills a daemon as soon as the machine is frozen for its dump, until a dump was incomplete at that moment.
async fn interrupt_dump(host: &Host, plot: &Plot, machine: &Machine) {
    let under_way = host.directory.path().join("run/criu").join(plot.id.as_str()).join("dumping");
    for _ in 0..20 {
        let daemon = send_another(host, plot, &host.images(), serde_json::to_string(machine).unwrap());
        poll("the dump to begin", || host.is_frozen(&plot.id));
        kill(daemon);
        if under_way.exists() {
            return;
        }
        host.runtime.resume(&plot.id).await.unwrap();
    }
    panic!("no dump could be interrupted");
}

#[tokio::test]
async fn an_interrupted_dump_is_recovered() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["keep 200", "second", "close"]).await;
    for paused in [false, true] {
        interrupt_dump(&host, &plot, &machine).await;
        let again =
            support::open(host.parent(), host.directory.path(), support::guest(), Some(support::criu()));
        again.recover(&plot.id, &machine, paused).await.unwrap();
        assert_eq!(host.is_frozen(&plot.id), paused);
        assert!(is_closed(machine.pid));
        assert!(!unified().join(format!("{}.aside", host.group(&plot.id))).exists());
        again.recover(&plot.id, &machine, false).await.unwrap();
        await_counting(&plot);
    }
    // It can be dumped like any other.
    dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// A held process has the registers of our call: it must not resume with them.
#[tokio::test]
async fn a_daemon_killed_while_the_processes_are_held_leaves_them_intact() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second", "close"]).await;
    let status = format!("/proc/{}/status", machine.pid);
    let is_held = || !std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n");
    for later_us in (0..600).step_by(20) {
        let daemon = send_another(&host, &plot, &host.images(), serde_json::to_string(&machine).unwrap());
        while !is_held() {
            std::hint::spin_loop();
        }
        let held = std::time::Instant::now();
        while held.elapsed() < std::time::Duration::from_micros(later_us) {
            std::hint::spin_loop();
        }
        kill(daemon);
        host.runtime.recover(&plot.id, &machine, false).await.unwrap();
        assert!(is_closed(machine.pid));
        await_counting(&plot);
    }
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

#[tokio::test]
async fn destroying_a_machine_also_ends_its_interrupted_dump() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["keep 200", "close"]).await;
    interrupt_dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    host.runtime.ended(&machine).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// At any moment, with all state that leaves traces in the files while it is restored.
#[tokio::test]
async fn an_interrupted_restore_is_destroyed_and_can_be_repeated() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["hold 7711", "keep 64", "second", "close"]).await;
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let (at, _) = plot.count().unwrap();
    for later_ms in [0, 5, 10, 15, 20, 30, 40, 60] {
        let daemon = send_another(&host, &plot, &kept.images, kept.dumped.about.clone());
        let processes = unified().join(host.group(&plot.id)).join("cgroup.procs");
        poll("the restore to begin", || {
            std::fs::read_to_string(&processes).is_ok_and(|pids| !pids.is_empty())
        });
        tokio::time::sleep(std::time::Duration::from_millis(later_ms)).await;
        kill(daemon);
        assert!(host.runtime.inventory().await.unwrap().contains(&plot.id));
        host.runtime.destroy(&plot.id).await.unwrap();
        assert_nothing_left(&host, &plot.id).await;
        assert_eq!(plot.count().unwrap().0, at, "nothing has run");
    }
    let restored = super::restore(&host, &plot, plainly(&plot, &kept)).await;
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
    host.runtime.ended(&restored).await.unwrap();
    let left: Vec<_> =
        std::fs::read_dir(&plot.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("ghost")), "{left:?}");
}

#[tokio::test]
async fn recovering_an_intact_machine_only_sets_whether_it_runs() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[]).await;
    for paused in [true, true, false, false] {
        host.runtime.recover(&plot.id, &machine, paused).await.unwrap();
        assert_eq!(host.is_frozen(&plot.id), paused);
        assert!(!is_closed(machine.pid));
    }
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}
