//! P-K1 to P-K9, P-K11 and P-K15: guest root with its own kernel. Attempts that succeed must have succeeded in that
//! kernel.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::emulator::{Emulator, KNOBS, Mounts, host_logged};
use super::{MachineRow, lives, own};
use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::kernel::{READ_PROBE, disk, namespace_probe, not_by_the_file_interface, worked};
use crate::report::{Finding, RowFailure, ensure};
use crate::syscalls::{CallResults, LAST, PROBE, is_refused, named, numbered, only_here};

pub(super) const ROWS: &[MachineRow] = &[
    own("P-K1", "mount what there is", mounts),
    own("P-K2", "new namespaces, its first process's", namespaces),
    own("P-K3", "trace and read the agent", tracing),
    own("P-K4", "keys, BPF, io_uring, modules, kexec", native_calls),
    own("P-K5", "the same by int 0x80 and x32", foreign_calls),
    own("P-K6", "every system call by number", all_calls),
    own("P-K7", "write core_pattern and its like", knobs),
    own("P-K8", "read kallsyms, kmsg, firmware", kernel_reads),
    own("P-K9", "device nodes, beyond the disk's end", devices),
    own("P-K11", "set the clock", clock),
    own("P-K15", "poke devices, crash the machine", crash).controlled(crashes),
];

// --- P-K1

fn mounts(sandbox: &Sandbox<'_>) -> Finding {
    let before = Mounts::now();
    let tried = sandbox.sh(
        "mkdir -p /m1 /m2 /m3; mount -t proc x /m1 && echo proc; mount --bind / /m2 && echo bind; \
         mount -t cgroup -o pids x /m3 && echo cgroup; \
         echo '#!/bin/sh' > /release; echo 'touch /released' >> /release; chmod +x /release; \
         echo /release > /m3/release_agent 2>/dev/null; mkdir -p /m3/x; echo 1 > /m3/x/notify_on_release 2>/dev/null; \
         sh -c 'echo $$ > /m3/x/cgroup.procs' 2>/dev/null; ls /m1/1/root >/dev/null && echo looked; true",
    );
    ensure(tried.out.contains("proc") && tried.out.contains("bind"), || {
        format!("guest root can mount: {tried:?}")
    })?;
    before.are_as_they_were()?;
    ensure(!std::path::Path::new("/released").exists(), || "its release agent ran on the host".to_owned())?;
    Ok(format!(
        "guest root mounts ({}), in its own kernel; the host has the mounts it had",
        tried.out.split_whitespace().collect::<Vec<_>>().join(", ")
    ))
}

// --- P-K2

fn namespaces(sandbox: &Sandbox<'_>) -> Finding {
    let emulator = Emulator::running(sandbox)?;
    let (own, mounts) = (emulator.namespaces(), Mounts::now());
    let run = sandbox.sh(&namespace_probe(sandbox.ground.canaries.file(), 1));
    let worked = worked(&run);
    for way in ["mount", "net", "pid"] {
        ensure(worked.iter().any(|worked| worked == way), || format!("{way} fails even there: {run:?}"))?;
    }
    // Through its first process, through that process's root, and by name: the file cannot be found.
    for way in ["enter", "root", "cwd", "path"] {
        ensure(!worked.iter().any(|worked| worked == way), || format!("{way} led to the host: {run:?}"))?;
    }
    // If a visible process contains a canary, the row fails.
    sandbox.sh("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'");
    let after = Emulator::running(sandbox)?.namespaces();
    ensure(own == after, || format!("its emulator moved from {own:?} to {after:?}"))?;
    mounts.are_as_they_were()?;
    Ok(format!("its own kernel gives it {}; on the host it is one process, where it was", worked.join(", ")))
}

// --- P-K3

/// Dumps all readable memory of the agent.
const AGENT_DUMP: &str = "import ctypes\n\
    libc=ctypes.CDLL(None,use_errno=True)\n\
    print('seize', 'ok' if libc.ptrace(0x4206,1,None,None)==0 else ctypes.get_errno())\n\
    with open('/dump','wb') as out, open('/proc/1/mem','rb',0) as memory:\n\
    \x20 for line in open('/proc/1/maps'):\n\
    \x20   span,rights=line.split()[:2]\n\
    \x20   if 'r' not in rights or '[v' in line: continue\n\
    \x20   start,end=(int(part,16) for part in span.split('-'))\n\
    \x20   for at in range(start,end,65536):\n\
    \x20     try: memory.seek(at); out.write(memory.read(min(65536,end-at)))\n\
    \x20     except OSError: pass\n";

