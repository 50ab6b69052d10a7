//! Isolation as code inside a machine sees it: the kernel's part of the attack list. Needs root.
//!
//! PID 1 makes each probe itself, as root inside with all capabilities that a machine ever has, so everything that is
//! denied to it is denied to every process inside.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use burrow_network::linux::UID_BASE;
use burrow_runtime::container::seccomp::{self, Verdict};
use burrow_runtime::{BootOptions, Runtime as _};
use support::Host;

/// Boots a machine, makes it try each probe, and compares the answers.
async fn check(probes: &[(&str, &str)]) {
    let host = Host::new();
    let plot = host.plot();
    let commands: Vec<&str> = probes.iter().map(|(command, _)| *command).collect();
    let answers = host.run(&plot, &commands).await;
    for ((command, expected), answer) in probes.iter().zip(&answers) {
        assert_eq!(answer, expected, "{command}");
    }
}

fn errno(number: i32) -> String {
    format!("errno {number}")
}

/// P-K2: only the kernel is shared with the host.
#[tokio::test]
async fn every_namespace_belongs_to_the_machine() {
    let kinds = ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"];
    let host = Host::new();
    let plot = host.plot();
    let commands: Vec<String> = kinds.iter().map(|kind| format!("readlink /proc/self/ns/{kind}")).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let answers = host.run(&plot, &commands).await;
    for (kind, answer) in kinds.iter().zip(answers) {
        let ours = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert!(answer.starts_with(&format!("{kind}:[")), "{answer}");
        assert_ne!(answer, ours.display().to_string());
    }
}

#[tokio::test]
async fn a_machine_only_sees_itself_and_its_name() {
    let host = Host::new();
    let plot = host.plot();
    let commands = [
        "ls /proc",
        "ls /proc/self/fd",
        "cat /proc/1/cgroup",
        "cat /proc/sys/kernel/hostname",
        "cat /etc/hosts",
        "cat /proc/self/uid_map",
    ];
    let answers = host.run(&plot, &commands).await;
    let pids: Vec<&str> = answers[0].split(' ').filter(|name| name.parse::<u32>().is_ok()).collect();
    assert_eq!(pids, ["1"]);
    // The fourth is the directory being listed. (P-K13)
    assert_eq!(answers[1], "0 1 2 3");
    let unified = answers[2].lines().find(|line| line.starts_with("0::")).unwrap();
    assert_eq!(unified, "0::/");
    assert_eq!(answers[3], "test-box\n");
    assert!(answers[4].contains("localhost") && answers[4].contains("test-box"), "{}", answers[4]);
    let map: Vec<&str> = answers[5].split_whitespace().collect();
    assert_eq!((map[0], map[2..].join(" ")), ("0", "65536".to_owned()));
}

#[tokio::test]
async fn capabilities_are_few_and_sudo_grants_no_others() {
    let host = Host::new();
    let plot = host.plot();
    let answers = host.run(&plot, &["cat /proc/self/status", "cat /proc/self/limits"]).await;
    let status: BTreeMap<&str, &str> = answers[0].lines().filter_map(|line| line.split_once(":\t")).collect();
    let kept = "00000000a00405fb";
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(status[set], kept, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!((status["NoNewPrivs"], status["Seccomp"], status["Seccomp_filters"]), ("0", "2", "1"));
    assert_eq!(
        (status["SigIgn"], status["SigBlk"]),
        ("0000000000001000", "0000000000000000"),
        "Rust ignores SIGPIPE"
    );
    assert_eq!(status["Groups"].trim(), "");
    let core = answers[1].lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["1", "1"]);
}

