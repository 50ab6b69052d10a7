//! Tests that a machine has all its state after a dump and a restore.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_network::Attachment;
use burrow_runtime::{Ability, BootOptions, Machine, RestoreOptions, Runtime as _};

use super::support::{self, Host, Plot, Script, await_counting, in_network, poll};
use super::{LIMITS, StoredDump, assert_nothing_left, boot, dump, plainly, restore};

pub(super) const PORT: u16 = 7711;
const TOKEN: &str = "not-a-secret";

#[tokio::test]
async fn a_dumped_machine_continues_in_place() {
    let host = Host::keeping();
    assert_eq!(host.runtime.capabilities().hibernate, Ability::Yes);
    let plot = host.plot();
    let machine = boot(&host, &plot, &[&format!("hold {PORT}"), "keep 8"]).await;
    let before = ask(machine.pid);
    let bytes = host.runtime.dump_bytes(&plot.id).await.unwrap();
    assert!(bytes > 12 << 20, "{bytes}");
    assert_eq!(host.runtime.obstacles(&plot.id).await.unwrap(), []);
    let kept = dump(&host, &plot, &machine).await;
    assert!(kept.dumped.paused_us > 0);
    assert!(
        size_of(&kept.images) <= bytes + (4 << 20),
        "the estimate is an upper bound, except for state outside RAM"
    );
    let (at, mark) = plot.count().unwrap();
    assert!(host.runtime.adopt(&plot.id, &machine).await.unwrap());
    assert!(has_remaps(&plot), "a copy of the files must contain the files that a restore needs");

    host.runtime.resume(&plot.id).await.unwrap();
    assert!(!has_remaps(&plot), "and the machine itself must not see them");
    await_counting(&plot);
    let (now, mark_now) = plot.count().unwrap();
    assert!(now > at && mark_now == mark);
    assert_eq!(ask(machine.pid), before);
    let used = host.runtime.cpu_us(&plot.id).await.unwrap();
    poll("the machine to use the processor", || {
        fs::read_to_string(support::unified().join(host.group(&plot.id)).join("cpu.stat"))
            .unwrap()
            .lines()
            .any(|line| line.strip_prefix("usage_usec ").is_some_and(|us| us.parse::<u64>().unwrap() > used))
    });
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

#[tokio::test]
async fn a_machine_is_restored_where_it_was_dumped() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[&format!("hold {PORT}")]).await;
    let before = ask(machine.pid);
    let kept = dump(&host, &plot, &machine).await;
    let (dumped_at, mark) = plot.count().unwrap();
    host.runtime.destroy(&plot.id).await.unwrap();
    host.runtime.ended(&machine).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;

    let restored = restore(&host, &plot, plainly(&plot, &kept)).await;
    assert_ne!(restored, machine);
    assert!(host.runtime.adopt(&plot.id, &restored).await.unwrap());
    assert_eq!(plot.count().unwrap().0, dumped_at, "nothing has run");
    assert!(has_remaps(&plot), "the restore may have to be repeated");
    host.runtime.resume(&plot.id).await.unwrap();
    assert!(!has_remaps(&plot));
    poll("the machine to continue", || plot.count().is_some_and(|(number, _)| number > dumped_at));
    let (number, mark_now) = plot.count().unwrap();
    // A machine that was started again would be counting from one.
    assert!(number < dumped_at + 100_000, "{number}");
    assert_eq!(mark_now, mark);
    assert_eq!(ask(restored.pid), before);

    // To the driver it is a machine like any other.
    host.runtime.pause(&plot.id).await.unwrap();
    host.runtime.resume(&plot.id).await.unwrap();
    assert_eq!(ask(restored.pid), before);
    check_confinement(restored.pid);
    check_limits(&host, &plot);
    host.runtime.destroy(&plot.id).await.unwrap();
    host.runtime.ended(&restored).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

#[tokio::test]
async fn a_machine_booted_from_the_files_of_a_dump_sees_none_of_its_temporary_names() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[&format!("hold {PORT}")]).await;
    dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    assert!(has_remaps(&plot));
    let machine = boot(&host, &plot, &[]).await;
    assert!(!has_remaps(&plot));
    dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    assert!(!has_remaps(&plot));
}

