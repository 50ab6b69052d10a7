//! P-R1 to P-R7, P-R12 and P-R15: exhausting the host's resources: processes, RAM, disk, files, processors, socket
//! buffers.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::controls::run;
use crate::ground::{Ground, Run, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row { id: "P-R1", what: "fork bomb", sandbox: &["--pids", "64"], attack: fork_bomb, control: forks },
    Row {
        id: "P-R2",
        what: "RAM bomb, /dev/shm",
        sandbox: &["--ram", "128M"],
        attack: ram_bomb,
        control: ram,
    },
    Row { id: "P-R3", what: "fill the disk", sandbox: &["--disk", "64M"], attack: disk_bomb, control: disk },
    Row {
        id: "P-R4",
        what: "endless small files",
        sandbox: &["--disk", "16M"],
        attack: file_bomb,
        control: many_files,
    },
    Row {
        id: "P-R5",
        what: "endless open files, inotify instances",
        sandbox: &[],
        attack: descriptor_bomb,
        control: descriptors,
    },
    Row {
        id: "P-R6",
        what: "all processors",
        sandbox: &["--cpu", "0.1"],
        attack: processor_bomb,
        control: processors,
    },
    Row {
        id: "P-R7",
        what: "unreaped children",
        sandbox: &["--pids", "128"],
        attack: zombie_bomb,
        control: zombies,
    },
    Row {
        id: "P-R12",
        what: "RAM in socket buffers",
        sandbox: &["--ram", "64M"],
        attack: buffer_bomb,
        control: buffers,
    },
    Row {
        id: "P-R15",
        what: "RAM in netlink queues",
        sandbox: &["--ram", "64M"],
        attack: netlink_bomb,
        control: netlink_queues,
    },
];

// --- P-R1

/// Forks up to `wanted` children that stay until they are asked to exit, and prints how many the kernel allowed.
fn fork_probe(wanted: u32) -> String {
    format!(
        "import os,signal\n\
         made=[]\n\
         try:\n\
         \x20 for _ in range({wanted}):\n\
         \x20   pid=os.fork()\n\
         \x20   if pid==0:\n\
         \x20     signal.pause(); os._exit(0)\n\
         \x20   made.append(pid)\n\
         except OSError as error: print('error='+str(error.errno))\n\
         print('forks='+str(len(made)))\n\
         for pid in made: os.kill(pid,9)\n\
         for pid in made: os.waitpid(pid,0)\n"
    )
}

const EAGAIN: u64 = 11;

fn fork_bomb(sandbox: &Sandbox<'_>) -> Finding {
    let run = sandbox.python(&fork_probe(2000));
    let forks = run.number("forks");
    ensure(forks < 64 && run.number("error") == EAGAIN, || format!("{run:?}"))?;
    // A real fork bomb, which cannot be counted from inside.
    sandbox.start(&json!({ "argv": ["bash", "-c", ":(){ :|:& };:"], "timeout_ms": 30_000 }));
    eventually("the bomb to go off", || (processes(sandbox) >= 50).then_some(()));
    let most = (0..50).map(|_| counted(sandbox)).max().unwrap_or(0);
    ensure(most <= 64, || format!("{most} processes in a sandbox of 64"))?;
    let begun = Instant::now();
    sandbox.delete();
    eventually("every process to be gone", || (processes(sandbox) == 0).then_some(()));
    let took = begun.elapsed();
    Ok(format!(
        "EAGAIN after {forks} forks; bash bomb held at {most}; all ended {} ms after rm -f",
        took.as_millis()
    ))
}

/// Processes of the sandbox, counted by the host.
fn processes(sandbox: &Sandbox<'_>) -> usize {
    group_files(sandbox, "cgroup.procs").iter().map(|members| members.lines().count()).max().unwrap_or(0)
}

/// The same, from the kernel's own counter, at one moment. A list of a group's members is assembled while some of a
/// bomb's processes end and others start, and may have more of them than ever existed at once.
fn counted(sandbox: &Sandbox<'_>) -> usize {
    let counts = group_files(sandbox, "pids.current");
    counts.iter().filter_map(|count| count.trim().parse().ok()).max().expect("a hierarchy counts processes")
}

/// A file of the sandbox's cgroups, from every hierarchy that has it.
pub(crate) fn group_files(sandbox: &Sandbox<'_>, name: &str) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let cgroup = sandbox.ground.daemon.cgroup();
    let folders = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields.get(2).filter(|kind| kind.starts_with("cgroup"))?;
        // Those of containers and of microVMs.
        Some([cgroup, &format!("{cgroup}-vm")].map(|group| format!("{}/{group}/{}", fields[1], sandbox.id)))
    });
    let files = folders.flatten().map(|folder| format!("{folder}/{name}"));
    files.filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

