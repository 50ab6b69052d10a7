//! The environment of a guest that breaks out of its machine, and the effects of such a guest on others.

use std::collections::BTreeMap;
use std::fs;

use burrow_model::Limits;
use burrow_runtime::microvm::Accelerator;
use burrow_runtime::{Ability, Runtime as _, RuntimeError};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Host, LIMITS, open, remove_parents};

/// `/proc/<pid>/status`.
fn status(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(field).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulator_has_no_privileges_no_files_and_no_visible_processes() {
    let host = Host::new();
    let (one, other) = (host.up().await, host.up().await);
    let mut uids = Vec::new();
    for up in [&one, &other] {
        let status = status(up.machine.pid);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set}");
        }
        assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
        let uid = status["Uid"].split_whitespace().next().unwrap().to_owned();
        assert!(uid.parse::<u32>().unwrap() >= 0x4000_0000, "{uid}");
        assert_eq!(status["Groups"], "");
        uids.push(uid);
        for namespace in ["pid", "mnt", "net", "ipc", "uts"] {
            let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
            assert_ne!(link(&up.machine.pid.to_string()), link("self"), "{namespace}");
        }
        let root = format!("/proc/{}/root", up.machine.pid);
        let mut names: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["initrd", "kernel", "qemu"]);
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", up.machine.pid)).unwrap();
        for line in mounts.lines() {
            let options = line.split(' ').nth(3).unwrap();
            assert!(options.starts_with("ro"), "{line}");
        }
    }
    assert_ne!(uids[0], uids[1]);
    for up in [&one, &other] {
        host.runtime.destroy(&up.id).await.unwrap();
    }
}

/// P-K15: a guest can only crash its own kernel.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_guest_affects_no_other() {
    let host = Host::new();
    let (crashing, neighbour) = (host.up().await, host.up().await);
    crashing.start("write /proc/sysrq-trigger c").await;
    host.runtime.ended(&crashing.machine).await.unwrap();
    assert!(!host.runtime.adopt(&crashing.id, &crashing.machine).await.unwrap());
    assert_eq!(neighbour.run("write /root/word fine").await, "ok");
    host.runtime.destroy(&crashing.id).await.unwrap();
    host.runtime.destroy(&neighbour.id).await.unwrap();
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulator_that_does_not_answer_is_killed() {
    let host = Host::new();
    let up = host.up().await;
    let pid = Pid::from_raw(i32::try_from(up.machine.pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let refused = host.runtime.pause(&up.id).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::Step { .. }), "{refused:?}");
    host.runtime.ended(&up.machine).await.unwrap();
    assert!(matches!(host.runtime.resume(&up.id).await, Err(RuntimeError::NoMachine { .. })));
    host.runtime.destroy(&up.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_disk_are_limited_and_the_disk_grows_while_the_machine_runs() {
    let host = Host::new();
    let up = host.up().await;
    let children: u32 = up.run("forks").await.parse().unwrap();
    assert!((10..LIMITS.pids).contains(&children), "{children}");
    let full = up.run("fill /root/large 100").await;
    assert!(full.contains("No space left"), "{full}");
    let larger = Limits { disk_mib: 256, pids: 128, ..LIMITS };
    host.runtime.set_limits(&up.id, &larger).await.unwrap();
    assert_eq!(up.run("fill /root/large 100").await, "ok");
    let more: u32 = up.run("forks").await.parse().unwrap();
    assert!((children + 10..larger.pids).contains(&(children + more)), "{children} {more}");
    let size = fs::metadata(up.root.join(burrow_runtime::microvm::disk::NAME)).unwrap().len();
    assert_eq!(size, 256 << 20);
    host.runtime.destroy(&up.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_shuts_down_ends_and_keeps_its_files_for_the_next_boot() {
    let host = Host::new();
    let up = host.up().await;
    assert_eq!(up.run("write /root/word kept").await, "ok");
    up.start("sleep").await;
    let () = up.ask(&burrow_guest::protocol::Request::Shutdown { grace_ms: 1000 }).await;
    host.runtime.ended(&up.machine).await.unwrap();
    let plot = host.plot_of(up.root.clone()).await;
    let again = host.boot(plot, LIMITS).await.unwrap();
    assert_eq!(again.run("cat /root/word").await, "kept");
    assert_eq!(again.run("cat /proc/sys/kernel/hostname").await, "test-box");
    assert_eq!(again.run("cat /etc/resolv.conf").await, "nameserver 10.88.0.1");
    host.runtime.destroy(&again.id).await.unwrap();
    host.runtime.destroy(&up.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_boots_name_the_step_and_leave_nothing() {
    let host = Host::new();
    let empty = host.plot_of(host.folder("root")).await;
    let error = host.boot(empty, LIMITS).await.err().unwrap();
    assert!(error.to_string().starts_with("could not open the disk"), "{error}");

    let unplugged = burrow_runtime::BootOptions {
        attachment: burrow_network::Attachment::None,
        ..host.plot().await.options(LIMITS)
    };
    let id = burrow_model::SandboxId::generate();
    let error = host.runtime.boot(&id, unplugged).await.unwrap_err();
    assert!(error.to_string().contains("plug in the network"), "{error}");

    let unreadable =
        burrow_runtime::BootOptions { boot_document: b"{}".to_vec(), ..host.plot().await.options(LIMITS) };
    let error = host.runtime.boot(&id, unreadable).await.unwrap_err();
    assert!(error.to_string().contains("read the driver's message: missing field `generation`"), "{error}");
    assert_eq!(host.runtime.inventory().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_removes_a_boot_that_was_cancelled_at_any_moment() {
    let host = Host::new();
    for milliseconds in [0, 1, 10, 100, 500] {
        let plot = host.plot().await;
        let id = plot.id.clone();
        let limit = std::time::Duration::from_millis(milliseconds);
        let _ = tokio::time::timeout(limit, host.runtime.boot(&id, plot.options(LIMITS))).await;
        host.runtime.destroy(&id).await.unwrap();
        assert_eq!(host.runtime.inventory().await.unwrap(), [], "dropped after {milliseconds} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_reports_its_accelerator_and_why() {
    let host = Host::new();
    let probed = open("burrow-test-probe", host.directory.path(), None);
    let acceleration = probed.acceleration().clone();
    eprintln!("machines run by {:?}: {}", acceleration.accelerator, acceleration.reason);
    assert!(!acceleration.reason.is_empty());
    assert_eq!(probed.capabilities().available, Ability::Yes);
    // The chosen accelerator works, tried in the same way as the rejected one.
    assert_eq!(probed.trial().await, Ok(()));
    if acceleration.accelerator == Accelerator::Emulation {
        assert!(
            acceleration.reason.contains("KVM") || acceleration.reason.contains("/dev/kvm"),
            "{acceleration:?}"
        );
    }
    assert_eq!(probed.inventory().await.unwrap(), [], "a trial leaves nothing");
    remove_parents("burrow-test-probe");
}
