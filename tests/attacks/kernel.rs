//! P-K1 to P-K3, P-K7 to P-K9 and P-K11: mounts, namespaces, tracing, kernel files, devices, the clock.

use std::path::Path;

use crate::controls::{Processes, unguarded};
use crate::ground::{Ground, Run, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-K1",
        what: "mount proc, bind /, cgroup release_agent",
        sandbox: &[],
        attack: mounts,
        control: mounts_unguarded,
    },
    Row {
        id: "P-K2",
        what: "new namespaces, others' namespaces",
        sandbox: &[],
        attack: namespaces,
        control: namespaces_unguarded,
    },
    Row {
        id: "P-K3",
        what: "trace and read the agent",
        sandbox: &[],
        attack: tracing,
        control: tracing_unguarded,
    },
    Row {
        id: "P-K7",
        what: "write core_pattern and its like",
        sandbox: &[],
        attack: kernel_writes,
        control: kernel_writes_unguarded,
    },
    Row {
        id: "P-K8",
        what: "read kallsyms, kmsg, debugfs",
        sandbox: &[],
        attack: kernel_reads,
        control: kernel_reads_unguarded,
    },
    Row {
        id: "P-K9",
        what: "make and open device nodes",
        sandbox: &[],
        attack: devices,
        control: devices_unguarded,
    },
    Row { id: "P-K11", what: "set the clock", sandbox: &[], attack: clock, control: clock_unguarded },
];

/// Lines `<way> ok` are attempts that worked.
pub(crate) fn worked(run: &Run) -> Vec<String> {
    run.out.lines().filter_map(|line| line.strip_suffix(" ok")).map(str::to_owned).collect()
}

/// None of the probe's attempts succeeded, and it made `count` of them.
fn none_worked(run: &Run, count: usize) -> Finding {
    let worked = worked(run);
    ensure(worked.is_empty(), || format!("{worked:?} worked: {run:?}"))?;
    let made = run.out.lines().filter(|line| line.split(' ').count() >= 2).count();
    ensure(made >= count, || format!("the probe made {made} attempts instead of {count}: {run:?}"))?;
    Ok(format!("{made} attempts refused"))
}

/// All of these attempts succeeded.
fn all_worked(run: &Run, expected: &[&str]) -> Finding {
    let worked = worked(run);
    let missing: Vec<_> = expected.iter().filter(|way| !worked.iter().any(|worked| worked == *way)).collect();
    ensure(missing.is_empty(), || format!("{missing:?} did not work: {run:?}"))?;
    Ok(format!("as the host's root: {}", worked.join(", ")))
}

/// `try NAME COMMAND…` prints whether the command succeeded.
const TRY: &str =
    "try() { n=$1; shift; if \"$@\" >/dev/null 2>&1; then echo \"$n ok\"; else echo \"$n refused\"; fi; }; ";

// --- P-K1

fn mount_probe() -> String {
    format!(
        "{TRY} mkdir -p /m1 /m2 /m3 /m4; try proc mount -t proc x /m1; try bind mount --bind / /m2; \
         try cgroup mount -t cgroup -o pids x /m3; try release_agent test -w /m3/release_agent; \
         try rdma mount -t cgroup -o rdma x /m3; try tmpfs mount -t tmpfs x /m4; \
         try remount mount -o remount,rw /proc/sys; try umount umount /proc/sys"
    )
}

/// Of capabilities(7): those that would make root inside more than an administrator of its own files and users.
const POWERS: [(&str, u32); 14] = [
    ("DAC_READ_SEARCH", 2),
    ("LINUX_IMMUTABLE", 9),
    ("NET_ADMIN", 12),
    ("NET_RAW", 13),
    ("IPC_OWNER", 15),
    ("SYS_MODULE", 16),
    ("SYS_RAWIO", 17),
    ("SYS_PTRACE", 19),
    ("SYS_ADMIN", 21),
    ("SYS_BOOT", 22),
    ("SYS_TIME", 25),
    ("MKNOD", 27),
    ("SYSLOG", 34),
    ("BPF", 39),
];

fn mounts(sandbox: &Sandbox<'_>) -> Finding {
    let note = none_worked(&sandbox.sh(&mount_probe()), 8)?;
    let status = sandbox.sh("sed -n 's/^CapBnd:\\t//p' /proc/self/status");
    let bounding = u64::from_str_radix(status.out.trim(), 16).map_err(|_| format!("{status:?}"))?;
    let held: Vec<&str> =
        POWERS.iter().filter(|(_, bit)| bounding >> bit & 1 == 1).map(|(name, _)| *name).collect();
    ensure(held.is_empty(), || format!("root inside can have {held:?}"))?;
    Ok(format!("{note}; capabilities bounded to {bounding:#x}"))
}