fn forks(ground: &Ground) -> Finding {
    let run = ground.sandbox(&["--pids", "512"]).python(&fork_probe(300));
    ensure(run.number("forks") == 300, || format!("{run:?}"))?;
    Ok("with --pids 512 the probe makes 300".to_owned())
}

// --- P-R2

const RAM_WANTED_MIB: u32 = 400;

fn ram_probe() -> String {
    format!(
        "x=[]\nfor _ in range({RAM_WANTED_MIB}): x.append(bytearray(1<<20))\nprint('reached={RAM_WANTED_MIB}')\n"
    )
}

fn ram_bomb(sandbox: &Sandbox<'_>) -> Finding {
    let run = sandbox.python(&ram_probe());
    ensure(!run.ok() && !run.out.contains("reached"), || {
        format!("it took {RAM_WANTED_MIB} MiB of 128: {run:?}")
    })?;
    let kills = eventually("the sandbox to answer after the bomb", || {
        let answer = sandbox.ask("GET", "/stats");
        (answer.status == 200).then(|| answer.json()["oom_kills"].as_u64().unwrap())
    });
    ensure(kills > 0, || "the kill is not reported in the statistics".to_owned())?;
    let shm = sandbox.sh(&format!("dd if=/dev/zero of=/dev/shm/fill bs=1M count={RAM_WANTED_MIB} 2>&1; stat -c size=%s /dev/shm/fill; rm -f /dev/shm/fill"));
    let filled =
        shm.out.lines().find_map(|line| line.strip_prefix("size=")?.parse::<u64>().ok()).unwrap_or(0);
    ensure(filled <= 128 << 20, || format!("/dev/shm took {filled} bytes: {shm:?}"))?;
    let alive = sandbox.sh("echo alive");
    ensure(alive.out.trim() == "alive", || format!("{alive:?}"))?;
    Ok(format!("killed inside ({kills} reported), /dev/shm full at {} MiB, the sandbox lives", filled >> 20))
}

fn ram(ground: &Ground) -> Finding {
    let run = ground.sandbox(&["--ram", "1G"]).python(&ram_probe());
    ensure(run.out.contains("reached"), || format!("{run:?}"))?;
    Ok(format!("with --ram 1G the probe reaches {RAM_WANTED_MIB} MiB"))
}

// --- P-R3

const DISK_WANTED_MIB: u32 = 200;

fn disk_probe() -> String {
    format!(
        "fallocate -l 1T /x 2>/dev/null && echo terabyte; rm -f /x; \
         fallocate -l {DISK_WANTED_MIB}M /x 2>/dev/null && echo allocated; rm -f /x; \
         dd if=/dev/urandom of=/x bs=1M count={DISK_WANTED_MIB} 2>&1; sync; stat -c size=%s /x"
    )
}

fn disk_bomb(sandbox: &Sandbox<'_>) -> Finding {
    let run = sandbox.sh(&disk_probe());
    let size = run.number("size");
    let said = |word: &str| run.out.contains(word);
    ensure(!said("terabyte") && !said("allocated"), || format!("fallocate got through: {run:?}"))?;
    ensure(size <= 64 << 20, || format!("{size} bytes in a sandbox of 64 MiB"))?;
    ensure(said("quota exceeded") || said("No space left"), || format!("{run:?}"))?;
    // Not by the pool's free space: others may be using it.
    let used = sandbox.stats()["disk_used_bytes"].as_u64().unwrap();
    ensure(used <= 66 << 20, || format!("{used} bytes are counted in a sandbox of 64 MiB"))?;
    // A sandbox with a full disk must be able to delete files.
    let after = sandbox.sh("rm /x && sync && echo room > /y && cat /y");
    ensure(after.out.contains("room"), || format!("a full sandbox cannot make room: {after:?}"))?;
    Ok(format!("refused at {} MiB; deleting makes room again", size >> 20))
}

fn disk(ground: &Ground) -> Finding {
    let run = ground.sandbox(&["--disk", "1G"]).sh(&disk_probe());
    ensure(run.number("size") == u64::from(DISK_WANTED_MIB) << 20, || format!("{run:?}"))?;
    Ok(format!("with --disk 1G the probe writes {DISK_WANTED_MIB} MiB"))
}

// --- P-R4

