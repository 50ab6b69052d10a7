//! P-K10, P-K12 and P-K14: changes that a guest makes to its own files and programs, where the host might trust them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::emulator::{Emulator, names, shared};
use super::{MachineRow, lives, own};
use crate::boundaries::{EXE_PROBE, HostState};
use crate::controls::run;
use crate::ground::{Sandbox, fingerprint};
use crate::harness::eventually;
use crate::report::{Finding, RowFailure, ensure};

pub(super) const ROWS: &[MachineRow] = &[
    own("P-K10", "setuid files, sudo", setuid),
    own("P-K12", "overwrite the agent", overwrite),
    own("P-K14", "a disk whose /dev, /proc are links; a disk of rubbish", hostile_disk),
];

// --- P-K10

fn setuid(sandbox: &Sandbox<'_>) -> Finding {
    let sudo = sandbox.run(json!({ "command": "sudo -n id -u", "user": "user" }));
    ensure(sudo.out.trim() == "0", || format!("sudo does not work inside: {sudo:?}"))?;
    let made = sandbox.sh(
        "cp /usr/bin/id /suid && chmod 4755 /suid && sync && setpriv --reuid 1000 --clear-groups /suid -u",
    );
    ensure(made.out.trim() == "0", || format!("a setuid file does nothing inside: {made:?}"))?;
    // On the host there is no such file, and only root can open the disk that contains it.
    let held = names(&sandbox.root());
    ensure(held == ["disk.raw"], || format!("the host holds {held:?}"))?;
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", "head -c 1 \"$0\""]);
    let tried = run(stranger.arg(sandbox.root().join("disk.raw")).current_dir("/"));
    ensure(!tried.ok(), || format!("a stranger on the host reads its disk: {tried:?}"))?;
    let uid = Emulator::running(sandbox)?.uid();
    Ok(format!("sudo and setuid work inside; root inside is uid {uid}; nobody on the host can open its disk"))
}

// --- P-K12

/// The base files of all machines, byte for byte.
fn sums(sandbox: &Sandbox<'_>) -> Result<String, RowFailure> {
    let sums = run(Command::new("sha256sum").args(shared(sandbox.ground)));
    ensure(sums.ok(), || format!("{sums:?}"))?;
    Ok(sums.out)
}

/// Templates: machines from which others continue, and the disks of which theirs are copies.
fn templates(sandbox: &Sandbox<'_>) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let volumes = fs::read_dir(sandbox.ground.daemon.pool().join("images")).unwrap();
    let folders = volumes.filter_map(|volume| Some(volume.ok()?.path().join("rootfs")));
    let files = folders.flat_map(|folder| ["disk.raw", "ram", "devices"].map(|name| folder.join(name)));
    let about = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).ok()?;
        Some((path, meta.len(), meta.modified().ok()?))
    };
    let mut found: Vec<_> = files.filter_map(about).collect();
    found.sort();
    found
}

/// Every way to replace a running program; in its own kernel some of them work.
const REPLACE: &str = "for c in ': > /.burrow/guest' 'rm -f /.burrow/guest' 'umount -l /.burrow/guest' \
    'cp /bin/true /.burrow/guest' 'mount --bind /bin/true /.burrow/guest' 'ln -sf /bin/true /.burrow/guest'; \
    do sh -c \"$c\" 2>/dev/null && echo \"did: $c\"; done; \
    printf '#!/proc/self/exe\\n' > /entry && chmod 755 /entry && ln -s /proc/self/exe /entry-link";