/// P-K7, P-K8: files that show the host are empty, files that affect it cannot be written. Not every kernel has every
/// file.
#[tokio::test]
async fn host_information_in_proc_and_sys_is_hidden() {
    let settings =
        ["kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "fs/binfmt_misc/register"];
    let now = || settings.map(|setting| fs::read(format!("/proc/sys/{setting}")).ok());
    let before = now();
    let mut commands: Vec<String> =
        settings.iter().map(|setting| format!("write /proc/sys/{setting} 1")).collect();
    commands.extend([
        "write /sys/kernel/uevent_helper /x".to_owned(),
        "write /proc/irq/default_smp_affinity 1".to_owned(),
    ]);
    let refused = commands.len();
    for file in ["kcore", "kallsyms", "keys", "key-users", "kmsg", "timer_list", "interrupts"] {
        commands.push(format!("read /proc/{file} 10"));
    }
    let empty_files = commands.len();
    for directory in ["proc/scsi", "proc/acpi", "sys/firmware", "sys/kernel/security", "sys/kernel/debug"] {
        commands.push(format!("ls /{directory}"));
    }
    let host = Host::new();
    let plot = host.plot();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let answers = host.run(&plot, &commands).await;
    for (at, (command, answer)) in commands.iter().zip(&answers).enumerate() {
        let expected = match at {
            at if at < refused => vec![errno(libc::EROFS), errno(libc::EACCES)],
            at if at < empty_files => vec!["0".to_owned()],
            _ => vec![String::new()],
        };
        assert!(expected.contains(answer) || *answer == errno(libc::ENOENT), "{command}: {answer}");
    }
    assert_eq!(now(), before);
    check(&[("write /proc/1/oom_score_adj -1000", &errno(libc::EACCES))]).await;
}

#[tokio::test]
async fn mounts_are_few_and_restricted() {
    let host = Host::new();
    let plot = host.plot();
    let answers = host.run(&plot, &["cat /proc/self/mounts"]).await;
    let mounts: BTreeMap<&str, Vec<&str>> = answers[0]
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .map(|words| (words[1], words[2..4].iter().flat_map(|word| word.split(',')).collect()))
        .collect();
    let has = |point: &str, all: &[&str]| {
        for word in all {
            assert!(mounts[point].contains(word), "{point} lacks {word}: {:?}", mounts[point]);
        }
    };
    has("/proc", &["proc", "nosuid", "nodev", "noexec"]);
    has("/proc/sys", &["proc", "ro"]);
    has("/sys", &["sysfs", "ro", "nosuid", "nodev", "noexec"]);
    has("/dev/pts", &["devpts", "nosuid", "noexec", "max=1024", "ptmxmode=666", "mode=620"]);
    has("/dev/shm", &["tmpfs", "nosuid", "nodev", "noexec", "size=32768k"]);
    has("/proc/meminfo", &[]);
    // A dump copies the contents of a tmpfs; there is one, and `/tmp`, `/run` and `/dev` are on the disk.
    assert_eq!(mounts.values().filter(|words| words.contains(&"tmpfs")).count(), 1);
    for point in mounts.keys() {
        let known = ["/", "/dev/pts", "/dev/shm"].contains(point)
            || point.starts_with("/proc")
            || point.starts_with("/sys");
        assert!(known, "{point}");
    }
}

/// P-K9, and the six devices that work.
#[tokio::test]
async fn the_usual_devices_work_and_no_others_can_be_created() {
    let no = errno(libc::EPERM);
    let no_terminal = errno(libc::ENXIO);
    check(&[
        ("read /dev/zero 10", "10"),
        ("read /dev/urandom 10", "10"),
        ("read /dev/null 10", "0"),
        ("write /dev/null x", "ok"),
        ("write /dev/full x", &errno(libc::ENOSPC)),
        ("read /dev/tty 1", &no_terminal),
        ("readlink /dev/ptmx", "pts/ptmx"),
        ("ls /dev", "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"),
        ("mknod /tmp/disk 60600 2048", &no),
        ("mknod /tmp/mem 20600 257", &no),
        ("mknod /tmp/fifo 10600 0", "0"),
    ])
    .await;
}

/// P-K3, P-K12: the agent and its program cannot be changed, not even by root inside.
#[tokio::test]
async fn the_agents_program_cannot_be_changed_from_inside() {
    let host = Host::new();
    let plot = host.plot();
    let before = fs::read(support::guest()).unwrap();
    let commands = [
        "stat /.burrow/guest",
        "write /.burrow/guest evil",
        "remove /.burrow/guest",
        "rename /.burrow/guest /guest",
        "write /proc/1/exe evil",
        "mknod /.burrow/x 10600 0",
        "mknod /.burrow/empty/x 10600 0",
        "trace-init",
    ];
    let answers = host.run(&plot, &commands).await;
    assert_eq!(answers[0], "65534:65534 100555 rdev 0");
    for (command, answer) in commands.iter().zip(&answers).skip(1).take(6) {
        let refused = [libc::EACCES, libc::ETXTBSY, libc::EPERM].map(errno);
        assert!(refused.contains(answer), "{command}: {answer}");
    }
    assert_eq!(answers[7], format!("exit {}", libc::EPERM), "tracing an agent that is not dumpable");
    assert_eq!(fs::read(plot.root.join(".burrow/guest")).unwrap(), before);
    assert_eq!(fs::read(support::guest()).unwrap(), before);
}

/// P-K6: the whole table, as seen in a machine.
#[tokio::test]
async fn every_system_call_returns_the_result_of_the_table() {
    let host = Host::new();
    let plot = host.plot();
    let last = seccomp::NEWEST_KNOWN + 20;
    let answers = host.run(&plot, &[&format!("calls {last}")]).await;
    let mut seen = 0;
    for pair in answers[0].split(' ') {
        let (number, errno) = pair.split_once(':').unwrap();
        let (number, errno): (u32, i32) = (number.parse().unwrap(), errno.parse().unwrap());
        seen += 1;
        if seccomp::UNFILTERED.contains(&number) {
            continue;
        }
        match seccomp::verdict(number) {
            Verdict::Refused => assert_eq!(errno, libc::EPERM, "{number} should be refused"),
            Verdict::Unknown => assert_eq!(errno, libc::ENOSYS, "{number} should be unknown"),
            // With invalid arguments the kernel returns another error than a missing permission.
            Verdict::Allowed => assert_ne!(errno, libc::EPERM, "{number} should be allowed"),
            Verdict::Judged => {}
        }
    }
    assert_eq!(seen, last + 1);
}

/// Keys and Landlock's restrictions would silently be lost in a dump and a restore.
#[tokio::test]
async fn features_that_no_dump_can_restore_are_unavailable() {
    let calls = [
        format!("call {} 0 0", libc::SYS_pkey_alloc),
        format!("call {} 1", libc::SYS_pkey_free),
        format!("call {} 0 4096 1 1", libc::SYS_pkey_mprotect),
        // LANDLOCK_CREATE_RULESET_VERSION: the first query of every user of Landlock.
        format!("call {} 0 0 1", libc::SYS_landlock_create_ruleset),
        format!("call {} 0 1 0 0", libc::SYS_landlock_add_rule),
        format!("call {} 0 0", libc::SYS_landlock_restrict_self),
    ];
    let expected = errno(libc::ENOSYS);
    let probes: Vec<(&str, &str)> = calls.iter().map(|call| (call.as_str(), expected.as_str())).collect();
    check(&probes).await;
}

/// P-K1, P-K2, P-K4, P-K5, P-K11, P-N4 with an attacker's arguments.
#[tokio::test]
async fn dangerous_calls_are_refused_with_any_arguments() {
    let call = |number: i64, arguments: &str| format!("call {number} {arguments}");
    let refused = errno(libc::EPERM);
    let unknown = errno(libc::ENOSYS);
    let no_family = errno(libc::EAFNOSUPPORT);
    let probes = [
        (call(libc::SYS_unshare, "0x10000000"), &refused),
        (call(libc::SYS_unshare, "0x00020000"), &refused),
        (call(libc::SYS_unshare, "0x40000000"), &refused),
        (call(libc::SYS_clone, "0x10000011 0 0 0 0"), &refused),
        // The kernel ignores the high half, and it must not hide the low one.
        (call(libc::SYS_clone, "0x7fffffff10000011 0 0 0 0"), &refused),
        (call(libc::SYS_clone3, "0 88"), &unknown),
        (call(libc::SYS_setns, "0 0"), &refused),
        (call(libc::SYS_mount, "0 0 0 0 0"), &refused),
        (call(libc::SYS_umount2, "0 0"), &refused),
        (call(libc::SYS_pivot_root, "0 0"), &refused),
        (call(libc::SYS_ioctl, "0 0x5412 0"), &refused),
        (call(libc::SYS_ioctl, "0 0xffffffff00005412 0"), &refused),
        (call(libc::SYS_ioctl, "0 0x50009417 0"), &refused),
        (call(libc::SYS_ioctl, "0 0x5000940e 0"), &refused),
        (call(libc::SYS_settimeofday, "0 0"), &refused),
        (call(libc::SYS_clock_settime, "0 0"), &refused),
        (call(libc::SYS_adjtimex, "0"), &refused),
        (call(libc::SYS_keyctl, "0 0"), &refused),
        (call(libc::SYS_bpf, "0 0 0"), &refused),
        (call(libc::SYS_io_uring_setup, "1 0"), &refused),
        (call(libc::SYS_userfaultfd, "0"), &refused),
        (call(libc::SYS_open_by_handle_at, "0 0 0"), &refused),
        (call(libc::SYS_socket, "38 5 0"), &no_family),
        (call(libc::SYS_socket, "40 1 0"), &no_family),
        // The kernel's own refusal: no process here may create raw packets.
        (call(libc::SYS_socket, "17 3 0"), &refused),
        (call(libc::SYS_socket, "2 3 1"), &refused),
        ("int80".to_owned(), &format!("exit {}", libc::EPERM)),
        (call(0x4000_0000 | libc::SYS_getpid, ""), &refused),
    ];
    let probes: Vec<(&str, &str)> =
        probes.iter().map(|(command, answer)| (command.as_str(), answer.as_str())).collect();
    check(&probes).await;
}

/// The same calls work where they should: a probe that fails for another reason would prove nothing.
#[tokio::test]
async fn harmless_uses_of_the_same_calls_work() {
    let call = |number: i64, arguments: &str| format!("call {number} {arguments}");
    let not_a_terminal = errno(libc::ENOTTY);
    let bad_file = errno(libc::EBADF);
    let probes = [
        (call(libc::SYS_getpid, ""), "1"),
        (call(libc::SYS_unshare, "0x400"), "0"),
        (call(libc::SYS_ioctl, "1 0x5401 0"), not_a_terminal.as_str()),
        (call(libc::SYS_ioctl, "99 0x5401 0"), bad_file.as_str()),
        (call(libc::SYS_socket, "1 1 0"), "3"),
        (call(libc::SYS_socket, "2 1 0"), "4"),
        (call(libc::SYS_socket, "10 1 0"), "5"),
        (call(libc::SYS_socket, "16 3 0"), "6"),
        (call(libc::SYS_personality, "0xffffffff"), "0"),
    ];
    let probes: Vec<(&str, &str)> =
        probes.iter().map(|(command, answer)| (command.as_str(), *answer)).collect();
    check(&probes).await;
}

/// Resources that the kernel counts per user: descriptors in flight, processes, queued signals, bytes of message
/// queues. One machine uses more of each than the limit that the other sets for itself.
const USES_UP: [&str; 4] = ["in-flight 1000", "crowd 30", "queue 1000", "message-queues 3"];
const NEEDS_ONE: [&str; 4] =
    ["send-limited 100", "fork-limited 20", "queue-limited 100", "message-queue-limited 100000"];

#[tokio::test]
async fn limits_that_one_machine_uses_up_do_not_affect_another() {
    assert!(support::has_own_ids(), "the tests' directory is on a file system without idmapped mounts");
    let host = Host::new();
    let (greedy, other) = (host.plot(), host.plot());
    let machine = host.boot(&greedy, &[USES_UP, NEEDS_ONE].concat()).await.unwrap();
    let lacks =
        [libc::ETOOMANYREFS, libc::EAGAIN, libc::EAGAIN, libc::EMFILE].map(|errno| format!("exit {errno}"));
    assert_eq!(greedy.answers()[..4], ["ok", "exit 0", "0", "0"]);
    assert_eq!(greedy.answers()[4..], lacks, "the machine itself has reached the limit");
    let ids = support::base(machine.pid);

    let machine = host.boot(&other, &NEEDS_ONE).await.unwrap();
    assert_ne!(support::base(machine.pid), ids);
    assert_eq!(other.answers(), ["exit 0"; 4]);
    for plot in [greedy, other] {
        host.runtime.destroy(&plot.id).await.unwrap();
    }
}

/// The control of the test above: the same two machines, with the same ids.
#[tokio::test]
async fn machines_with_the_same_ids_share_the_descriptors_in_flight() {
    let host = Host::new();
    let (greedy, other) = (host.plot(), host.plot());
    for (plot, command) in [(&greedy, "in-flight 1000"), (&other, "send-limited 100")] {
        let attachment = support::attachment_with(None);
        let options = BootOptions { attachment, ..support::options(plot, support::LIMITS, &[command]) };
        host.runtime.boot(&plot.id, options).await.unwrap();
    }
    assert_eq!((greedy.answers(), other.answers()), (vec!["ok".to_owned()], vec!["exit 109".to_owned()]));
    for plot in [greedy, other] {
        host.runtime.destroy(&plot.id).await.unwrap();
    }
}

#[tokio::test]
async fn files_have_the_same_owners_on_disk_with_any_ids() {
    let host = Host::new();
    let plot = host.plot();
    fs::write(plot.root.join("of-the-host"), "").unwrap();
    fs::write(plot.root.join("of-a-user"), "").unwrap();
    std::os::unix::fs::chown(plot.root.join("of-a-user"), Some(UID_BASE + 1000), Some(UID_BASE + 7)).unwrap();
    let commands =
        ["stat /of-a-user", "stat /of-the-host", "write /of-the-host x", "stat /.burrow/guest", "stat /"];
    let owner = |answer: &str| answer.split(' ').next().unwrap().to_owned();
    for _ in 0..2 {
        let answers = host.run(&plot, &commands).await;
        let owners = [0, 1, 3, 4].map(|at| owner(&answers[at]));
        assert_eq!(owners, ["1000:7", "65534:65534", "65534:65534", "0:0"]);
        assert_eq!(answers[2], errno(libc::EACCES));
        let made = fs::metadata(plot.root.join("out")).unwrap();
        assert_eq!((made.uid(), made.gid()), (UID_BASE, UID_BASE));
    }
}
