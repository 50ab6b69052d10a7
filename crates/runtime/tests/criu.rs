//! A machine of this driver can be dumped and restored: that is what its mounts, devices and descriptors are chosen for.
//!
//! Uses CRIU itself, with the options that hibernation will use. Needs root, and CRIU 4.2 or newer.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use burrow_network::Attachment;
use burrow_runtime::{Ability, BootOptions, Machine, Runtime as _};
use support::{Host, Plot, poll, trees, unified};

const PORT: u16 = 7711;
const TOKEN: &str = "not-a-secret";

/// Where the set-up script puts it.
const CRIU: &str = "/usr/local/lib/burrow/criu/sbin/criu";

fn criu() -> PathBuf {
    let path = std::env::var_os("BURROW_CRIU").map_or_else(|| PathBuf::from(CRIU), PathBuf::from);
    assert!(
        path.exists(),
        "CRIU is not at `{}`: run `scripts/get-criu.sh`, or set BURROW_CRIU to one of version 4.2 or newer",
        path.display()
    );
    path
}

#[tokio::test]
async fn a_machine_is_dumped_and_lives_again() {
    let criu = criu();
    let host = Host::with(support::guest(), Some(criu.clone()));
    assert_eq!(host.runtime.capabilities().hibernate, Ability::Yes);
    let plot = host.plot();
    let machine = host.boot(&plot, &[&format!("hold {PORT}")]).await.unwrap();
    assert_eq!(plot.answers(), ["ok"]);
    poll("the machine to count", || plot.count().is_some_and(|(number, _)| number > 10));
    let before = ask(machine.pid);

    let images = host.directory.path().join("images");
    fs::create_dir(&images).unwrap();
    dump(&criu, &host, &plot, &machine, &images);
    host.runtime.ended(&machine).await.unwrap();
    let (dumped_at, mark) = plot.count().unwrap();
    host.runtime.destroy(&plot.id).await.unwrap();

    let restored = restore(&criu, &host, &plot, &images, "ip link set lo up");
    assert_ne!(restored.pid, machine.pid);
    poll("the machine to go on", || plot.count().is_some_and(|(number, _)| number > dumped_at));
    let (number, mark_now) = plot.count().unwrap();
    // A machine that had started anew would be counting from one.
    assert!(number < dumped_at + 100_000, "{number}");
    assert_eq!(mark_now, mark);
    assert_eq!(ask(restored.pid), before);

    // To the driver it is a machine like any other.
    assert!(host.runtime.adopt(&plot.id, &restored).await.unwrap());
    host.runtime.pause(&plot.id).await.unwrap();
    host.runtime.resume(&plot.id).await.unwrap();
    assert_eq!(ask(restored.pid), before);
    check_confinement(restored.pid);
    host.runtime.destroy(&plot.id).await.unwrap();
    host.runtime.ended(&restored).await.unwrap();
}

/// The real agent, whose sockets, timers and event loop must survive, and whose RAM nobody may look at.
#[tokio::test]
async fn the_guest_agent_is_dumped_and_answers_again() {
    const WIRING: &str =
        "ip link set lo up; ip address add 10.88.0.1/32 dev lo; ip address add 10.88.0.2/32 dev lo";
    let criu = criu();
    let host = Host::with(&agent(), Some(criu.clone()));
    let plot = host.plot();
    let BootOptions { attachment, hostname, limits, .. } = support::options(&plot, support::LIMITS, &[]);
    let Attachment::Namespaces { user, net } = attachment else { panic!("namespaces were made") };
    in_network(&format!("/proc/{}/fd/{}", std::process::id(), net.as_raw_fd()), WIRING);
    let boot_document = format!(
        r#"{{"generation":1,"token":"{TOKEN}","listen":"10.88.0.2:{PORT}","accept_from":"10.88.0.1",
        "ram_bytes":67108864,"services":[]}}"#
    )
    .into_bytes();
    let attachment = Attachment::Namespaces { user, net };
    let options = BootOptions { root: plot.root.clone(), attachment, hostname, limits, boot_document };
    let machine = host.runtime.boot(&plot.id, options).await.unwrap();
    let before = ping(machine.pid);
    assert!(before.contains("uptime_ms"), "{before}");

    let images = host.directory.path().join("images");
    fs::create_dir(&images).unwrap();
    dump(&criu, &host, &plot, &machine, &images);
    host.runtime.ended(&machine).await.unwrap();
    host.runtime.destroy(&plot.id).await.unwrap();
    let restored = restore(&criu, &host, &plot, &images, WIRING);
    let after = ping(restored.pid);
    assert!(after.contains("uptime_ms"), "{after}");
    check_confinement(restored.pid);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// The agent as it is shipped: a static program.
