//! P-R: resources that a machine exhausts are its own, or limited by its emulator's cgroup.

use std::fs;

use serde_json::json;

use super::emulator::{Emulator, host_logged, names};
use super::{MachineRow, lives, nearly_full, own};
use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, RowFailure, ensure};
use crate::resources::{BUSY, DESCRIPTORS, measured_share, zombies_of};
use crate::streams::{OPEN_TERMINALS, agent_terminals, flood_of, held_up, read_whole};

pub(super) const ROWS: &[MachineRow] = &[
    own("P-R1", "fork bomb", forks).with(&["--pids", "64"]),
    own("P-R2", "RAM bomb", ram).with(&["--ram", "128M"]),
    own("P-R3", "fill the disk", disk).with(&["--disk", "1G"]),
    own("P-R4", "endless small files", small_files).controlled(small_files_with_room),
    own("P-R5", "endless open files", descriptors).controlled(descriptors_unguarded),
    own("P-R6", "all processors", processors).controlled(processors_unbounded),
    own("P-R7", "unreaped children", zombies).with(&["--pids", "128"]),
    own("P-R8", "output without end, kernel log, serial console", flood),
    own("P-R9", "a reader that never reads", stuck_reader).controlled(good_reader),
    own("P-R10", "endless terminals, resizes", terminals).with(&["--pids", "2048"]),
];

// --- P-R1

/// Forks until that fails, and prints how often it succeeded.
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
    let bomb = sandbox.run(json!({ "argv": ["setsid", "-w", "python3", "-c", FORKS] }));
    let made = bomb.number("made");
    ensure(made < 64 && bomb.number("errno") == 11, || format!("{bomb:?}"))?;
    lives(sandbox)?;
    Ok(format!("EAGAIN after {made} processes, by its own kernel; killed, and it goes on"))
}

// --- P-R2

fn ram(sandbox: &Sandbox<'_>) -> Finding {
    let bomb = sandbox.python("x=[bytearray(1<<20) for _ in iter(int,1)]");
    ensure(!bomb.ok(), || format!("{bomb:?}"))?;
    lives(sandbox)?;
    // 128 of its own, 64 of its kernel, and those of the emulator.
    let resident = Emulator::running(sandbox)?.resident_mib();
    ensure(resident > 0 && resident < 600, || format!("it takes {resident} MiB of the host"))?;
    Ok(format!("its own kernel ended the process; {resident} MiB of the host's RAM"))
}

// --- P-R3, P-R4

/// At most as many bytes as its disk may have, and nothing else.
fn disk_is_bounded(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let held = fs::metadata(sandbox.root().join("disk.raw")).unwrap().len();
    ensure(held <= 1 << 30, || format!("its disk has {held} bytes"))
}

fn disk(sandbox: &Sandbox<'_>) -> Finding {
    let filled =
        sandbox.sh("dd if=/dev/zero of=/x bs=1M 2>&1; sync; echo code $?; rm -f /x; sync; echo gone");
    ensure(filled.out.contains("No space left") && filled.out.contains("gone"), || format!("{filled:?}"))?;
    lives(sandbox)?;
    disk_is_bounded(sandbox)?;
    Ok("ENOSPC at the disk's end; the machine goes on".to_owned())
}

const FILES_WANTED: u32 = 4000;

/// The difference to the disk's size: a block for each file, and the file system's own blocks.
const FILES_LEFT_KIB: u32 = 6 << 10;

fn files_probe() -> String {
    format!(
        "import os\n\
         os.mkdir('/many'); made=0\n\
         try:\n\
         \x20 for n in range({FILES_WANTED}):\n\
         \x20   f=os.open('/many/%d'%n,os.O_CREAT|os.O_WRONLY); os.write(f,b'x'); os.close(f); made+=1\n\
         except OSError as error: print('error='+str(error.errno))\n\
         print('files='+str(made))\n"
    )
}