#[tokio::test]
async fn a_restored_machine_can_be_dumped_and_restored_repeatedly() {
    let host = Host::keeping();
    let plot = host.plot();
    let mut machine = boot(&host, &plot, &[&format!("hold {PORT}"), "close"]).await;
    let before = ask(machine.pid);
    let mut last = 0;
    for _ in 0..3 {
        let kept = dump(&host, &plot, &machine).await;
        let (at, _) = plot.count().unwrap();
        assert!(at > last);
        last = at;
        // The existing machine is replaced.
        for _ in 0..2 {
            machine = restore(&host, &plot, plainly(&plot, &kept)).await;
        }
        assert!(is_closed(machine.pid));
        host.runtime.resume(&plot.id).await.unwrap();
        poll("the machine to continue", || plot.count().is_some_and(|(number, _)| number > at));
        assert_eq!(ask(machine.pid), before);
    }
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn an_undumpable_first_process_is_protected_before_during_and_after() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["close"]).await;
    assert!(is_closed(machine.pid));
    let kept = dump(&host, &plot, &machine).await;
    assert!(is_closed(machine.pid));
    let copy = copy_of(&host, &plot);
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    assert!(is_closed(machine.pid));
    host.runtime.destroy(&plot.id).await.unwrap();
    let restored = restore(&host, &copy, plainly(&copy, &kept)).await;
    assert!(is_closed(restored.pid));
    host.runtime.destroy(&copy.id).await.unwrap();
}

#[tokio::test]
async fn a_paused_machine_is_dumped_and_stays_paused() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["close"]).await;
    host.runtime.pause(&plot.id).await.unwrap();
    let (at, _) = plot.count().unwrap();
    let kept = dump(&host, &plot, &machine).await;
    assert_eq!(kept.dumped.paused_us, 0, "it was paused before");
    assert_eq!(plot.count().unwrap().0, at);
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// The real agent, whose sockets, timers and event loop must survive, and whose RAM no process may read.
#[tokio::test]
async fn the_guest_agent_is_dumped_and_answers_again_twice() {
    const WIRING: &str =
        "ip link set lo up; ip address add 10.88.0.1/32 dev lo; ip address add 10.88.0.2/32 dev lo";
    let host = Host::with(&agent(), Some(support::criu()));
    let plot = host.plot();
    let BootOptions { attachment, hostname, .. } = support::options(&plot, LIMITS, &[]);
    let Attachment::Namespaces { user, net, ids } = attachment else { panic!("expected namespaces") };
    in_network(&format!("/proc/{}/fd/{}", std::process::id(), net.as_raw_fd()), WIRING);
    let boot_document = format!(
        r#"{{"generation":1,"token":"{TOKEN}","listen":"10.88.0.2:{PORT}","accept_from":"10.88.0.1",
        "ram_bytes":67108864,"services":[]}}"#
    )
    .into_bytes();
    let attachment = Attachment::Namespaces { user, net, ids };
    let options = BootOptions {
        root: plot.root.clone(),
        attachment,
        hostname,
        limits: LIMITS,
        boot_document,
        template: None,
        mounts: Vec::new(),
    };
    let mut machine = host.runtime.boot(&plot.id, options).await.unwrap();
    let before = ping(machine.pid);
    assert!(before.contains("uptime_ms"), "{before}");
    for _ in 0..2 {
        let kept = dump(&host, &plot, &machine).await;
        host.runtime.destroy(&plot.id).await.unwrap();
        let attachment = Attachment::Later(Arc::new(Script(WIRING)));
        machine = restore(&host, &plot, RestoreOptions { attachment, ..plainly(&plot, &kept) }).await;
        host.runtime.resume(&plot.id).await.unwrap();
        let after = ping(machine.pid);
        assert!(after.contains("uptime_ms"), "{after}");
        assert!(is_closed(machine.pid));
        check_confinement(machine.pid);
    }
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// The shipped agent: a static program.
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

/// Sends a hello and a ping in the agent's frames: length, kind, JSON.
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

/// Queries the stand-in, over its loopback interface, about all state that it holds. A missing answer times out.
pub(super) fn ask(pid: u32) -> String {
    let script =
        format!("ip link set lo up; bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}; timeout 30 cat <&3'");
    in_network(&format!("/proc/{pid}/ns/net"), &script)
}

/// Whether no process inside may read a process: tried as root inside, without the one capability that no process
/// inside has.
pub(super) fn is_closed(pid: u32) -> bool {
    let looked = std::process::Command::new("nsenter")
        .arg(format!("--user=/proc/{pid}/ns/user"))
        .args(["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"])
        .args(["readlink", &format!("/proc/{pid}/exe")])
        .output()
        .unwrap();
    assert!(looked.stderr.is_empty(), "{}", String::from_utf8_lossy(&looked.stderr));
    !looked.status.success()
}

/// A restored machine is confined as the first one was.
fn check_confinement(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in
        ["CapBnd:\t00000000a00405fb", "CapEff:\t00000000a00405fb", "Seccomp:\t2", "Seccomp_filters:\t1"]
    {
        assert!(status.contains(line), "{line} is not in:\n{status}");
    }
    support::base(pid);
    for kind in ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"] {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).unwrap();
        assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
    }
}