const FILES_WANTED: u32 = 60_000;

/// Empty files with long names: nothing but metadata.
fn files_probe() -> String {
    format!(
        "import os\n\
         os.mkdir('/many'); n=0\n\
         try:\n\
         \x20 for n in range({FILES_WANTED}):\n\
         \x20   os.close(os.open('/many/%0200d'%n,os.O_CREAT|os.O_WRONLY))\n\
         \x20   if n%2000==0: os.sync()\n\
         \x20 print('files={FILES_WANTED}')\n\
         except OSError as error: print('files='+str(n)); print('error='+str(error.errno))\n"
    )
}

fn file_bomb(sandbox: &Sandbox<'_>) -> Finding {
    const ENOSPC: u64 = 28;
    const EDQUOT: u64 = 122;
    let run = sandbox.python(&files_probe());
    let files = run.number("files");
    ensure(files < u64::from(FILES_WANTED), || format!("{files} files in 16 MiB: {run:?}"))?;
    let error = run.number("error");
    ensure([ENOSPC, EDQUOT].contains(&error), || format!("{run:?}"))?;
    Ok(format!("refused after {files} files with errno {error}"))
}

fn many_files(ground: &Ground) -> Finding {
    let run = ground.sandbox(&["--disk", "1G"]).python(&files_probe());
    ensure(run.number("files") == u64::from(FILES_WANTED), || format!("{run:?}"))?;
    Ok(format!("with --disk 1G the probe makes {FILES_WANTED}"))
}

// --- P-R5

/// Raises its own limit as far as possible first.
pub(crate) const DESCRIPTORS: &str = "import os,resource,sys\n\
    hard=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
    resource.setrlimit(resource.RLIMIT_NOFILE,(hard,hard))\n\
    n=0\n\
    try:\n\
    \x20 while n<10000000: os.open('/dev/null',os.O_RDONLY); n+=1\n\
    except OSError as error: print('error='+str(error.errno))\n\
    print('opened='+str(n),flush=True)\n";

fn descriptor_bomb(sandbox: &Sandbox<'_>) -> Finding {
    const EMFILE: u64 = 24;
    let before = sandbox.ground.daemon_files();
    let run = sandbox.python(DESCRIPTORS);
    let after = sandbox.ground.daemon_files();
    let opened = run.number("opened");
    ensure(run.number("error") == EMFILE && opened <= 1 << 20, || format!("{run:?}"))?;
    // Connections are opened and closed; the bomb's files would be thousands.
    ensure(after < before + 64, || format!("the daemon went from {before} to {after} files"))?;
    let watches = watch_bomb(sandbox)?;
    let pipes = pipe_bomb(sandbox)?;
    Ok(format!(
        "EMFILE after {opened}; the daemon has {after} files, {before} before; {watches} inotify instances, its own; {pipes}"
    ))
}

/// Creates pipes, prints the capacity of the last one, and keeps them for some seconds.
const PIPES: &str = "import fcntl,os,sys,time\n\
    for _ in range(int(sys.argv[1])): r,w=os.pipe()\n\
    print('holds='+str(fcntl.fcntl(w,1032)),flush=True)\n\
    time.sleep(int(sys.argv[2]))\n";

/// The kernel counts the pages of pipes, and the watches of epoll, for each user of the *host*. If sandboxes shared a uid
/// there, with the kernel's default limits, 1,024 pipes in one sandbox would leave its neighbours, and their agents, with
/// small ones.
fn pipe_bomb(sandbox: &Sandbox<'_>) -> Result<String, RowFailure> {
    const FULL: u64 = 65_536;
    let bound =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/fs/{name}")).unwrap().trim().to_owned();
    if bound("pipe-user-pages-soft") != "0" {
        return Ok("this host does not let the daemon raise the bound on pipes".to_owned());
    }
    let exec = sandbox.start(&json!({ "argv": ["python3", "-c", PIPES, "2000", "60"] }));
    let own = eventually("the bomb to have its pipes", || {
        let said = sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
        said.lines().find_map(|line| line.strip_prefix("holds=")?.parse::<u64>().ok())
    });
    let other = sandbox.ground.sandbox(&[]).run(json!({ "argv": ["python3", "-c", PIPES, "1", "0"] }));
    ensure(own == FULL && other.number("holds") == FULL, || format!("{own}, {other:?}"))?;
    let watches: u64 = bound("epoll/max_user_watches").parse().unwrap();
    ensure(watches >= 2_000_000_000, || format!("epoll watches are bounded at {watches} for all together"))?;
    Ok("2,000 pipes leave the neighbours' as large as ever".to_owned())
}

