//! Tests which parts of a network outlive the daemon, which end with it, and that a release leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use burrow_model::SandboxId;
use burrow_network::linux::{LinuxNetwork, Options};
use burrow_network::{Attachment, Network, SANDBOX_V4};
use support::{Host, eventually, inside};

/// Passes the run directory to the process of [`the_doomed_daemon`].
const DOOMED: &str = "BURROW_TEST_DOOMED_RUN_DIR";

/// A process that is no longer our child; killed when the test ends, even on a panic.
struct Orphan(OwnedFd);

impl Orphan {
    fn find(pid: &str) -> Self {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        Self(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap())
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.0, rustix::process::Signal::KILL);
    }
}

/// Kills and reaps a child process when the test ends, even on a panic.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn net_of(attachment: &Attachment) -> &OwnedFd {
    match attachment {
        Attachment::Namespaces { net, .. } => net,
        Attachment::Later(_) | Attachment::None => panic!("the real driver returns namespaces"),
    }
}

/// Not a test itself: the daemon that the next test starts and kills. It connects a sandbox, starts a process in it,
/// reports that, and waits to be killed.
#[tokio::test]
async fn the_doomed_daemon() {
    let Some(run_dir) = std::env::var_os(DOOMED) else { return };
    let network =
        LinuxNetwork::open(Options { run_dir: PathBuf::from(run_dir), pool_size: 2, own_ids: true }).unwrap();
    let id = SandboxId::generate();
    let link = network.connect(&id).await.unwrap();
    let mut machine = inside(net_of(&link.attachment).as_fd(), || {
        Command::new("sleep").arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    eprintln!("ready {id} {}", machine.id());
    machine.wait().unwrap();
}

#[tokio::test]
async fn a_sandbox_keeps_its_network_when_the_daemon_is_killed() {
    let host = Host::new();
    let mut daemon = KilledOnDrop(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_doomed_daemon", "--nocapture"])
            .env(DOOMED, host.run_dir())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(daemon.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let ready =
        lines.map(|line| line.strip_prefix("ready ").map(str::to_owned)).find_map(|line| line).unwrap();
    let (id, machine) = ready.split_once(' ').unwrap();
    let id: SandboxId = id.parse().unwrap();
    let _machine = Orphan::find(machine);
    let machine_net = File::open(format!("/proc/{machine}/ns/net")).unwrap();
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();

    let network = host.open(0);
    assert_eq!(network.inventory().await.unwrap(), std::slice::from_ref(&id));
    let dial = network.adopt(&id).await.unwrap().expect("the gateway outlived its daemon");
    let _guest = inside(machine_net.as_fd(), || TcpListener::bind((SANDBOX_V4, 4100)).unwrap());
    dial.dial(4100).await.expect("eth0 outlived the daemon as well");

    network.release(&id).await.unwrap();
}

#[tokio::test]
async fn releasing_also_removes_copies_of_the_mount() {
    let host = Host::new();
    let network = host.open(1);
    let id = SandboxId::generate();
    let _link = network.connect(&id).await.unwrap();
    let bystander = KilledOnDrop(Command::new("unshare").args(["-m", "sleep", "600"]).spawn().unwrap());
    let process = bystander.0.id().to_string();
    let copied = |mounts: &[String]| mounts.iter().any(|line| line.contains(id.as_str()));
    let own_mounts = fs::read_link("/proc/self/ns/mnt").unwrap();
    eventually("the bystander has its own mount namespace", || {
        fs::read_link(format!("/proc/{process}/ns/mnt")).is_ok_and(|mounts| mounts != own_mounts)
    });
    assert!(
        copied(&host.mounts_seen_by(&process)),
        "the bystander got a copy, so there is something to undo"
    );

    network.release(&id).await.unwrap();
    assert!(!copied(&host.mounts_seen_by("self")));
    assert!(!copied(&host.mounts_seen_by(&process)));
    assert!(!host.run_dir().join(id.as_str()).exists());
    network.shutdown().await;
}

#[tokio::test]
async fn remove_all_undoes_everything_and_may_be_repeated() {
    let host = Host::new();
    let network = host.open(1);
    for _ in 0..3 {
        network.connect(&SandboxId::generate()).await.unwrap();
    }
    network.shutdown().await;
    drop(network);
    assert_eq!(host.mounts_seen_by("self").len(), 4, "three gateways, and the directory itself");
    for _ in 0..2 {
        LinuxNetwork::remove_all(&host.run_dir()).unwrap();
        assert_eq!(host.mounts_seen_by("self"), [] as [String; 0]);
        assert!(!host.run_dir().exists());
    }
}

#[tokio::test]
async fn opening_twice_mounts_the_run_directory_once_private_and_for_root_only() {
    let host = Host::new();
    let _first = host.open(0);
    let _second = host.open(0);
    let mounts = host.mounts_seen_by("self");
    assert_eq!(mounts.len(), 1, "{mounts:?}");
    assert!(!mounts[0].contains("shared:"), "{mounts:?}");
    assert_eq!(fs::metadata(host.run_dir()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn plain_files_are_not_adopted_and_unknown_files_are_ignored() {
    let host = Host::new();
    let network = host.open(0);
    let id = SandboxId::generate();
    fs::write(host.run_dir().join(id.as_str()), "as after a reboot").unwrap();
    fs::write(host.run_dir().join("foreign"), "").unwrap();
    assert!(network.adopt(&id).await.unwrap().is_none());
    assert_eq!(
        network.inventory().await.unwrap(),
        std::slice::from_ref(&id),
        "it is in the inventory, and release removes it"
    );
    network.release(&id).await.unwrap();
    assert_eq!(network.inventory().await.unwrap(), []);
    assert!(host.run_dir().join("foreign").exists());
    fs::remove_file(host.run_dir().join("foreign")).unwrap();
}

#[test]
fn a_symbolic_link_as_run_directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let run_dir = directory.path().join("net");
    symlink("/tmp", &run_dir).unwrap();
    let refused =
        LinuxNetwork::open(Options { run_dir: run_dir.clone(), pool_size: 0, own_ids: true }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("could not prepare the network's run directory `{}`", run_dir.display())
    );
}

#[tokio::test]
async fn the_warm_pool_is_refilled_and_removed_at_shutdown() {
    let host = Host::new();
    let network = host.open(3);
    eventually("the warm pool is filled", || network.slots_ready() == 3);
    let ids: Vec<SandboxId> = (0..6).map(|_| SandboxId::generate()).collect();
    for id in &ids {
        network.connect(id).await.unwrap();
    }
    eventually("the warm pool is filled again", || network.slots_ready() == 3);
    network.shutdown().await;
    assert_eq!(network.slots_ready(), 0);
    for id in &ids {
        network.release(id).await.unwrap();
    }
}