fn mounts_unguarded(ground: &Ground) -> Finding {
    let v1 = std::fs::read_to_string("/proc/mounts")
        .unwrap()
        .lines()
        .any(|line| line.contains(" cgroup rw") && line.contains("pids"));
    let expected: &[&str] =
        if v1 { &["proc", "bind", "tmpfs", "cgroup", "release_agent"] } else { &["proc", "bind", "tmpfs"] };
    all_worked(&ground.unguarded(&mount_probe()), expected)
}

// --- P-K2

/// `pid` is the process whose namespaces and root are tried.
pub(crate) fn namespace_probe(canary: &Path, pid: u32) -> String {
    let canary = canary.display();
    format!(
        "{TRY} try user unshare -Ur true; try mount unshare -m true; try all unshare -Urm true; try net unshare -n true; \
         try pid unshare -pf true; try enter nsenter -t {pid} -m cat {canary}; try root cat /proc/{pid}/root{canary}; \
         try cwd cat /proc/{pid}/cwd/../../../../..{canary}; try path cat {canary}"
    )
}

fn namespaces(sandbox: &Sandbox<'_>) -> Finding {
    let note = none_worked(&sandbox.sh(&namespace_probe(sandbox.ground.canaries.file(), 1)), 9)?;
    // Only the sandbox's own processes are visible.
    let seen =
        sandbox.sh("ps -eo pid= | wc -l; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'");
    let count: u32 = seen.out.lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or(u32::MAX);
    ensure(count < 12, || format!("{count} processes are visible"))?;
    Ok(format!("{note}; {count} processes visible, all its own"))
}

fn namespaces_unguarded(ground: &Ground) -> Finding {
    // This test program: it certainly belongs to the host, whatever else is inaccessible.
    let probe = namespace_probe(ground.canaries.file(), std::process::id());
    all_worked(
        &unguarded(&ground.control_root, Processes::Hosts, &probe),
        &["mount", "net", "pid", "enter", "root"],
    )
}

// --- P-K3

const AGENT_PROBE: &str = include_str!("probes/agent.c");

fn tracing(sandbox: &Sandbox<'_>) -> Finding {
    sandbox.compile("agent", AGENT_PROBE);
    let run = sandbox.sh("/agent 1");
    let note = none_worked(&run, 7)?;
    not_by_the_file_interface(sandbox)?;
    Ok(format!("{note}; nor does the file API read /proc/1"))
}

/// It runs as the agent, which always has access to itself.
pub(crate) fn not_by_the_file_interface(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    for file in ["/proc/1/mem", "/proc/1/environ", "/proc/self/mem", "/proc/1/maps", "/proc/thread-self/mem"]
    {
        let answer = sandbox.ask("GET", &format!("/files?path={file}"));
        ensure((400..500).contains(&answer.status), || {
            format!("the file API read {file}: {}", answer.status)
        })?;
    }
    Ok(())
}

fn tracing_unguarded(ground: &Ground) -> Finding {
    ground.compile_unguarded("agent", AGENT_PROBE);
    // PID 1 is the shell of the control itself.
    all_worked(&ground.unguarded("/agent 1; true"), &["seize", "maps", "readv", "mem", "environ", "getfd"])
}

// --- P-K7

const KERNEL_FILES: [&str; 12] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/vm/swappiness",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// Opens each for writing and writes nothing. A device without content in its place does not count as the file.
fn write_probe() -> String {
    format!(
        "python3 - {} <<'END'\n\
         import os,stat,sys\n\
         for path in sys.argv[1:]:\n\
         \x20 try:\n\
         \x20   fd=os.open(path,os.O_WRONLY)\n\
         \x20   s=os.fstat(fd)\n\
         \x20   null=stat.S_ISCHR(s.st_mode) and s.st_rdev==os.makedev(1,3)\n\
         \x20   print(path, 'covered' if null else 'ok')\n\
         \x20 except OSError as error: print(path, error.errno)\n\
         END\n",
        KERNEL_FILES.join(" ")
    )
}

fn values() -> Vec<Option<String>> {
    KERNEL_FILES[..8].iter().map(|path| std::fs::read_to_string(path).ok()).collect()
}

fn kernel_writes(sandbox: &Sandbox<'_>) -> Finding {
    let before = values();
    let note = none_worked(&sandbox.sh(&write_probe()), KERNEL_FILES.len())?;
    ensure(values() == before, || "a value of the host changed".to_owned())?;
    Ok(format!("{note}; the host's values are as before"))
}

fn kernel_writes_unguarded(ground: &Ground) -> Finding {
    let expected =
        ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/pid_max"];
    all_worked(&ground.unguarded(&write_probe()), &expected)
        .map(|_| "as the host's root they open for writing".to_owned())
}

// --- P-K8