/// The kernel also counts inotify instances for the user who created a user namespace. If one user created all of them,
/// the first sandbox to take all instances would leave none to its neighbours, nor to the host's own services.
fn watch_bomb(sandbox: &Sandbox<'_>) -> Result<u64, RowFailure> {
    let wanted = watches_wanted().to_string();
    let exec = sandbox.start(&json!({ "argv": ["python3", "-c", WATCHES, wanted, "60"] }));
    let taken = eventually("the bomb to have taken what it gets", || {
        let said = sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
        said.lines().find_map(|line| line.strip_prefix("instances=")?.parse::<u64>().ok())
    });
    let other = sandbox.ground.sandbox(&[]).run(json!({ "argv": ["python3", "-c", WATCHES, "10", "0"] }));
    ensure(other.number("instances") == 10, || format!("a neighbour gets none any more: {other:?}"))?;
    let host = run(Command::new("python3").args(["-c", WATCHES, "10", "0"]));
    ensure(host.number("instances") == 10, || format!("the host's root gets none any more: {host:?}"))?;
    Ok(taken)
}

/// More than a user of this host may have, or as many as one process can open.
fn watches_wanted() -> u64 {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    (limit.trim().parse::<u64>().unwrap() + 50).min(10_000)
}

/// A namespace that the host's root created uses up the quota of the host's root.
fn watches_of_root() -> Finding {
    if watches_wanted() == 10_000 {
        return Ok("this host has inotify instances for everybody".to_owned());
    }
    let script = "out=$(mktemp); (unshare -U -r python3 -c \"$1\" \"$2\" 2 > \"$out\") & \
                  until grep -q instances \"$out\" 2>/dev/null; do sleep 0.05; done; \
                  python3 -c \"$1\" 10 0; wait; rm -f \"$out\"";
    let mut command = Command::new("bash");
    let starved = run(command.args(["-c", script, "bash", WATCHES, &watches_wanted().to_string()]));
    ensure(starved.number("instances") < 10, || format!("{starved:?}"))?;
    Ok("a namespace made by root itself takes all of root's inotify instances".to_owned())
}

/// Takes this many inotify instances, and keeps them for some seconds.
const WATCHES: &str = "import ctypes,sys,time\n\
    libc=ctypes.CDLL(None,use_errno=True); n=0\n\
    while n<int(sys.argv[1]) and libc.inotify_init1(0)>=0: n+=1\n\
    print('instances='+str(n),flush=True)\n\
    time.sleep(int(sys.argv[2]))\n";

fn descriptors(ground: &Ground) -> Finding {
    // Two processes have two limits: together they exceed the limit of one.
    let twice = format!(
        "import os,time\nfor _ in range(2):\n  if os.fork()==0: exec({DESCRIPTORS:?}); time.sleep(3); os._exit(0)\nos.wait();os.wait()"
    );
    std::fs::write(ground.control_path("/twice.py"), twice).unwrap();
    let run = ground.unguarded("[ -c /dev/null ] && python3 /twice.py");
    let opened: Vec<u64> =
        run.out.lines().filter_map(|line| line.strip_prefix("opened=")?.parse().ok()).collect();
    let limit = opened.iter().max().copied().unwrap_or(0);
    ensure(opened.len() == 2 && opened.iter().sum::<u64>() > limit, || format!("{run:?}"))?;
    let watches = watches_of_root()?;
    Ok(format!("two processes hold {} at once; {watches}", opened.iter().sum::<u64>()))
}

// --- P-R6

/// Busy on every processor, and on the disk.
pub(crate) const BUSY: &str = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; \
                    (while :; do dd if=/dev/zero of=/busy bs=1M count=32 conv=fsync 2>/dev/null; done) & wait";

fn share(sandbox: &Sandbox<'_>) -> u64 {
    sandbox.start(&json!({ "command": BUSY, "timeout_ms": 60_000 }));
    eventually("the load to begin", || (processes(sandbox) >= 9).then_some(()));
    measured_share(sandbox)
}

/// Hundredths of a processor that the sandbox uses over some seconds.
pub(crate) fn measured_share(sandbox: &Sandbox<'_>) -> u64 {
    let used = || {
        let files = group_files(sandbox, "cpu.stat");
        let used =
            files.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("usage_usec "));
        used.and_then(|number| number.parse::<u64>().ok()).expect("the unified tree counts processor time")
    };
    let (begun, before) = (Instant::now(), used());
    // A measurement takes time; this does not wait for a condition.
    std::thread::sleep(Duration::from_secs(3));
    let (after, took) = (used(), begun.elapsed());
    (after - before) * 100 / u64::try_from(took.as_micros()).unwrap()
}

