//! E-S12 to E-S14: searches for the secret wherever an attacker could find it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::placeholders::works;
use super::{again, answered, audited, begin, inside, outside, row, so_far};
use crate::controls;
use crate::ground::{Ground, Run, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-S12", "the memory of the egress process", memory, memory_unguarded),
    row("E-S13", "logs, metrics, errors, whatever is shown or kept", shown, shown_unguarded),
    row("E-S14", "snapshot, RAM, files, environment", artefacts, artefacts_unguarded),
];

// --- E-S12

/// Counts words in the memory of a process. It reads them from standard input, so that its own command line does not
/// contain them.
const SCAN: &str = r#"
import os, sys
pid = sys.argv[1]
words = [word.encode() for word in sys.stdin.read().split('\n') if word]
found = 0
with open('/proc/%s/maps' % pid) as maps, open('/proc/%s/mem' % pid, 'rb', 0) as memory:
    for line in maps:
        place, rights = line.split()[:2]
        if 'w' not in rights: continue
        begin, end = (int(part, 16) for part in place.split('-'))
        try:
            memory.seek(begin)
            held = b''
            while begin < end:
                part = memory.read(min(1 << 22, end - begin))
                if not part: break
                found += sum((held + part).count(word) for word in words)
                held, begin = part[-128:], begin + len(part)
        except OSError: pass
print('found=%d' % found)
"#;

