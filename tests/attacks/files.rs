//! P-F1 to P-F4: the file interface with paths that lead outside, with endless files, and while files change.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, ensure};
use crate::wire::encode;

pub(crate) const ROWS: &[Row] = &[
    Row { id: "P-F1", what: "paths that lead out", sandbox: &[], attack: paths, control: joined },
    Row {
        id: "P-F2",
        what: "links swapped during reads",
        sandbox: &[],
        attack: swapped,
        control: swapped_naive,
    },
    Row {
        id: "P-F3",
        what: "FIFOs, devices, endless files and folders",
        sandbox: &[],
        attack: endless,
        control: endless_naive,
    },
    Row {
        id: "P-F4",
        what: "hard links across mounts",
        sandbox: &[],
        attack: links,
        control: links_unguarded,
    },
];

// --- P-F1

/// Query values, already encoded for the wire.
fn hostile_paths(canary: &Path, root: &Path) -> Vec<Vec<u8>> {
    let canary = canary.to_str().unwrap();
    let up = "/..".repeat(20);
    let mut paths: Vec<Vec<u8>> = [
        canary.to_owned(),
        format!("{up}{canary}"),
        format!("{}{canary}", "/%2e%2e".repeat(20)),
        format!("{}{canary}", "/%252e%252e".repeat(20)),
        format!("{}{canary}", "%2f..%2f..%2f..%2f..%2f..%2f.."),
        format!("/proc/1/root{canary}"),
        format!("/proc/self/root{canary}"),
        format!("/proc/1/cwd{up}{canary}"),
        format!("/tmp/.{canary}%00.txt"),
        format!("{}%00", canary),
        format!("..{canary}"),
        format!("//..//..//{canary}"),
        format!("/\\..\\..{canary}"),
        canary.trim_start_matches('/').to_owned(),
        String::new(),
        format!("{}/{}", root.display(), "etc/shadow"),
        format!("/{}", "a".repeat(64 << 10)),
        format!("{}{canary}", "/.".repeat(30 << 10)),
        "/%ff%fe/canary".to_owned(),
        "/%c0%ae%c0%ae/canary".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec();
    paths.push(b"/\xff\xfe".to_vec());
    paths
}

fn paths(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let mut resolved = 0;
    let paths = hostile_paths(ground.canaries.file(), &sandbox.root());
    for path in &paths {
        for (method, rest) in
            [("GET", ""), ("GET", "/stat"), ("GET", "/list"), ("GET", "/tar"), ("PUT", ""), ("DELETE", "")]
        {
            let more: &[u8] = if method == "PUT" { b"&parents=true" } else { b"" };
            let target =
                [format!("/v1/sandboxes/{}/files{rest}?path=", sandbox.id).as_bytes(), path, more].concat();
            // A server that refuses the request line may close the connection; that is a refusal, too.
            let Ok(answer) = ground.wire().ask(method, &target, "", b"overwritten") else { continue };
            sandbox.heard(&answer.body);
            let shown = || {
                format!(
                    "{method} {rest} {}: {}",
                    String::from_utf8_lossy(&path[..path.len().min(100)]),
                    answer.status
                )
            };
            ensure(answer.status < 500, shown)?;
            resolved += u32::from(answer.status < 300);
        }
    }
    for target in [
        "/v1/sandboxes/../../etc/passwd".to_owned(),
        "/v1/sandboxes/%2e%2e/files?path=/etc/passwd".to_owned(),
        format!("/v1/sandboxes/{}%2f..%2fneighbour/files?path=/root/secret", sandbox.id),
        format!("/v1/sandboxes/{}/../neighbour/files?path=/root/secret", sandbox.id),
        format!("/v1/sandboxes/{}/files?path=/etc/hostname&path=/root/secret", sandbox.id),
    ] {
        let Ok(answer) = ground.wire().ask("GET", target.as_bytes(), "", b"") else { continue };
        sandbox.heard(&answer.body);
        ensure((400..500).contains(&answer.status), || format!("{target}: {}", answer.status))?;
    }
    let inside = sandbox.ask("GET", "/files?path=/../../../etc/hostname");
    let own = sandbox.sh("cat /etc/hostname").out;
    ensure(inside.status == 200 && inside.text() == own, || format!("{} {}", inside.status, inside.text()))?;
    Ok(format!("{} paths by six routes: {resolved} resolved inside, the rest refused", paths.len()))
}

fn joined(ground: &Ground) -> Finding {
    let root = ground.folder("joined/root");
    std::fs::write(ground.scratch.path().join("joined/outside"), "outside").unwrap();
    let read = std::fs::read_to_string(root.join("../outside")).unwrap_or_default();
    let absolute = std::fs::read_to_string(root.join(ground.canaries.file())).unwrap_or_default();
    ensure(read == "outside" && absolute == ground.canaries.content(), || format!("{read:?} {absolute:?}"))?;
    Ok("a server that joins paths reads outside of its root by both".to_owned())
}

// --- P-F2

const READS: u32 = 10_000;
const WRITES: u32 = 1000;

/// Swaps a link between the root and a folder with a decoy, as fast as possible.
const SWAPPER: &str = "import os,sys\n\
    n=0\n\
    while True:\n\
    \x20 n+=1\n\
    \x20 os.symlink('/' if n%2 else '/w/d','/w/next'); os.rename('/w/next','/w/l')\n";

fn swapped(sandbox: &Sandbox<'_>) -> Finding {
    swapped_during(sandbox, READS, WRITES)
}

/// Number of reads and writes during the swaps.
pub(crate) fn swapped_during(sandbox: &Sandbox<'_>, reads: u32, writes: u32) -> Finding {
    let canary = sandbox.ground.canaries.file().to_str().unwrap();
    let decoy =
        format!("mkdir -p \"/w/d$(dirname {canary})\" && printf decoy > /w/d{canary} && ln -s /w/d /w/l");
    let made = sandbox.sh(&decoy);
    ensure(made.ok(), || format!("{made:?}"))?;
    let swapper = sandbox.start(&json!({ "argv": ["python3", "-c", SWAPPER] }));
    let base = format!("/v1/sandboxes/{}/files?path=/w/l", sandbox.id);
    let mut wire = sandbox.ground.wire();
    let (mut decoys, mut absent) = (0, 0);
    for _ in 0..reads {
        let answer = wire.ask("GET", format!("{base}{canary}").as_bytes(), "", b"").unwrap();
        match (answer.status, answer.body.as_slice()) {
            (200, b"decoy") => decoys += 1,
            (404, _) => absent += 1,
            (status, body) => {
                sandbox.heard(body);
                ensure((400..500).contains(&status), || {
                    format!("{status} {}", String::from_utf8_lossy(body))
                })?;
            }
        }
    }
    let folder = sandbox.ground.canaries.folder().to_str().unwrap();
    for number in 0..writes {
        let target = format!("{base}{folder}/written-{number}");
        let answer = wire.ask("PUT", target.as_bytes(), "application/octet-stream", b"x").unwrap();
        ensure(answer.status < 500, || format!("{} {}", answer.status, answer.text()))?;
    }
    let running = sandbox.exec(&swapper)["state"] == "running";
    ensure(running && decoys > 0 && absent > 0, || format!("no race: {decoys} decoys, {absent} absent"))?;
    Ok(format!(
        "{reads} reads: {decoys} found the decoy, {absent} nothing, none the host's file; {writes} writes stayed inside"
    ))
}

fn swapped_naive(ground: &Ground) -> Finding {
    let (root, outside) = (ground.folder("swap/root"), ground.folder("swap/outside"));
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("d/file"), "decoy").unwrap();
    std::fs::write(outside.join("file"), "outside").unwrap();
    let (link, next) = (root.join("l"), root.join("next"));
    let done = AtomicBool::new(false);
    let escaped = std::thread::scope(|scope| {
        scope.spawn(|| {
            for target in [root.join("d"), outside.clone()].iter().cycle() {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                symlink(target, &next).unwrap();
                std::fs::rename(&next, &link).unwrap();
            }
        });
        // Checks where the path leads, then opens it.
        let mut tries = 0_u32;
        let found = loop {
            tries += 1;
            let path = link.join("file");
            let good = path.canonicalize().is_ok_and(|real| real.starts_with(&root));
            if good && std::fs::read_to_string(&path).is_ok_and(|text| text == "outside") {
                break Some(tries);
            }
            if tries == 2_000_000 {
                break None;
            }
        };
        done.store(true, Ordering::SeqCst);
        found
    });
    let tries = escaped.ok_or_else(|| "the race was never lost".to_owned())?;
    Ok(format!("a server that checks and then opens reads outside after {tries} reads"))
}