fn processor_bomb(sandbox: &Sandbox<'_>) -> Finding {
    let share = share(sandbox);
    ensure(share <= 20, || format!("{share} % of a processor instead of 10 %"))?;
    Ok(format!("got {share} % of a processor with --cpu 0.1"))
}

fn processors(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&["--cpu", "2"]);
    let share = share(&sandbox);
    ensure(share > 20, || format!("only {share} % of a processor"))?;
    Ok(format!("with --cpu 2 the same load takes {share} %"))
}

// --- P-R7

/// Children that end at once and are never reaped by their parent.
fn zombie_probe(wanted: u32) -> String {
    format!(
        "import os,time\n\
         n=0\n\
         try:\n\
         \x20 for n in range(1,{wanted}+1):\n\
         \x20   if os.fork()==0: os._exit(0)\n\
         except OSError as error: print('error='+str(error.errno)); n-=1\n\
         print('zombies='+str(n),flush=True)\n"
    )
}

/// Orphans, which PID 1 has to reap, one after the other.
fn orphan_probe(wanted: u32) -> String {
    format!(
        "import os\n\
         made=0\n\
         for _ in range({wanted}):\n\
         \x20 while True:\n\
         \x20   try: pid=os.fork(); break\n\
         \x20   except OSError: os.sched_yield()\n\
         \x20 if pid==0:\n\
         \x20   try: os.fork()\n\
         \x20   except OSError: pass\n\
         \x20   os._exit(0)\n\
         \x20 os.waitpid(pid,0); made+=1\n\
         print('orphans='+str(made))\n"
    )
}

const ORPHANS: u32 = 20_000;

fn zombie_bomb(sandbox: &Sandbox<'_>) -> Finding {
    zombies_of(sandbox, ORPHANS)
}

/// In a sandbox with a limit of 128 processes, with this many orphans.
pub(crate) fn zombies_of(sandbox: &Sandbox<'_>, wanted: u32) -> Finding {
    let run = sandbox.python(&zombie_probe(wanted));
    ensure(run.number("zombies") < 128 && run.number("error") == EAGAIN, || format!("{run:?}"))?;
    let orphans = sandbox.python(&orphan_probe(wanted));
    ensure(orphans.number("orphans") == u64::from(wanted), || format!("{orphans:?}"))?;
    let left = eventually("the agent to reap", || {
        let left =
            sandbox.sh("ps -eo stat= | grep -c '^Z'; true").out.trim().parse::<u32>().unwrap_or(u32::MAX);
        (left == 0).then_some(left)
    });
    sandbox.delete();
    // The execs of the other sandboxes are zombies for a moment, too.
    eventually("the host to have no zombies", || (zombies_on_host(sandbox.ground) == 0).then_some(()));
    Ok(format!("EAGAIN after {} zombies; {wanted} orphans reaped, {left} left", run.number("zombies")))
}

/// Zombies that were in cgroups of this daemon; other programs may have some of their own.
fn zombies_on_host(ground: &Ground) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let text = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    let is_zombie = |path: &Path| text(path, "status").lines().any(|line| line.starts_with("State:\tZ"));
    processes.filter(|path| is_zombie(path) && text(path, "cgroup").contains(ground.daemon.cgroup())).count()
}

fn zombies(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/zombies.py"), zombie_probe(1000)).unwrap();
    let run: Run = ground.unguarded("python3 /zombies.py");
    ensure(run.number("zombies") == 1000, || format!("{run:?}"))?;
    Ok("without a limit the probe leaves 1000".to_owned())
}

// --- P-R12

/// Connections to itself, each with the largest buffer that the kernel allows, up to 128 KiB.
const BUFFER_CONNECTIONS: u32 = 2000;

/// The other end never reads, so the kernel buffers everything that was sent.
fn buffer_probe() -> String {
    format!(
        "import resource,socket\n\
         most=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE,(most,most))\n\
         listener=socket.create_server(('127.0.0.1',0),backlog=16)\n\
         kept=[];sent=0\n\
         try:\n\
         \x20 for _ in range({BUFFER_CONNECTIONS}):\n\
         \x20   one=socket.create_connection(listener.getsockname())\n\
         \x20   kept.append((one,listener.accept()[0]))\n\
         \x20   one.setblocking(False)\n\
         \x20   try:\n\
         \x20     for _ in range(2): sent+=one.send(bytes(65536))\n\
         \x20   except BlockingIOError: pass\n\
         except OSError as error: print('error='+str(error.errno))\n\
         print('mib='+str(sent>>20))\n\
         print('connections='+str(len(kept)))\n"
    )
}