fn agent() -> PathBuf {
    let path = std::env::var_os("BURROW_TEST_GUEST").map_or_else(
        || {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
            target.join(format!("{}-unknown-linux-gnu/guest/burrow-guest", std::env::consts::ARCH))
        },
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "the guest agent is not at `{}`: `scripts/test.sh` builds it, or set BURROW_TEST_GUEST",
        path.display()
    );
    path
}

/// Says hello and asks who is there, in the agent's frames: length, kind, JSON.
fn ping(pid: u32) -> String {
    let frame = |json: &str| {
        let mut bytes = u32::try_from(json.len()).unwrap().to_le_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(json.as_bytes());
        bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>()
    };
    let request = frame(&format!(r#"{{"generation":1,"token":"{TOKEN}"}}"#)) + &frame(r#"{"op":"ping"}"#);
    let script = format!(
        "exec 3<>/dev/tcp/10.88.0.2/{PORT}; printf \"{request}\" >&3; head -c 20 <&3; timeout 5 cat <&3"
    );
    in_network(
        &format!("/proc/{pid}/ns/net"),
        &format!("ip route replace local 10.88.0.2 dev lo src 10.88.0.1; bash -c '{script}'"),
    )
}

fn in_network(namespace: &str, script: &str) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net={namespace}"))
        .args(["sh", "-ec", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asks the stand-in, over its own loopback, about all that it holds.
fn ask(pid: u32) -> String {
    let script = format!("ip link set lo up; bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}; cat <&3'");
    in_network(&format!("/proc/{pid}/ns/net"), &script)
}

fn dump(criu: &Path, host: &Host, plot: &Plot, machine: &Machine, images: &Path) {
    let output = Command::new(criu)
        .arg("dump")
        .args(["--tree", &machine.pid.to_string()])
        .args(["--images-dir".as_ref(), images.as_os_str()])
        .args(["--root".as_ref(), plot.root.as_os_str()])
        .args([
            "--log-file",
            "dump.log",
            "-v2",
            "--empty-ns",
            "net",
            "--manage-cgroups=ignore",
            "--tcp-established",
        ])
        .args(["--skip-in-flight", "--file-locks", "--ext-unix-sk", "--link-remap", "--ghost-limit", "64M"])
        .args(["--network-lock", "skip", "--freeze-cgroup"])
        .arg(unified().join(host.group(&plot.id)))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", log(&images.join("dump.log")));
}

/// Restores in fresh cgroups of the same name, with a mount namespace that takes the helper mount away when it ends.
///
/// `wiring` runs in the new network namespace before any socket is made in it.
fn restore(criu: &Path, host: &Host, plot: &Plot, images: &Path, wiring: &str) -> Machine {
    let work = host.directory.path().join("work");
    fs::create_dir(&work).unwrap();
    let hook = work.join("hook");
    let wire = format!(
        "[ \"$CRTOOLS_SCRIPT_ACTION\" = setup-namespaces ] || exit 0\nexec nsenter --net=/proc/$CRTOOLS_INIT_PID/ns/net sh -ec '{wiring}'\n"
    );
    fs::write(&hook, format!("#!/bin/sh\n{wire}")).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let mut script = String::from("set -e\n");
    for tree in trees().into_iter().filter(|tree| tree.join(host.parent()).exists()) {
        let group = tree.join(host.group(&plot.id));
        fs::create_dir(&group).unwrap();
        script.push_str(&format!("echo 0 > {}/cgroup.procs\n", group.display()));
    }
    let root = plot.root.display();
    script.push_str(&format!(
        "exec unshare --cgroup --mount --propagation private sh -c 'mount --bind {root} {root} && exec {criu} restore \
         --images-dir {images} --work-dir {work} --log-file restore.log -v2 --root {root} --empty-ns net \
         --manage-cgroups=ignore --tcp-established --file-locks --ext-unix-sk --link-remap --restore-detached \
         --action-script {work}/hook --pidfile {work}/pid'\n",
        criu = criu.display(),
        images = images.display(),
        work = work.display(),
    ));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", log(&work.join("restore.log")));
    let pid: u32 = fs::read_to_string(work.join("pid")).unwrap().trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start_ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
    Machine { pid, start_ticks, boot_id }
}

/// A restored machine is confined as the first one was.
fn check_confinement(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in
        ["CapBnd:\t00000000a00405fb", "CapEff:\t00000000a00405fb", "Seccomp:\t2", "Seccomp_filters:\t1"]
    {
        assert!(status.contains(line), "{line} is not in:\n{status}");
    }
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap();
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]);
    for kind in ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"] {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).unwrap();
        assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
    }
}

/// What CRIU complained about.
fn log(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("Error") || line.contains("Warn")).collect();
    lines.join("\n")
}