fn tracing(sandbox: &Sandbox<'_>) -> Finding {
    sandbox.put("/agent.py", AGENT_DUMP.as_bytes());
    // The agent stores the commands it was asked to run: found in the dump, this shows that it is the agent's memory.
    let needle = format!("needle-{}", sandbox.id);
    let run = sandbox.run(json!({ "argv": ["python3", "/agent.py", needle] }));
    ensure(run.ok(), || format!("{run:?}"))?;
    let dump = sandbox.ground.ask(
        "GET",
        format!("/v1/sandboxes/{}/files?path=/dump", sandbox.id).as_bytes(),
        "",
        b"",
    );
    let text = String::from_utf8_lossy(&dump.body);
    let holds = |what: &str| text.contains(what);
    ensure(dump.status == 200 && holds(&needle), || {
        format!("the dump of {} bytes is not the agent's: {run:?}", dump.body.len())
    })?;
    let (canaries, key) = (&sandbox.ground.canaries, sandbox.ground.daemon.key());
    let secrets = [("host's file", canaries.content()), ("daemon's token", canaries.token())];
    for (what, value) in
        secrets.into_iter().chain([("neighbour's", canaries.secret()), ("admin's key", &key)])
    {
        ensure(!holds(value), || format!("the agent holds the {what} secret"))?;
    }
    not_by_the_file_interface(sandbox)?;
    lives(sandbox)?;
    Ok(format!(
        "guest root reads its own agent ({} KiB), which knows nothing of the host's; the file API does not read it",
        dump.body.len() >> 10
    ))
}

// --- P-K4, P-K5, P-K6

fn calls_inside(sandbox: &Sandbox<'_>) -> Result<BTreeMap<String, CallResults>, RowFailure> {
    only_here()?;
    sandbox.ground.compile_unguarded("syscalls", PROBE);
    sandbox.bring("syscalls");
    let calls = named(&sandbox.sh("/syscalls named"))?;
    ensure(calls["getpid"].native == "ok", || "even getpid fails: the probe is broken".to_owned())?;
    Ok(calls)
}

/// Assembled inside, so that no request contains the searched value.
const KEY: &str = "key-of-a-guest";

/// Creates a key, a BPF map and an `io_uring`, and prints which of them its kernel allowed.
const MAKE: &str = "import ctypes\n\
    libc=ctypes.CDLL(None,use_errno=True)\n\
    def say(name, good): print(name, 'ok' if good else ctypes.get_errno())\n\
    name=b'-'.join([b'key',b'of-a-guest'])\n\
    say('key', libc.syscall(248,b'user',name,b'x',1,-4)>0)\n\
    say('listed', name in open('/proc/keys','rb').read())\n\
    say('bpf', libc.syscall(321,0,(ctypes.c_uint*18)(2,4,4,1),72)>=0)\n\
    say('io_uring', libc.syscall(425,4,ctypes.create_string_buffer(120))>=0)\n\
    say('kmsg', open('/dev/kmsg','wb').write(name)>0)\n";

fn native_calls(sandbox: &Sandbox<'_>) -> Finding {
    let calls = calls_inside(sandbox)?;
    let reach = calls.values().filter(|call| !is_refused(&call.native)).count();
    ensure(reach > calls.len() / 2, || format!("only {reach} of {} reach its own kernel", calls.len()))?;
    let made = sandbox.python(MAKE);
    let given = worked(&made);
    ensure(["key", "listed", "kmsg"].iter().all(|way| given.iter().any(|given| given == way)), || {
        format!("{made:?}")
    })?;
    let keys = fs::read_to_string("/proc/keys").unwrap_or_default();
    ensure(!keys.contains(KEY) && !host_logged(KEY), || "the host's kernel has the guest's key".to_owned())?;
    lives(sandbox)?;
    Ok(format!(
        "{reach} of {} reach its own kernel, which gives it {}; the host's has none of it",
        calls.len(),
        given.join(", ")
    ))
}

fn foreign_calls(sandbox: &Sandbox<'_>) -> Finding {
    let calls = calls_inside(sandbox)?;
    let count = |way: fn(&CallResults) -> &String| {
        calls.values().filter(|call| !is_refused(way(call)) && way(call) != "died").count()
    };
    let (x32, int80) = (count(|call| &call.x32), count(|call| &call.int80));
    lives(sandbox)?;
    Ok(format!("{int80} reach its own kernel by int 0x80, {x32} by x32; nothing else came of them"))
}