fn buffer_bomb(sandbox: &Sandbox<'_>) -> Finding {
    const ENOMEM: u64 = 12;
    const ENOBUFS: u64 = 105;
    let kills = || sandbox.stats()["oom_kills"].as_u64().unwrap();
    let before = kills();
    let run = sandbox.python(&buffer_probe());
    let alive = sandbox.sh("echo alive");
    ensure(alive.out.trim() == "alive", || format!("{alive:?}"))?;
    if !run.ok() {
        // cgroup v2 charges buffers like all other RAM.
        let after = kills();
        ensure(after > before, || format!("it ended, and not for lack of RAM: {run:?}"))?;
        return Ok(format!("the kernel ended it at its RAM limit ({} kills)", after - before));
    }
    let (mib, connections) = (run.number("mib"), run.number("connections"));
    // A quarter of its RAM, and the first message of each of its 256 sockets.
    ensure(mib <= 40, || format!("a sandbox of 64 MiB holds {mib} MiB in socket buffers: {run:?}"))?;
    if connections < u64::from(BUFFER_CONNECTIONS) {
        let error = run.number("error");
        ensure([ENOMEM, ENOBUFS].contains(&error), || format!("not the limit of sockets: {run:?}"))?;
        return Ok(format!("{mib} MiB in {connections} connections, then errno {error}"));
    }
    Ok(format!("{mib} MiB in {connections} connections, in a sandbox of 64 MiB"))
}

fn buffers(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/buffers.py"), buffer_probe()).unwrap();
    let mib = ground.unguarded("python3 /buffers.py").number("mib");
    ensure(mib > 128, || format!("without a limit only {mib} MiB are held"))?;
    Ok(format!("without a limit {mib} MiB"))
}

// --- P-R15

/// Sockets whose queue is filled with the kernel's answer to a malformed request, which repeats the request: together
/// more than twice the RAM of the sandbox. Then they are kept open for a while.
fn netlink_probe(seconds: u32) -> String {
    format!(
        "import resource,socket,struct,time\n\
         most=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE,(most,most))\n\
         try: socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,2); print('usersock=1')\n\
         except OSError as error: print('usersock=0')\n\
         request=bytearray(180000)\n\
         struct.pack_into('=IHHII',request,0,len(request),255,5,1,0)\n\
         kept=[];sent=0\n\
         for _ in range(800):\n\
         \x20 one=socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,0)\n\
         \x20 one.setblocking(False); kept.append(one)\n\
         \x20 try: sent+=one.send(request)\n\
         \x20 except OSError: pass\n\
         print('mib='+str(sent>>20),flush=True)\n\
         time.sleep({seconds})\n\
         print('kept=1')\n"
    )
}

fn netlink_bomb(sandbox: &Sandbox<'_>) -> Finding {
    let begun = Instant::now();
    let run = sandbox.python(&netlink_probe(20));
    let took = begun.elapsed();
    ensure(!run.ok() && !run.out.contains("kept=1"), || format!("it kept its sockets: {run:?}"))?;
    // It may have been killed before it had filled all of them.
    ensure(!run.out.contains("usersock=1"), || {
        format!("processes may send each other netlink messages: {run:?}")
    })?;
    let alive = sandbox.sh("echo alive; python3 -c 'import socket; print(len(socket.if_nameindex()))'");
    ensure(alive.out.starts_with("alive\n"), || format!("{alive:?}"))?;
    let small = "import socket\ns=[socket.socket(16,3,0) for _ in range(50)]\nprint('ok')\n";
    let small = sandbox.python(small);
    ensure(small.out.trim() == "ok", || format!("{small:?}"))?;
    Ok(format!("the process was killed after {} ms; the sandbox runs on", took.as_millis()))
}

fn netlink_queues(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/netlink.py"), netlink_probe(4)).unwrap();
    let run = ground.unguarded("python3 /netlink.py");
    ensure(run.ok() && run.number("kept") == 1 && run.number("usersock") == 1, || format!("{run:?}"))?;
    let mib = run.number("mib");
    ensure(mib > 128, || format!("only {mib} MiB are held"))?;
    Ok(format!("unguarded, {mib} MiB are held"))
}