/// The limits are the requested ones, not those of the restore.
fn check_limits(host: &Host, plot: &Plot) {
    let pids: Vec<String> = support::trees()
        .iter()
        .filter_map(|tree| fs::read_to_string(tree.join(host.group(&plot.id)).join("pids.max")).ok())
        .collect();
    assert_eq!(pids, [format!("{}\n", LIMITS.pids)]);
}

/// Whether there are names of CRIU's in the machine's top directory.
fn has_remaps(plot: &Plot) -> bool {
    let is_remap = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("link_remap.");
    fs::read_dir(&plot.root).unwrap().any(|entry| is_remap(entry.unwrap()))
}

fn size_of(images: &Path) -> u64 {
    fs::read_dir(images).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// Several machines may be restored from one dump at once, each with its own files.
#[tokio::test(flavor = "multi_thread")]
async fn machines_of_one_dump_run_side_by_side() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second", "close"]).await;
    let kept = dump(&host, &plot, &machine).await;
    let children: Vec<Plot> = (0..3).map(|_| copy_of(&host, &plot)).collect();
    host.runtime.resume(&plot.id).await.unwrap();
    let (dumped_at, mark) = children[0].count().unwrap();
    let [one, two, three] = [0, 1, 2].map(|at| {
        let hostname = Some(format!("child-{at}"));
        RestoreOptions { hostname, ..plainly(&children[at], &kept) }
    });
    let runtime = &host.runtime;
    let (one, two, three): (_, _, _) = tokio::join!(
        runtime.restore(&children[0].id, one),
        runtime.restore(&children[1].id, two),
        runtime.restore(&children[2].id, three)
    );
    let machines: Vec<Machine> = [one, two, three]
        .into_iter()
        .map(|machine| machine.unwrap_or_else(|error| panic!("{error}")))
        .collect();
    for (at, (child, machine)) in children.iter().zip(&machines).enumerate() {
        assert_eq!(child.count().unwrap(), (dumped_at, mark.clone()));
        runtime.resume(&child.id).await.unwrap();
        await_counting(child);
        assert_eq!(name_of(machine.pid), format!("child-{at}"));
        let files = fs::read_to_string(child.root.join("etc/hostname")).unwrap();
        assert_eq!(files, format!("child-{at}\n"));
    }
    assert_eq!(name_of(machine.pid), "test-box", "the first machine keeps its name");
    await_counting(&plot);
    for id in children.iter().map(|child| &child.id).chain([&plot.id]) {
        runtime.destroy(id).await.unwrap();
        assert_nothing_left(&host, id).await;
    }
}

pub(super) fn copy_of(host: &Host, plot: &Plot) -> Plot {
    let copy = host.plot();
    let status = std::process::Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", plot.root.display()))
        .arg(&copy.root)
        .status()
        .unwrap();
    assert!(status.success());
    copy
}

fn name_of(pid: u32) -> String {
    let output = std::process::Command::new("nsenter")
        .arg(format!("--uts=/proc/{pid}/ns/uts"))
        .arg("hostname")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn the_description_of_a_dump_decides_whether_a_restore_is_tried() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &[]).await;
    let kept: StoredDump = dump(&host, &plot, &machine).await;
    let about: serde_json::Value = serde_json::from_str(&kept.dumped.about).unwrap();
    assert_eq!(about["driver"], "container");
    host.runtime.destroy(&plot.id).await.unwrap();
    let tampered = |key: &str, value: serde_json::Value| {
        let mut about = about.clone();
        about[key] = value;
        RestoreOptions { about: about.to_string(), ..plainly(&plot, &kept) }
    };
    let unfit = [
        (tampered("format", 99.into()), "the dump was created by a newer version of Burrow"),
        (tampered("driver", "microvm".into()), "the dump was created by the driver `microvm`"),
        (tampered("arch", "vax".into()), "the dump was created on vax"),
        (tampered("cpu", serde_json::json!(["avx9000"])), "this host's processor lacks `avx9000`"),
        (RestoreOptions { about: "{".to_owned(), ..plainly(&plot, &kept) }, "unreadable"),
    ];
    for (options, expected) in unfit {
        let error = host.runtime.restore(&plot.id, options).await.unwrap_err();
        assert!(matches!(error, burrow_runtime::RuntimeError::Unfit { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_nothing_left(&host, &plot.id).await;
    }
    // Another kernel is no reason to refuse.
    let machine = restore(&host, &plot, tampered("kernel", "5.15.0".into())).await;
    assert!(host.runtime.adopt(&plot.id, &machine).await.unwrap());
    host.runtime.destroy(&plot.id).await.unwrap();
}