fn small_files(sandbox: &Sandbox<'_>) -> Finding {
    const ENOSPC: u64 = 28;
    let before = names(&sandbox.root());
    nearly_full(sandbox, FILES_LEFT_KIB)?;
    let run = sandbox.python(&files_probe());
    let files = run.number("files");
    ensure(files < u64::from(FILES_WANTED) && run.number("error") == ENOSPC, || format!("{run:?}"))?;
    let room = sandbox.sh("rm -rf /many /filler && sync && echo room > /y && cat /y");
    ensure(room.out.trim() == "room", || format!("a full machine cannot make room: {room:?}"))?;
    let after = names(&sandbox.root());
    ensure(before == after, || format!("the host holds {after:?} instead of {before:?}"))?;
    disk_is_bounded(sandbox)?;
    Ok(format!(
        "ENOSPC after {files} files by its own file system; to the host it is one file, as large as before"
    ))
}

fn small_files_with_room(ground: &Ground) -> Finding {
    let run = ground.sandbox(&[]).python(&files_probe());
    ensure(run.number("files") == u64::from(FILES_WANTED), || format!("{run:?}"))?;
    Ok(format!("with room on the disk the probe makes {FILES_WANTED}"))
}

// --- P-R5

/// Opened by root, to which its kernel's limit on all files does not apply.
const ROOT_OPENS: u32 = 50_000;

/// Far more than the normal variation of a daemon's open files.
const OPENED_MANY: u64 = 1_000;

fn bounded_descriptors() -> String {
    DESCRIPTORS.replace("10000000", &ROOT_OPENS.to_string())
}

const ENFILE: u64 = 23;
const EMFILE: u64 = 24;

fn descriptors(sandbox: &Sandbox<'_>) -> Finding {
    let emulator = Emulator::running(sandbox)?;
    let before = (sandbox.ground.daemon_files(), emulator.files());
    let user = sandbox.run(json!({ "argv": ["python3", "-c", DESCRIPTORS], "user": "user" }));
    let opened = user.number("opened");
    ensure([ENFILE, EMFILE].contains(&user.number("error")), || format!("{user:?}"))?;
    ensure(opened < u64::from(ROOT_OPENS), || format!("a user opened {opened} files: {user:?}"))?;
    let root = sandbox.python(&bounded_descriptors());
    ensure(root.number("opened") == u64::from(ROOT_OPENS), || format!("{root:?}"))?;
    // Connections are opened and closed; the bomb's files would be thousands.
    let after = (sandbox.ground.daemon_files(), emulator.files());
    ensure(after.0 < before.0 + 64 && after.1 < before.1 + 64, || {
        format!("daemon and emulator went from {before:?} to {after:?} files")
    })?;
    lives(sandbox)?;
    Ok(format!(
        "its own kernel refuses a user after {opened}, root has {ROOT_OPENS}; files of the daemon {} and of the emulator \
         {}, before {} and {}",
        after.0, after.1, before.0, before.1
    ))
}

fn descriptors_unguarded(ground: &Ground) -> Finding {
    fs::write(ground.control_path("/opens.py"), bounded_descriptors()).unwrap();
    // Root raises the inherited limit; where that is not allowed, the probe reaches the limit.
    let script =
        format!("ulimit -n {} 2> /dev/null; [ -c /dev/null ] && python3 /opens.py", ROOT_OPENS + 100);
    let run = ground.unguarded(&script);
    let opened = run.number("opened");
    let all = opened == u64::from(ROOT_OPENS);
    ensure(all || (opened > OPENED_MANY && run.number("error") == EMFILE), || format!("{run:?}"))?;
    Ok(format!("as the host's root the probe opens {opened}, of the host's"))
}

// --- P-R6

/// Hundredths of a processor that separate a limited machine from an unlimited one.
const SHARE_MAX: u64 = 30;

fn busy_share(sandbox: &Sandbox<'_>) -> u64 {
    sandbox.start(&json!({ "command": BUSY, "timeout_ms": 60_000 }));
    measured_share(sandbox)
}