fn overwrite(sandbox: &Sandbox<'_>) -> Finding {
    let (before, templates_before) = (sums(sandbox)?, templates(sandbox));
    ensure(templates_before.len() >= 3, || format!("no template to be seen: {templates_before:?}"))?;
    sandbox.put("/exe.py", EXE_PROBE.as_bytes());
    let direct = sandbox.sh("python3 /exe.py 1");
    ensure(!direct.out.is_empty(), || format!("{direct:?}"))?;
    let replaced = sandbox.sh(REPLACE);
    ensure(replaced.out.contains("did:"), || format!("nothing was replaced: {replaced:?}"))?;
    for entry in ["/entry", "/entry-link", "/proc/self/exe", "/proc/1/exe"] {
        let request = json!({ "argv": [entry], "wait": true, "timeout_ms": 5000 });
        let answer = sandbox.post("/execs", &request);
        ensure(answer.status < 500, || format!("{entry}: {} {}", answer.status, answer.text()))?;
    }
    // Its next start uses the host's agent, whatever is on its disk, and so does every other machine's.
    sandbox.ground.daemon.ok(&["stop", &sandbox.id]);
    sandbox.ground.daemon.ok(&["start", &sandbox.id]);
    lives(sandbox)?;
    lives(&sandbox.ground.sandbox(&[]))?;
    ensure(sums(sandbox)? == before, || "a program or kernel of the host changed".to_owned())?;
    let templates_after = templates(sandbox);
    ensure(templates_after == templates_before, || {
        format!("what others start from changed from {templates_before:?} to {templates_after:?}")
    })?;
    Ok(format!(
        "{} ways to replace its own agent worked until its next start; programs, kernel and templates are unchanged",
        replaced.out.matches("did:").count()
    ))
}

// --- P-K14

/// Turns every path that a start touches into a link, where nothing is mounted over it any more, and ends the machine.
const LINKED: &str = "exec 3>/proc/sysrq-trigger; exec unshare -m --propagation private sh -c '\
    umount -l /dev/pts /dev/shm /dev /sys /proc /.burrow/guest; cd /; for place in dev proc sys run tmp .burrow; \
    do mv $place moved-$place && ln -s \"$1\" $place || exit 1; done; \
    for place in etc/hostname etc/hosts etc/resolv.conf; do ln -sf \"$1/$place\" $place || exit 1; done; \
    sync; echo b >&3' sh \"$1\"";

const RUBBISH: &str = "dd if=/dev/urandom of=/dev/vda bs=1M count=4 conv=notrunc,fsync && \
    echo b > /proc/sysrq-trigger";

fn hostile_disk(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let (host, before) = (HostState::look(), fingerprint(ground.canaries.folder()));
    let canary = ground.canaries.folder().to_str().unwrap();
    ends_by(sandbox, &json!({ "argv": ["sh", "-c", LINKED, "sh", canary] }));
    let links = started(sandbox)?;
    // Another machine, whose disk is no longer a file system; it ends before its kernel could repair that.
    let other = ground.sandbox(&[]);
    ends_by(&other, &json!({ "argv": ["sh", "-c", RUBBISH] }));
    let rubbish = started(&other)?;
    ensure(rubbish != StartResult::Runs, || "it runs on a disk of rubbish".to_owned())?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    ensure(!mounts.contains("disk.raw"), || "the host has mounted a guest's disk".to_owned())?;
    ensure(HostState::look() == host && fingerprint(ground.canaries.folder()) == before, || {
        "a file or device of the host changed".to_owned()
    })?;
    Ok(format!(
        "with links for places: {links:?}; with rubbish for a file system: {rubbish:?}; the host mounts neither"
    ))
}

/// Runs a script that ends the machine when it has finished, and not before.
fn ends_by(sandbox: &Sandbox<'_>, request: &Value) {
    sandbox.start(request);
    eventually("the end of a machine", || {
        (sandbox.ask("GET", "").json()["state"] == "stopped").then_some(())
    });
}

#[derive(Debug, PartialEq, Eq)]
enum StartResult {
    Runs,
    Refused,
}

/// Starts it again: it runs on its own files, or the client gets the reason for the failure.
fn started(sandbox: &Sandbox<'_>) -> Result<StartResult, RowFailure> {
    let answer = sandbox.ask("POST", "/start");
    if answer.status == 200 {
        lives(sandbox)?;
        return Ok(StartResult::Runs);
    }
    let state = sandbox.ask("GET", "").json();
    ensure(state["state"] != "running", || format!("{} {}, and yet: {state}", answer.status, answer.text()))?;
    ensure(answer.text().contains("message"), || format!("{} without a reason", answer.status))?;
    Ok(StartResult::Refused)
}