fn all_calls(sandbox: &Sandbox<'_>) -> Finding {
    only_here()?;
    sandbox.ground.compile_unguarded("syscalls", PROBE);
    sandbox.bring("syscalls");
    let run = sandbox.sh(&format!("/syscalls all 0 {LAST} careful"));
    let answers = numbered(&run);
    // Except for the one that hangs up terminals.
    ensure(answers.len() == LAST as usize, || format!("{} answers: {run:?}", answers.len()))?;
    let reach = answers.values().filter(|answer| !is_refused(answer)).count();
    ensure(reach > 250, || format!("only {reach} reach its own kernel: {run:?}"))?;
    lives(sandbox)?;
    Ok(format!("{reach} of {LAST} reach its own kernel; the emulator's filter stays as it was"))
}

// --- P-K7

fn knobs(sandbox: &Sandbox<'_>) -> Finding {
    let host = || KNOBS.map(|path| fs::read_to_string(path).unwrap_or_default());
    let before = host();
    let wrote = sandbox.sh(
        "echo '|/bin/false' > /proc/sys/kernel/core_pattern && echo wrote; echo /bin/false > /proc/sys/kernel/modprobe && echo wrote; \
         echo 2 > /proc/sys/vm/overcommit_memory && echo wrote; echo 0 > /proc/sys/vm/overcommit_memory; cat /proc/sys/kernel/core_pattern",
    );
    ensure(wrote.out.contains("wrote") && wrote.out.contains("/bin/false"), || format!("{wrote:?}"))?;
    ensure(host() == before, || "a value of the host's kernel has changed".to_owned())?;
    Ok("its own kernel's values change, the host's do not".to_owned())
}

// --- P-K8

/// Each differs between kernels, boots or machines.
const TELLING: [&str; 5] =
    ["/proc/sys/kernel/random/boot_id", "/proc/version", "/proc/cmdline", "/proc/iomem", "/proc/kallsyms"];