// --- P-F3

pub(crate) const ENTRIES: u32 = 110_000;

fn endless(sandbox: &Sandbox<'_>) -> Finding {
    let made = sandbox.python(&format!(
        "import os\n\
         os.mkfifo('/fifo'); f=open('/sparse','w'); os.ftruncate(f.fileno(),1<<50); os.mkdir('/many')\n\
         for n in range({ENTRIES}): os.close(os.open('/many/%d'%n,os.O_CREAT|os.O_WRONLY))\n\
         import socket; s=socket.socket(socket.AF_UNIX); s.bind('/socket')\n"
    ));
    ensure(made.ok(), || format!("{made:?}"))?;
    read_endless(sandbox, &[])
}

/// With `/fifo`, `/sparse`, `/many` and `/socket` in the sandbox, and more devices than the usual.
pub(crate) fn read_endless(sandbox: &Sandbox<'_>, devices: &[&str]) -> Finding {
    let before = sandbox.ground.daemon_rss_kib();
    let usual = ["/fifo", "/dev/zero", "/dev/random", "/dev/tty", "/dev/ptmx", "/socket", "/many"];
    for file in usual.iter().chain(devices) {
        let answer = sandbox.ask("GET", &format!("/files?path={file}"));
        ensure((400..500).contains(&answer.status), || format!("reading {file}: {}", answer.status))?;
        let target = format!("/v1/sandboxes/{}/files?path={file}&offset=0", sandbox.id);
        let answer = sandbox.ground.ask("PUT", target.as_bytes(), "application/octet-stream", b"x");
        ensure((400..500).contains(&answer.status), || format!("writing {file}: {}", answer.status))?;
    }
    let list = sandbox.ask("GET", "/files/list?path=/many");
    ensure((400..500).contains(&list.status), || format!("listing {ENTRIES} entries: {}", list.status))?;
    // It is streamed for as long as the client reads, and never buffered as a whole.
    let mut wire = sandbox.ground.wire();
    let status =
        wire.begin("GET", format!("/v1/sandboxes/{}/files?path=/sparse", sandbox.id).as_bytes()).unwrap();
    ensure(status == 200, || format!("{status}"))?;
    let read = wire.some(64 << 20).unwrap();
    ensure(read == 64 << 20, || format!("{read}"))?;
    drop(wire);
    let grown = sandbox.ground.daemon_rss_kib().saturating_sub(before);
    ensure(grown < 96 * 1024, || format!("the daemon grew by {grown} KiB"))?;
    let agent = eventually("the agent to answer", || sandbox.stats()["agent_ram_bytes"].as_u64());
    Ok(format!(
        "only regular files are read; {ENTRIES} entries refused ({}); a sparse file streams; daemon +{grown} KiB, agent {} MiB",
        list.status,
        agent >> 20
    ))
}