fn processors(sandbox: &Sandbox<'_>) -> Finding {
    let daemon = &sandbox.ground.daemon;
    daemon.ok(&["update", &sandbox.id, "--cpu", "0.2"]);
    let share = busy_share(sandbox);
    ensure(share <= SHARE_MAX, || format!("{share} % of a processor instead of 20 %"))?;
    daemon.ok(&["update", &sandbox.id, "--cpu", "1"]);
    lives(sandbox)?;
    Ok(format!("got {share} % of a processor with --cpu 0.2, its emulator included; and goes on"))
}

fn processors_unbounded(ground: &Ground) -> Finding {
    let share = busy_share(&ground.sandbox(&[]));
    ensure(share > SHARE_MAX, || format!("only {share} % of a processor"))?;
    Ok(format!("with --cpu 1 the same load takes {share} %"))
}

// --- P-R7

const ORPHANS: u32 = 200;

fn zombies(sandbox: &Sandbox<'_>) -> Finding {
    // Whatever is forked inside, the host sees one process.
    Emulator::running(sandbox)?;
    zombies_of(sandbox, ORPHANS)
}

// --- P-R8

const FLOOD_BYTES: u64 = 64 << 20;

/// Assembled inside, so that no request contains the searched value.
const MARK: &str = "row-eight-of-a-guest";

/// Four times the size of the emulator's console buffer.
const CONSOLES: &str = "m=$(printf '%s-%s' row-eight of-a-guest); yes $m | head -c 262144 > /dev/ttyS0; \
    for n in $(seq 500); do echo $m > /dev/kmsg; done; echo $m > /dev/console; dmesg | grep -c $m";

fn flood(sandbox: &Sandbox<'_>) -> Finding {
    let note = flood_of(sandbox, FLOOD_BYTES)?;
    let emulator = Emulator::running(sandbox)?;
    let (before, log) = (emulator.resident_mib(), sandbox.ground.daemon.log().len());
    let consoles = sandbox.sh(CONSOLES);
    let own: u32 = consoles.out.trim().parse().unwrap_or(0);
    ensure(own > 0, || format!("its own kernel's log has none of it: {consoles:?}"))?;
    let grown = emulator.resident_mib().saturating_sub(before);
    ensure(grown < 32, || format!("the emulator grew by {grown} MiB"))?;
    ensure(!host_logged(MARK), || "the host's kernel wrote down what the guest said".to_owned())?;
    let said = sandbox.ground.daemon.log();
    ensure(!said.contains(MARK) && said.len() < log + (1 << 20), || {
        format!("the daemon wrote down what the guest said, {} bytes", said.len() - log)
    })?;
    Ok(format!(
        "{note}; console and kernel log are its own: emulator +{grown} MiB, nothing of it in the host's logs"
    ))
}

// --- P-R9

/// More than every buffer on the path can store.
const LINE_BYTES: u64 = 64 << 20;

fn stuck_reader(sandbox: &Sandbox<'_>) -> Finding {
    held_up(sandbox, LINE_BYTES)
}

fn good_reader(ground: &Ground) -> Finding {
    read_whole(ground, LINE_BYTES)
}

// --- P-R10

const RESIZES: u32 = 200;

fn terminals(sandbox: &Sandbox<'_>) -> Finding {
    let emulator = Emulator::running(sandbox)?;
    let before = emulator.files();
    let opened = agent_terminals(sandbox, RESIZES)?;
    // It may open as many as its own kernel allows; they are not terminals of the host.
    let inside = sandbox.python(OPEN_TERMINALS).number("terminals");
    let after = emulator.files();
    ensure(after < before + 16, || format!("the emulator went from {before} to {after} files"))?;
    Ok(format!(
        "the agent gives {opened}, then 429; programs inside get {inside}, of their own kernel; {RESIZES} resizes served"
    ))
}