fn kernel_reads(sandbox: &Sandbox<'_>) -> Finding {
    let run = sandbox.python(READ_PROBE);
    let read = worked(&run);
    for way in ["kallsyms", "kmsg", "syslog"] {
        ensure(read.iter().any(|read| read == way), || format!("{way} is not read even there: {run:?}"))?;
    }
    for path in TELLING {
        let own = sandbox.sh(&format!("head -c 4096 {path}")).out;
        let host = fs::read(path).unwrap_or_default();
        let host = String::from_utf8_lossy(&host[..host.len().min(4096)]).into_owned();
        ensure(!own.is_empty() && own != host, || format!("its {path} is the host's: {own}"))?;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let logged = sandbox.sh("dmesg; cat /sys/firmware/acpi/tables/* 2>/dev/null | strings; true").out;
    ensure(!logged.is_empty() && !logged.contains(release.trim()), || {
        format!("its log names the host's kernel: {logged}")
    })?;
    Ok(format!("{} are read, and are its own kernel's: {} files tell so", read.join(", "), TELLING.len()))
}

// --- P-K9

/// Opens a device by the numbers of the host's disk and its own disk by name, and reads beyond the ends of both.
const DEVICES: &str = "import os,stat,sys\n\
    os.mknod('/node',stat.S_IFBLK|0o600,os.makedev(int(sys.argv[1]),int(sys.argv[2])))\n\
    for name in ('/node','/dev/vda'):\n\
    \x20 try: fd=os.open(name,os.O_RDWR)\n\
    \x20 except OSError as error: print(name,'absent',error.errno); continue\n\
    \x20 end=os.lseek(fd,0,os.SEEK_END)\n\
    \x20 print(name,'end',end)\n\
    \x20 for at in (end,end+(1<<30),1<<45):\n\
    \x20   try: print(name,'read',len(os.pread(fd,4096,at)))\n\
    \x20   except OSError as error: print(name,'read 0')\n\
    \x20   try: print(name,'wrote',os.pwrite(fd,bytes(4096),at))\n\
    \x20   except OSError as error: print(name,'wrote 0')\n";

fn devices(sandbox: &Sandbox<'_>) -> Finding {
    let (major, minor) = disk()?;
    let sectors = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size")).unwrap_or_default();
    let host_bytes = sectors.trim().parse::<u64>().unwrap_or(0) * 512;
    let file = sandbox.root().join("disk.raw");
    let length = || fs::metadata(&file).unwrap().len();
    let before = length();
    let run = sandbox.run(json!({ "argv": ["python3", "-c", DEVICES, major, minor] }));
    ensure(run.ok(), || format!("{run:?}"))?;
    let ends: Vec<u64> =
        run.out.lines().filter_map(|line| line.split_once(" end ")?.1.parse().ok()).collect();
    ensure(ends.contains(&before), || format!("its disk has {before} bytes, it found {ends:?}: {run:?}"))?;
    ensure(host_bytes == before || !ends.contains(&host_bytes), || {
        format!("it opened the host's disk of {host_bytes} bytes: {run:?}")
    })?;
    let beyond = run.out.lines().filter(|line| line.contains(" read ") || line.contains(" wrote "));
    let through: Vec<&str> = beyond.clone().filter(|line| !line.ends_with(" 0")).collect();
    ensure(beyond.count() >= 6 && through.is_empty(), || format!("beyond its disk: {through:?} {run:?}"))?;
    ensure(length() == before, || format!("its disk went from {before} to {} bytes", length()))?;
    lives(sandbox)?;
    Ok(format!(
        "nodes lead to devices of its own kernel, of {ends:?} bytes; beyond an end nothing is read or written"
    ))
}

// --- P-K11

fn clock(sandbox: &Sandbox<'_>) -> Finding {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let set = sandbox.sh("date -s @1000000000 >/dev/null && date +%s");
    let inside: u64 = set.out.trim().parse().unwrap_or(0);
    ensure((1_000_000_000..1_000_001_000).contains(&inside), || format!("{set:?}"))?;
    ensure(now() >= before, || "the host's clock went back".to_owned())?;
    let events = sandbox.ask("GET", "").json();
    ensure(events["state"] == "running", || format!("{events}"))?;
    // It is set again when the machine resumes from a pause.
    sandbox.post("/pause", &json!({}));
    sandbox.post("/resume", &json!({}));
    let right: u64 = sandbox.sh("date +%s").out.trim().parse().unwrap_or(0);
    ensure(right.abs_diff(now()) < 120, || format!("its clock stays wrong: {right}"))?;
    Ok("only its own clock, until it is set right at the next wake".to_owned())
}

// --- P-K15

/// Writes random values to every port and every device register that the kernel lets root access, then crashes the
/// kernel.
const POKE: &str = "import mmap,os,random\n\
    random.seed(7); pokes=0\n\
    try:\n\
    \x20 port=os.open('/dev/port',os.O_RDWR)\n\
    \x20 for at in list(range(0x2e8,0x400))+list(range(0x510,0x520))+list(range(0xcd8,0xd00)):\n\
    \x20   os.pwrite(port,bytes([random.randrange(256)]),at); pokes+=1\n\
    except OSError as error: print('port',error.errno)\n\
    try:\n\
    \x20 memory=os.open('/dev/mem',os.O_RDWR|os.O_SYNC)\n\
    \x20 for base in range(0xfeb00000,0xfeb04000,0x1000):\n\
    \x20   view=mmap.mmap(memory,0x1000,offset=base)\n\
    \x20   for at in range(0,0x1000,4): view[at:at+4]=random.randbytes(4); pokes+=1\n\
    except (OSError,ValueError) as error: print('mem',error)\n\
    print('pokes='+str(pokes),flush=True)\n\
    open('/proc/sysrq-trigger','w').write('c')\n";

fn crash(sandbox: &Sandbox<'_>) -> Finding {
    sandbox.put("/poke.py", POKE.as_bytes());
    sandbox.start(&json!({ "argv": ["sh", "-c", "echo 1 > /proc/sys/kernel/sysrq; python3 /poke.py"] }));
    let state = eventually("the machine's end", || {
        let found = sandbox.ask("GET", "").json();
        (found["state"] == "stopped").then_some("stopped")
    });
    let events =
        sandbox.ground.ask("GET", format!("/v1/events?sandbox={}", sandbox.id).as_bytes(), "", b"").text();
    ensure(events.contains("sandbox.stopped"), || format!("nobody was told: {events}"))?;
    let again = sandbox.ask("POST", "/start");
    ensure(again.status == 200, || format!("{} {}", again.status, again.text()))?;
    lives(sandbox)?;
    Ok(format!("only its own machine ended ({state}), an event says so, and it starts again"))
}

/// Of another machine: the poked registers exist.
fn crashes(ground: &Ground) -> Finding {
    let run = ground.sandbox(&[]).sh("for f in /dev/mem /proc/sysrq-trigger; do test -w $f && echo $f; done");
    ensure(run.out.lines().count() == 2, || format!("{run:?}"))?;
    Ok("guest root has the memory and the trigger to write to".to_owned())
}
