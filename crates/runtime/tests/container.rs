//! The container driver on a real kernel: boots, limits, ends, adoption. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Limits, MountMode, MountPath, SandboxId};
use burrow_network::Attachment;
use burrow_runtime::conformance::{self, Fixture};
use burrow_runtime::{Ability, BootOptions, Incidents, Machine, Mount, Runtime, RuntimeError};
use rustix::process::{Pid, Signal, kill_process};
use support::{Host, LIMITS, later, options, poll};

struct ContainerFixture {
    host: Host,
}

#[async_trait]
impl Fixture for ContainerFixture {
    fn runtime(&self) -> &dyn Runtime {
        &*self.host.runtime
    }

    async fn options(&self, limits: Limits) -> BootOptions {
        options(&self.host.plot(), limits, &[])
    }

    async fn end_by_itself(&self, _id: &SandboxId, machine: &Machine) {
        kill(machine.pid);
    }

    async fn images(&self) -> PathBuf {
        self.host.images()
    }

    async fn attachment_later(&self) -> Attachment {
        later()
    }

    async fn source(&self) -> PathBuf {
        self.host.volume()
    }

    async fn sees(&self, _id: &SandboxId, machine: &Machine, target: &MountPath) -> Option<MountMode> {
        support::sees(machine.pid, target.as_str())
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_container_driver_conforms() {
    let real = ContainerFixture { host: Host::keeping() };
    assert_eq!(real.host.runtime.capabilities().available, Ability::Yes);
    conformance::all(&real).await;
    assert_eq!(real.host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn writes_to_a_volume_reach_the_host_and_read_only_volumes_do_not_change() {
    let host = Host::new();
    let plot = host.plot();
    let (data, models) = (host.volume(), host.volume());
    for folder in [&data, &models] {
        fs::write(folder.join("file"), "before").unwrap();
        std::os::unix::fs::chown(folder.join("file"), Some(100_000), Some(100_000)).unwrap();
    }
    let mount = |source: &PathBuf, target: &str, mode| Mount {
        source: source.clone(),
        target: target.parse().unwrap(),
        mode,
    };
    let commands = [
        "cat /data/file",
        "write /data/file after!",
        "write /models/file after!",
        "mknod /data/node 20666 103",
    ];
    let mounts = vec![mount(&data, "/data", MountMode::Rw), mount(&models, "/models", MountMode::Ro)];
    let options = BootOptions { mounts, ..options(&plot, LIMITS, &commands) };
    host.runtime.boot(&plot.id, options).await.unwrap();
    let answers = plot.answers();
    assert_eq!((answers[0].as_str(), answers[1].as_str()), ("before", "ok"));
    assert!(answers[2] == "errno 30", "{answers:?}");
    assert!(answers[3] != "ok", "no device can be created there: {answers:?}");
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "after!");
    assert_eq!(fs::read_to_string(models.join("file")).unwrap(), "before");
    assert_eq!(
        fs::read_dir(plot.root.join("data")).unwrap().count(),
        0,
        "its own files contain an empty mount point"
    );
    host.runtime.destroy(&plot.id).await.unwrap();
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounted.contains(data.to_str().unwrap()), "no mount of it is visible on the host");
}

/// Shared content counts against the quota of the file system that wrote it, and a volume has another quota than the
/// machine.
#[tokio::test]
async fn reflinks_work_among_a_machines_own_files_but_not_with_a_volume() {
    let host = Host::new();
    let ioctl = |request: u32| format!("call {} 99 {request:#x} 99", libc::SYS_ioctl);
    let mut commands = [0x4004_9409, 0x4020_940d, 0xc018_9436].map(ioctl).to_vec();
    commands.push(format!("call {} 99 0 99 0 1 0", libc::SYS_copy_file_range));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    // The descriptors are not open, so a call that the filter allows fails with this error.
    let let_through = [libc::EBADF; 4];
    let refused = [libc::EOPNOTSUPP, libc::EOPNOTSUPP, libc::EOPNOTSUPP, libc::EXDEV];
    for (mode, expected) in
        [(None, let_through), (Some(MountMode::Rw), refused), (Some(MountMode::Ro), refused)]
    {
        let plot = host.plot();
        let mount = |mode| Mount { source: host.volume(), target: "/data".parse().unwrap(), mode };
        let mounts = mode.map(mount).into_iter().collect();
        let options = BootOptions { mounts, ..options(&plot, LIMITS, &commands) };
        host.runtime.boot(&plot.id, options).await.unwrap();
        assert_eq!(plot.answers(), expected.map(|errno| format!("errno {errno}")), "{mode:?}");
        host.runtime.destroy(&plot.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_link_in_place_of_a_volumes_mount_point_is_not_followed() {
    let host = Host::new();
    for path in ["elsewhere", "/etc"] {
        let (plot, source) = (host.plot(), host.volume());
        symlink(path, plot.root.join("data")).unwrap();
        fs::create_dir(plot.root.join("elsewhere")).unwrap();
        let mounts = vec![Mount { source, target: "/data/x".parse().unwrap(), mode: MountMode::Rw }];
        let refused =
            host.runtime.boot(&plot.id, BootOptions { mounts, ..options(&plot, LIMITS, &[]) }).await;
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("create the volumes' mount points"), "{error}");
        assert_eq!(fs::read_dir(plot.root.join("elsewhere")).unwrap().count(), 0);
    }
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn a_paused_machine_is_frozen_and_continues_where_it_was() {
    let host = Host::new();
    let plot = host.plot();
    host.boot(&plot, &[]).await.unwrap();
    poll("the machine to count", || plot.count().is_some_and(|(number, _)| number > 3));
    host.runtime.pause(&plot.id).await.unwrap();
    let (paused_at, mark) = plot.count().unwrap();
    // Long enough for dozens of steps of the counter, if it ran.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(plot.count().unwrap().0, paused_at);
    host.runtime.resume(&plot.id).await.unwrap();
    poll("the machine to continue", || plot.count().is_some_and(|(number, _)| number > paused_at));
    assert_eq!(plot.count().unwrap().1, mark);
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_fails_disconnects_or_dies_leaves_nothing() {
    let host = Host::new();
    let plot = host.plot();
    match host.boot(&plot, &["fail"]).await {
        Err(RuntimeError::Boot { step, message, .. }) => {
            assert_eq!((step.as_str(), message.as_str()), ("follow the document", "failed on request"));
        }
        other => panic!("{other:?}"),
    }
    let died = host.boot(&plot, &["die"]).await.unwrap_err();
    assert!(
        died.to_string().ends_with("start the guest agent: the machine ended without a report"),
        "{died}"
    );
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn a_machine_with_a_silent_agent_is_ended_by_dropping_the_boot_and_destroying() {
    let host = Host::new();
    let plot = host.plot();
    let booting = host.boot(&plot, &["hang"]);
    let dropped = tokio::time::timeout(std::time::Duration::from_millis(300), booting).await;
    assert!(dropped.is_err(), "{dropped:?}");
    assert_eq!(host.runtime.inventory().await.unwrap(), std::slice::from_ref(&plot.id));
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn destroy_removes_a_boot_that_was_cancelled_at_any_moment() {
    let host = Host::new();
    for microseconds in [0, 50, 200, 500, 1000, 2000, 4000, 8000] {
        let plot = host.plot();
        let options = options(&plot, LIMITS, &[]);
        let limit = std::time::Duration::from_micros(microseconds);
        let _ = tokio::time::timeout(limit, host.runtime.boot(&plot.id, options)).await;
        host.runtime.destroy(&plot.id).await.unwrap();
        assert_eq!(host.runtime.inventory().await.unwrap(), [], "dropped after {microseconds} µs");
    }
}

#[tokio::test]
async fn failed_boots_name_the_step() {
    let host = Host::new();
    let plot = host.plot();
    let nowhere = BootOptions { root: plot.root.join("missing"), ..options(&plot, LIMITS, &[]) };
    let error = host.runtime.boot(&plot.id, nowhere).await.unwrap_err();
    assert!(error.to_string().starts_with("could not open the root directory"), "{error}");

    let unplugged = BootOptions { attachment: Attachment::None, ..options(&plot, LIMITS, &[]) };
    let error = host.runtime.boot(&plot.id, unplugged).await.unwrap_err();
    assert!(error.to_string().contains("plug in the network"), "{error}");

    let null = || std::fs::File::open("/dev/null").unwrap().into();
    let attachment = Attachment::Namespaces { user: null(), net: null(), ids: None };
    let misplugged = BootOptions { attachment, ..options(&plot, LIMITS, &[]) };
    let error = host.runtime.boot(&plot.id, misplugged).await.unwrap_err();
    assert!(error.to_string().contains("join the user namespace"), "{error}");

    let long = BootOptions { hostname: "x".repeat(300), ..options(&plot, LIMITS, &[]) };
    let error = host.runtime.boot(&plot.id, long).await.unwrap_err();
    assert!(error.to_string().contains("set the host name"), "{error}");
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test]
async fn ram_and_processes_are_limited_and_oom_kills_are_counted() {
    let host = Host::new();
    let plot = host.plot();
    host.boot(&plot, &["forks 1000", "eat 20", "eat 500"]).await.unwrap();
    let answers = plot.answers();
    let (children, stopped) = answers[0].split_once(' ').unwrap();
    assert!(children.parse::<u32>().unwrap() < LIMITS.pids, "{answers:?}");
    assert_eq!(stopped, format!("errno {}", libc::EAGAIN));
    assert_eq!(answers[1..], ["exit 0", "signal 9"]);
    assert_eq!(host.runtime.incidents(&plot.id).await.unwrap(), Incidents { oom_kills: 1 });
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn a_process_of_another_sandbox_is_not_adopted() {
    let host = Host::new();
    let (one, other) = (host.plot(), host.plot());
    let machine = host.boot(&one, &[]).await.unwrap();
    host.boot(&other, &[]).await.unwrap();
    assert!(host.runtime.adopt(&one.id, &machine).await.unwrap());
    assert!(!host.runtime.adopt(&other.id, &machine).await.unwrap());
    host.runtime.destroy(&one.id).await.unwrap();
    host.runtime.destroy(&other.id).await.unwrap();
}

#[tokio::test]
async fn a_prepared_image_boots_like_any_other() {
    let host = Host::new();
    let plot = host.plot();
    host.runtime.prepare_image(&plot.root).await.unwrap();
    assert!(plot.root.join(".burrow/guest").is_file());
    let answers = host.run(&plot, &["cat /proc/meminfo"]).await;
    assert!(answers[0].starts_with("MemTotal:          65536 kB\n"), "{answers:?}");
    let error = host.runtime.prepare_image(&plot.root.join("missing")).await.unwrap_err();
    assert!(error.to_string().starts_with("could not open the root directory in `"), "{error}");
}

/// P-K14: links in place of the machine's mount points are not followed.
#[tokio::test]
async fn links_in_place_of_mount_points_do_not_move_a_mount() {
    let host = Host::new();
    let outside = host.directory.path().join("outside");
    for directory in ["", "pts", "shm"] {
        fs::create_dir_all(outside.join(directory)).unwrap();
    }
    for name in
        ["dev", "proc", "sys", "dev/null", "dev/pts", "dev/shm", "dev/console", ".burrow", "tmp", "etc"]
    {
        let plot = host.plot();
        if name.starts_with("dev/") {
            fs::create_dir(plot.root.join("dev")).unwrap();
        }
        symlink(&outside, plot.root.join(name)).unwrap();
        host.boot(&plot, &["stat /dev/null", "read /proc/self/stat 1"]).await.unwrap();
        let answers = plot.answers();
        assert_eq!(answers, ["0:0 20666 rdev 103", "1"], "{name}");
        host.runtime.destroy(&plot.id).await.unwrap();
        let mut left: Vec<_> =
            fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["pts", "shm"], "{name}");
    }
}

#[tokio::test]
async fn no_mount_of_a_machine_is_visible_on_the_host() {
    let host = Host::new();
    let plot = host.plot();
    host.boot(&plot, &[]).await.unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(plot.id.as_str()), "{mounts}");
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn many_boots_at_once_all_succeed() {
    let host = std::sync::Arc::new(Host::new());
    let mut boots = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let host = std::sync::Arc::clone(&host);
        boots.spawn(async move {
            let plot = host.plot();
            let machine = host.boot(&plot, &[]).await.unwrap();
            host.runtime.destroy(&plot.id).await.unwrap();
            host.runtime.ended(&machine).await.unwrap();
        });
    }
    while let Some(boot) = boots.join_next().await {
        boot.unwrap();
    }
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}