fn endless_naive(ground: &Ground) -> Finding {
    use std::io::Read as _;
    let mut read = Vec::new();
    std::fs::File::open("/dev/zero").unwrap().take(64 << 20).read_to_end(&mut read).unwrap();
    let folder = ground.folder("many");
    for number in 0..ENTRIES {
        std::fs::File::create(folder.join(number.to_string())).unwrap();
    }
    let listed = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    ensure(read.len() == 64 << 20 && listed == ENTRIES as usize, || format!("{} {listed}", read.len()))?;
    Ok("a naive server reads /dev/zero forever and lists all entries".to_owned())
}

// --- P-F4

const LINK_PROBE: &str = "for pair in '/etc/hostname /dev/shm/x' '/proc/version /x1' '/sys/kernel/notes /x2'; do \
                          ln $pair 2>/dev/null && echo \"linked $pair\"; done; rm -f /dev/shm/x; true";

fn links(sandbox: &Sandbox<'_>) -> Finding {
    let run = sandbox.sh(LINK_PROBE);
    ensure(run.ok() && !run.out.contains("linked"), || format!("{run:?}"))?;
    let body = json!({ "from": "/etc/hostname", "to": "/dev/shm/moved" });
    let moved = sandbox.post("/files/move", &body);
    ensure((400..500).contains(&moved.status), || {
        format!("moved across mounts: {} {}", moved.status, moved.text())
    })?;
    let made = sandbox.sh("echo one > /one && ln /one /two && stat -c %h /one");
    ensure(made.out.trim() == "2", || format!("{made:?}"))?;
    let daemon = &sandbox.ground.daemon;
    daemon.ok(&["stop", &sandbox.id]);
    daemon.ok(&["start", &sandbox.id]);
    let kept = sandbox.sh("stat -c %h /one && echo more >> /two && cat /one | wc -l");
    ensure(kept.out.split_whitespace().eq(["2", "2"]), || format!("{kept:?}"))?;
    let path = encode(b"/one");
    let removed = sandbox.ask("DELETE", &format!("/files?path={path}"));
    ensure(removed.status == 204 && sandbox.sh("stat -c %h /two").out.trim() == "1", || {
        format!("{}", removed.status)
    })?;
    Ok("EXDEV across mounts; link counts survive stop and start".to_owned())
}

fn links_unguarded(ground: &Ground) -> Finding {
    let run = ground.unguarded(LINK_PROBE);
    ensure(run.out.contains("linked /etc/hostname /dev/shm/x"), || format!("{run:?}"))?;
    Ok("where /dev/shm is no mount of its own the link is made".to_owned())
}
