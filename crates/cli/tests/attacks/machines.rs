//! The threat list where the sandbox is a microVM: guest root may do what it likes to its own kernel, and the host stays as
//! it was. What is the same attempt as in a container is the same row; what must come out otherwise is here.

use std::fs;

use crate::ground::{Ground, Run, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, ensure};

/// Rows of containers that must come out the same.
const SAME: [&str; 2] = ["P-F1", "P-K13"];

/// Rows about the network out that a machine with raw sockets and a card of its own is tried with. Forged frames (P-N3) it can
/// send as it likes: its card ends in a gateway that is its own, where nobody else listens.
pub(crate) const NETWORK: [&str; 3] = ["P-N1", "P-N2", "P-N5"];

const OWN: &[Row] = &[
    Row { id: "P-R1", what: "fork bomb", sandbox: &["--pids", "64"], attack: forks, control: controlled },
    Row { id: "P-R2", what: "RAM bomb", sandbox: &["--ram", "128M"], attack: ram, control: controlled },
    Row { id: "P-R3", what: "fill the disk", sandbox: &["--disk", "1G"], attack: disk, control: controlled },
    Row { id: "P-K1", what: "mount what there is", sandbox: &[], attack: mounts, control: controlled },
    Row {
        id: "P-K7",
        what: "write core_pattern and its like",
        sandbox: &[],
        attack: knobs,
        control: controlled,
    },
    Row { id: "P-K11", what: "set the clock", sandbox: &[], attack: clock, control: controlled },
    Row {
        id: "P-K15",
        what: "poke devices, crash the machine",
        sandbox: &[],
        attack: crash,
        control: crashes,
    },
];

/// All rows for machines, in their order.
pub(crate) fn rows(containers: &[Row]) -> Vec<Row> {
    let same = containers.iter().filter(|row| SAME.contains(&row.id));
    // The attempt is another, the control is the same.
    let own = OWN.iter().map(|row| {
        let control =
            containers.iter().find(|known| known.id == row.id).map_or(row.control, |known| known.control);
        Row { control, ..*row }
    });
    same.copied().chain(own).collect()
}

/// Stands for the control of the row of the same id.
fn controlled(_: &Ground) -> Finding {
    Err("the container's row is gone, and its control with it".to_owned().into())
}

/// Megabytes that the sandbox's processes take on the host.
fn resident_mib(sandbox: &Sandbox<'_>) -> u64 {
    let processes = sandbox.ground.daemon.inventory().processes;
    let kib = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let emulator = status
            .lines()
            .any(|line| line.starts_with("Name:") && line.contains("qemu") || line.contains("loader"));
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().trim_end_matches(" kB").parse::<u64>().ok());
        rss.filter(|_| emulator).unwrap_or(0)
    };
    processes.iter().map(kib).sum::<u64>() / 1024
}

fn lives(sandbox: &Sandbox<'_>) -> Result<Run, crate::report::Trouble> {
    let run = sandbox.sh("echo alive");
    ensure(run.out.trim() == "alive", || format!("the machine is gone: {run:?}"))?;
    Ok(run)
}

/// Forks until it may not, and says how often it could.
const FORKS: &str = "import os,time\n\
    made=0\n\
    try:\n\
    \x20 while made<1000:\n\
    \x20   if os.fork()==0: time.sleep(600)\n\
    \x20   made+=1\n\
    except OSError as error: print('errno='+str(error.errno))\n\
    print('made='+str(made),flush=True)\n\
    os.system('true'); os.killpg(0,9)\n";

fn forks(sandbox: &Sandbox<'_>) -> Finding {
    let bomb = sandbox.run(serde_json::json!({ "argv": ["setsid", "-w", "python3", "-c", FORKS] }));
    let made = bomb.number("made");
    ensure(made < 64 && bomb.number("errno") == 11, || format!("{bomb:?}"))?;
    lives(sandbox)?;
    Ok(format!("EAGAIN after {made} processes, by its own kernel; killed, and it goes on"))
}

fn ram(sandbox: &Sandbox<'_>) -> Finding {
    let bomb = sandbox.python("x=[bytearray(1<<20) for _ in iter(int,1)]");
    ensure(!bomb.ok(), || format!("{bomb:?}"))?;
    lives(sandbox)?;
    // 128 of its own, 64 of its kernel's, and what an emulator needs.
    let resident = resident_mib(sandbox);
    ensure(resident < 600, || format!("it takes {resident} MiB of the host"))?;
    Ok(format!("its own kernel ended the process; {resident} MiB of the host's RAM"))
}

fn disk(sandbox: &Sandbox<'_>) -> Finding {
    let filled =
        sandbox.sh("dd if=/dev/zero of=/x bs=1M 2>&1; sync; echo code $?; rm -f /x; sync; echo gone");
    ensure(filled.out.contains("No space left") && filled.out.contains("gone"), || format!("{filled:?}"))?;
    lives(sandbox)?;
    let held = fs::metadata(sandbox.root().join("disk.raw")).unwrap().len();
    ensure(held <= 1 << 30, || format!("its disk has {held} bytes"))?;
    Ok("ENOSPC at the disk's end; the machine goes on".to_owned())
}

/// What the host has mounted, but for what this daemon's own sandboxes bring.
fn mounted() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}

fn mounts(sandbox: &Sandbox<'_>) -> Finding {
    let before = mounted();
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
    ensure(mounted() == before && !std::path::Path::new("/released").exists(), || {
        "the host has changed".to_owned()
    })?;
    Ok(format!(
        "guest root mounts ({}), in its own kernel; the host has the mounts it had",
        tried.out.split_whitespace().collect::<Vec<_>>().join(", ")
    ))
}

const KNOBS: [&str; 5] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/hostname",
];

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

fn clock(sandbox: &Sandbox<'_>) -> Finding {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let set = sandbox.sh("date -s @1000000000 >/dev/null && date +%s");
    let inside: u64 = set.out.trim().parse().unwrap_or(0);
    ensure((1_000_000_000..1_000_001_000).contains(&inside), || format!("{set:?}"))?;
    ensure(now() >= before, || "the host's clock went back".to_owned())?;
    let events = sandbox.ask("GET", "").json();
    ensure(events["state"] == "running", || format!("{events}"))?;
    // Told again when it goes on after standing still.
    sandbox.post("/pause", &serde_json::json!({}));
    sandbox.post("/resume", &serde_json::json!({}));
    let right: u64 = sandbox.sh("date +%s").out.trim().parse().unwrap_or(0);
    ensure(right.abs_diff(now()) < 120, || format!("its clock stays wrong: {right}"))?;
    Ok("only its own clock, until it is set right at the next wake".to_owned())
}

/// Writes rubbish to every port and every device's registers that the kernel lets root reach, then crashes the kernel.
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
    sandbox.start(
        &serde_json::json!({ "argv": ["sh", "-c", "echo 1 > /proc/sys/kernel/sysrq; python3 /poke.py"] }),
    );
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

/// Of another machine: what is poked at is there to be poked at.
fn crashes(ground: &Ground) -> Finding {
    let run = ground.sandbox(&[]).sh("for f in /dev/mem /proc/sysrq-trigger; do test -w $f && echo $f; done");
    ensure(run.out.lines().count() == 2, || format!("{run:?}"))?;
    Ok("guest root has the memory and the trigger to write to".to_owned())
}