/// Reads nothing of the kernel's log: `/proc/kmsg` is opened, not read.
pub(crate) const READ_PROBE: &str = "import ctypes,os,stat\n\
    def say(name, good): print(name, 'ok' if good else 'refused')\n\
    def null(fd):\n\
    \x20 s=os.fstat(fd); return stat.S_ISCHR(s.st_mode) and s.st_rdev==os.makedev(1,3)\n\
    def readable(path, read=True):\n\
    \x20 try:\n\
    \x20   fd=os.open(path,os.O_RDONLY|os.O_NONBLOCK)\n\
    \x20   if null(fd): return False\n\
    \x20   return bool(os.read(fd,16)) if read else True\n\
    \x20 except OSError: return False\n\
    def listed(path):\n\
    \x20 try: return bool(os.listdir(path))\n\
    \x20 except OSError: return False\n\
    say('kallsyms', readable('/proc/kallsyms'))\n\
    say('kmsg', readable('/proc/kmsg', False))\n\
    say('devkmsg', readable('/dev/kmsg', False))\n\
    say('kcore', readable('/proc/kcore'))\n\
    say('keys', readable('/proc/keys'))\n\
    say('timer_list', readable('/proc/timer_list'))\n\
    say('interrupts', readable('/proc/interrupts'))\n\
    say('firmware', listed('/sys/firmware'))\n\
    say('debugfs', listed('/sys/kernel/debug'))\n\
    say('tracing', listed('/sys/kernel/tracing'))\n\
    say('security', listed('/sys/kernel/security'))\n\
    libc=ctypes.CDLL(None,use_errno=True)\n\
    say('syslog', libc.klogctl(10,None,0)>=0)\n";

fn kernel_reads(sandbox: &Sandbox<'_>) -> Finding {
    none_worked(&sandbox.python(READ_PROBE), 12)
}

fn kernel_reads_unguarded(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/reads.py"), READ_PROBE).unwrap();
    let run = ground.unguarded("mount -t debugfs x /sys/kernel/debug; python3 /reads.py");
    all_worked(&run, &["kallsyms", "kmsg", "syslog"])
}

// --- P-K9

/// `major minor` of the host's first disk.
pub(crate) fn disk() -> Result<(String, String), RowFailure> {
    let partitions = std::fs::read_to_string("/proc/partitions").unwrap();
    let first = partitions.lines().skip(2).find_map(|line| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    });
    first.ok_or_else(|| RowFailure::Skipped("this host shows no disk".to_owned()))
}

fn device_probe() -> Result<String, RowFailure> {
    let (major, minor) = disk()?;
    Ok(format!(
        "{TRY} rm -f /n1 /n2 /n3 /dev/n4; try sda mknod /n1 b 8 0; try mem mknod /n2 c 1 1; \
         try disk mknod /n3 b {major} {minor}; try read dd if=/n3 of=/dev/null bs=512 count=1; \
         try indev mknod /dev/n4 b {major} {minor}; try devread dd if=/dev/n4 of=/dev/null bs=512 count=1; \
         rm -f /n1 /n2 /n3 /dev/n4"
    ))
}

fn devices(sandbox: &Sandbox<'_>) -> Finding {
    let note = none_worked(&sandbox.sh(&device_probe()?), 6)?;
    let nodes =
        sandbox.sh("find / -xdev \\( -type b -o -type c \\) -printf '%p\\n' | sort | tr '\\n' ' '").out;
    let expected = "/dev/full /dev/null /dev/random /dev/tty /dev/urandom /dev/zero";
    ensure(nodes.trim() == expected, || format!("its files hold the devices {nodes}"))?;
    Ok(format!("{note}; its files hold the usual six and no other"))
}

fn devices_unguarded(ground: &Ground) -> Finding {
    all_worked(&ground.unguarded(&device_probe()?), &["sda", "mem", "disk", "read"])
}

// --- P-K11

const CLOCK_PROBE: &str = include_str!("probes/clock.c");

fn clock(sandbox: &Sandbox<'_>) -> Finding {
    sandbox.compile("clock", CLOCK_PROBE);
    let note = none_worked(&sandbox.sh("/clock"), 4)?;
    let date = sandbox.sh("date -s '2001-01-01 00:00:00' && echo set");
    ensure(!date.ok(), || format!("{date:?}"))?;
    let year: u32 = sandbox.sh("date +%Y").out.trim().parse().unwrap_or(0);
    ensure(year > 2020, || format!("the clock is at {year}"))?;
    Ok(format!("{note}, date -s too"))
}

fn clock_unguarded(ground: &Ground) -> Finding {
    ground.compile_unguarded("clock", CLOCK_PROBE);
    all_worked(&ground.unguarded("/clock"), &["settimeofday", "adjtimex", "clock_adjtime", "clock_settime"])
}