/// Searches for the secret in a process's memory.
fn scan(process: u32) -> Run {
    use base64::Engine as _;
    use std::io::Write as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(&outside().secret);
    let words = format!("{}\n{encoded}\n", outside().secret);
    let mut command = Command::new("python3");
    command.args(["-c", SCAN, &process.to_string()]);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(words.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn egress_process(ground: &Ground) -> u32 {
    eventually("an egress process", || ground.daemon.egress_processes().first().copied())
}

fn memory(sandbox: &Sandbox<'_>) -> Finding {
    works(sandbox)?;
    let process = egress_process(sandbox.ground);
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').split_whitespace().next().unwrap_or_default().to_owned()
    };
    ensure(field("Uid") != "0", || "it runs as root".to_owned())?;
    for (name, value) in [("CapEff", "0000000000000000"), ("NoNewPrivs", "1"), ("Seccomp", "2")] {
        ensure(field(name) == value, || format!("{name} is {}", field(name)))?;
    }
    ensure(field("VmLck") != "0", || "nothing of it is kept out of swap".to_owned())?;
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap().to_owned();
    ensure(core.split_whitespace().nth(4) == Some("0"), || core.clone())?;
    // As the same user, the highest privilege without root.
    let (uid, gid) = (field("Uid"), field("Gid"));
    let peek = |process: &str| {
        let script = format!("cat /proc/{process}/environ >/dev/null; exec 3</proc/{process}/mem");
        let mut command = Command::new("setpriv");
        controls::run(command.args([
            "--reuid",
            &uid,
            "--regid",
            &gid,
            "--clear-groups",
            "--",
            "sh",
            "-c",
            &script,
        ]))
    };
    let own = peek("$$");
    ensure(own.ok(), || format!("nobody can read anything: {own:?}"))?;
    let peeked = peek(&process.to_string());
    ensure(!peeked.ok() && peeked.err.matches("Permission denied").count() == 2, || {
        format!("its memory can be read: {peeked:?}")
    })?;
    // From inside, that process is not visible at all.
    let inside = again(
        sandbox,
        "
names = [open('/proc/%s/cmdline' % pid).read() for pid in os.listdir('/proc') if pid.isdigit()]
tell('processes', len(names), str([name for name in names if 'egress' in name and 'python' not in name]))",
    )?;
    ensure(inside[0].text.trim() == "[]", || format!("{inside:?}"))?;
    // The daemon has passed it on, and kept nothing.
    let kept = scan(sandbox.ground.daemon.pid()).number("found");
    ensure(kept == 0, || format!("the daemon's memory holds it {kept} times"))?;
    Ok("neither read nor traced, no core, no swap; nothing of it in the daemon".to_owned())
}

fn memory_unguarded(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    works(&sandbox)?;
    let found = scan(egress_process(ground)).number("found");
    sandbox.delete();
    ensure(found > 0, || "root does not find it either".to_owned())?;
    Ok(format!("the host's root finds it there {found} times"))
}

// --- E-S13

fn shown(sandbox: &Sandbox<'_>) -> Finding {
    let probe = "
ask('good', '/v1/s13-good')
ask('denied', '/v2/s13-denied')
ask('misdirected', '/v1/s13', 'other.example', at='up.example')
ask('unproven', '/v1/s13', 'expired.example')
ask('compressed', '/v1/gzip')
ask('cut', '/v1/cut')
ask('malformed', '/v1/s13', more=b'Content-Length: 1\\r\\nTransfer-Encoding: chunked\\r\\n')
";
    let found = inside(sandbox, probe)?;
    super::kept(&found)?;
    audited(sandbox, "the last of them", |event| event["status"] == 400);
    let daemon = &sandbox.ground.daemon;
    let id = sandbox.id.as_str();
    for (what, text) in [
        ("the daemon's log", daemon.log()),
        ("metrics", sandbox.ground.ask("GET", b"/metrics", "", b"").text()),
        ("inspect", daemon.ok(&["inspect", id])),
        ("secret ls", daemon.ok(&["secret", "ls", "--json"])),
        ("the secret", sandbox.ground.ask("GET", b"/v1/secrets/bearer", "", b"").text()),
        ("egress show", daemon.ok(&["egress", "show", id, "--json"])),
        ("egress log", daemon.ok(&["egress", "log", id, "--json"])),
        ("audit", daemon.ok(&["audit", "ls", "--json", "-n", "10000"])),
        ("events", sandbox.ground.ask("GET", b"/v1/events", "", b"").text()),
    ] {
        let leak = outside().leak(&text);
        ensure(leak.is_none(), || format!("{what} holds {leak:?}"))?;
    }
    ensure(searched(&daemon.state_dir(), &outside().secret).is_empty(), || {
        "what the daemon keeps holds it".to_owned()
    })?;
    // The search itself works: it finds a name that is not secret.
    let log = daemon.ok(&["audit", "ls", "--json", "-n", "10000"]);
    ensure(log.contains("s13-denied") && log.contains("bearer"), || {
        "the log holds nothing of it".to_owned()
    })?;
    Ok("9 outputs and all the daemon keeps: nowhere".to_owned())
}

/// Files below `folder` that contain `word`.
fn searched(folder: &Path, word: &str) -> Vec<String> {
    let mut grep = Command::new("grep");
    let output = controls::run(grep.args(["-rlaF", "--", word]).arg(folder));
    output.out.lines().map(str::to_owned).collect()
}

fn shown_unguarded(ground: &Ground) -> Finding {
    // The daemon's files contain a name that is not secret; the secret is found where it arrives.
    let found = searched(&ground.daemon.state_dir(), "up.example");
    ensure(!found.is_empty(), || "nothing is found at all".to_owned())?;
    answered(&super::weakly("ask('weak', '/v1/s13', 'h1.example')")?, &[200])?;
    ensure(outside().records.heard("h1.example", &outside().secret) > 0, || "it arrived nowhere".to_owned())?;
    Ok(format!("what is no secret is found in {} files; the secret is at its host", found.len()))
}

// --- E-S14

fn artefacts(sandbox: &Sandbox<'_>) -> Finding {
    works(sandbox)?;
    // A process that has used the secret throughout its life, and writes everything it receives to files.
    let exec = begin(sandbox, "
kept = []
for path in ('/v1/echo', '/v1/forms', '/v1/pieces'):
    s = tls(); s.sendall(request(path, more=b'Authorization: Bearer ' + KEY.encode() + b'\\r\\n')); kept.append(plain(rest(s)))
open('/root/kept', 'wb').write(b''.join(kept) + KEY.encode())
print('it has it all', flush=True)
while not os.path.exists('/stop'): time.sleep(0.05)
");
    eventually("it to have it all", || so_far(sandbox, &exec).contains("it has it all").then_some(()));
    let fake = sandbox.sh("printf %s \"$API_KEY\"").out;
    let daemon = &sandbox.ground.daemon;
    let snapshot = daemon.ok(&["snapshot", "create", &sandbox.id]);
    let outcome = (|| {
        let id = snapshot.split_whitespace().next().unwrap_or_default().to_owned();
        let mut places = vec![("environment", sandbox.sh("cat /proc/[0-9]*/environ | tr '\\0' '\\n'").out)];
        places.push((
            "certificates",
            sandbox.sh("cat /usr/local/share/burrow/* /usr/local/share/ca-certificates/*").out,
        ));
        places.push((
            "files",
            sandbox
                .sh("cat /root/kept; find /run /tmp /var/log -type f -exec cat {} + 2>/dev/null; true")
                .out,
        ));
        places.push(("the snapshot", daemon.ok(&["snapshot", "inspect", &id])));
        for (what, text) in &places {
            let leak = outside().leak(text);
            ensure(leak.is_none(), || format!("{what} hold {leak:?}"))?;
        }
        ensure(!places[1].1.contains("PRIVATE KEY"), || "a key is among the certificates".to_owned())?;
        let pool = daemon.pool();
        let mut fakes = 0;
        for (what, folder) in [
            ("RAM", pool.join("dumps")),
            ("the snapshot's files", pool.join("snapshots").join(&id).join("rootfs/root")),
            ("the sandbox's files", sandbox.root().join("root")),
        ] {
            ensure(folder.exists(), || format!("{} is not there", folder.display()))?;
            let found = searched(&folder, &outside().secret[8..40]);
            ensure(found.is_empty(), || format!("{what}: {found:?}"))?;
            let faked = searched(&folder, &fake);
            ensure(!faked.is_empty(), || format!("{what} do not even hold the placeholder"))?;
            fakes += faked.len();
        }
        Ok::<_, RowFailure>(fakes)
    })();
    sandbox.put("/stop", b"");
    sandbox.wait(&exec);
    daemon.ok(&["snapshot", "rm", snapshot.split_whitespace().next().unwrap_or_default()]);
    let fakes = outcome?;
    Ok(format!("the placeholder is in {fakes} files of RAM and disk, the secret in none"))
}

fn artefacts_unguarded(ground: &Ground) -> Finding {
    // A program keeps what it is given: the same search finds it in the files of a deleted sandbox.
    let sandbox = ground.sandbox(&[]);
    let held = format!("{}-{}", "given", ground.canaries.token());
    let answer = again(&sandbox, &format!("open('/root/kept', 'w').write('{held}'); tell('kept', 200)"))?;
    answered(&answer, &[200])?;
    let found = searched(&sandbox.root().join("root"), &held);
    sandbox.delete();
    ensure(!found.is_empty(), || "what a program writes is not found".to_owned())?;
    Ok("what is given to a program is found by the same search".to_owned())
}
