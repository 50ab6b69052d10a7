//! Export and import: a snapshot leaves one daemon as a file, and is imported and continued by another one with its own
//! pool.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use burrow_engine::faults::MOVING_POINTS;

use crate::harness::{Daemon, eventually};
use crate::sleep_crash::check_inventory;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A sandbox with files of all kinds, an entry in its memory, and a process that counts in RAM only.
fn lived(daemon: &Daemon, name: &str) {
    daemon.ok(&["create", "--name", name, "--label", "team=a"]);
    let script = "mkdir -p /srv/d; echo first > /srv/d/file; ln /srv/d/file /srv/d/again; ln -s ../d/file /srv/d/link
        chown user /srv/d/file; chmod 2750 /srv/d; mkfifo /srv/pipe; truncate -s 1G /srv/sparse; echo x >> /srv/sparse
        head -c 3000000 /dev/urandom > /srv/large; cp /srv/large /srv/large-too; touch -d @1700000000 /srv/d/file";
    daemon.ok(&["exec", name, "--", "sh", "-c", script]);
    daemon.ok(&["memory", "add", name, "the build needs make"]);
    daemon.ok(&["kv", "set", name, "step", "7"]);
}

fn count_up(daemon: &Daemon, name: &str) {
    let count = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done";
    daemon.ok(&["exec", "-d", name, "--", "sh", "-c", count]);
    eventually("the process to count", || {
        let counted = daemon.cli(&["exec", name, "--", "cat", "/tmp/count"]);
        String::from_utf8_lossy(&counted.stdout).trim().parse::<u64>().ok().filter(|count| *count > 3)
    });
}

fn counted(daemon: &Daemon, name: &str) -> u64 {
    eventually("a number", || daemon.ok(&["exec", name, "--", "cat", "/tmp/count"]).parse().ok())
}

#[test]
fn a_sandbox_moves_to_another_daemon_and_continues_there() {
    let (here, there) = (Daemon::start(), Daemon::start());
    lived(&here, "alpha");
    count_up(&here, "alpha");
    let sums = "cd /srv && sha256sum large large-too d/file && stat -c '%n %U %a %Y %h %s' d d/file d/again large sparse \
                && readlink d/link && stat -c %F pipe && stat -c %b sparse";
    let before = here.ok(&["exec", "alpha", "--", "sh", "-c", sums]);
    here.ok(&["snapshot", "create", "alpha", "--name", "moved"]);
    let at_least = counted(&here, "alpha") - 3;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alpha.burrow");
    let written = json(&here.ok(&["export", "moved", text(&file), "--json"]));
    let signer = written["signer"].as_str().unwrap();
    assert_eq!(written["bytes"].as_u64().unwrap(), fs::metadata(&file).unwrap().len());

    // Refused because of its header, before the rest of the file is sent.
    let beginning = folder.path().join("beginning");
    fs::write(&beginning, &fs::read(&file).unwrap()[..8192]).unwrap();
    let refused = there.cli(&["import", text(&beginning)]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("--trust") && message.contains("--files-only"),
        "{message}"
    );
    let imported = json(&there.ok(&["import", text(&file), "--trust", signer, "--json"]));
    assert_eq!(imported["snapshot"]["name"], "moved");
    assert_eq!(imported["snapshot"]["processes"], true);
    assert_eq!(imported["snapshot"]["labels"], serde_json::json!({}));
    there.ok(&["snapshot", "restore", "moved", "--name", "beta"]);
    assert_eq!(there.ok(&["exec", "beta", "--", "sh", "-c", sums]), before);
    let first = counted(&there, "beta");
    assert!(first >= at_least.min(3), "its process goes on from where it was: {first}");
    eventually("the moved process to go on", || Some(counted(&there, "beta")).filter(|now| *now > first + 3));
    let recalled = there.ok(&["memory", "ls", "beta"]);
    assert!(recalled.contains("the build needs make"), "{recalled}");
    assert_eq!(there.ok(&["kv", "get", "beta", "step"]), "7");
    // The imported sandbox has its own identity, and the original keeps its own.
    let id = |daemon: &Daemon, name: &str| daemon.ok(&["exec", name, "--", "cat", "/etc/machine-id"]);
    assert_ne!(id(&there, "beta"), id(&here, "alpha"));
    assert_eq!(here.ok(&["exec", "alpha", "--", "cat", "/srv/d/file"]), "first");
    check_inventory(&here, "after an export");
}

#[test]
fn an_incremental_export_contains_only_the_changes() {
    let (here, there) = (Daemon::start(), Daemon::start());
    lived(&here, "alpha");
    here.ok(&["snapshot", "create", "alpha", "--name", "one", "--files-only"]);
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("one"), folder.path().join("two"));
    let early = here.cli(&["export", "one", text(&part), "--since", "one"]);
    assert!(String::from_utf8_lossy(&early.stderr).contains("never exported"), "{early:?}");
    here.ok(&["export", "one", text(&whole)]);
    let script = "echo second > /srv/d/file; rm -r /srv/large-too; mkdir /srv/new; echo n > /srv/new/n; ln /srv/large /srv/l2
        rm /srv/pipe; mkdir /srv/pipe; chmod 700 /srv/d; rm /srv/d/link; ln -s elsewhere /srv/d/link";
    here.ok(&["exec", "alpha", "--", "sh", "-c", script]);
    here.ok(&["memory", "add", "alpha", "and then it changed"]);
    here.ok(&["snapshot", "create", "alpha", "--name", "two", "--files-only"]);
    here.ok(&["export", "two", text(&part), "--since", "one"]);
    let listing = "cd /srv && find . -printf '%p %y %m %U %s %n %l\\n' | sort && cat d/file new/n && sha256sum large l2 \
                   && test large -ef l2 && test d/file -ef d/again";
    let expected = here.ok(&["exec", "alpha", "--", "sh", "-c", listing]);

    // Because of its header alone.
    let beginning = folder.path().join("beginning");
    fs::write(&beginning, &fs::read(&part).unwrap()[..4096]).unwrap();
    let missing = there.cli(&["import", text(&beginning)]);
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        message.contains("which does not exist here") && message.contains("import that snapshot first"),
        "{message}"
    );
    there.ok(&["import", text(&whole)]);
    let second = json(&there.ok(&["import", text(&part), "--json"]));
    assert!(second["snapshot"]["parent"].is_string(), "it follows upon the first: {second}");
    there.ok(&["snapshot", "restore", "two", "--name", "beta"]);
    assert_eq!(there.ok(&["exec", "beta", "--", "sh", "-c", listing]), expected);
    assert!(there.ok(&["memory", "ls", "beta"]).contains("and then it changed"));
    // Its base is unchanged, and may be removed.
    there.ok(&["snapshot", "restore", "one", "--name", "gamma"]);
    assert_eq!(there.ok(&["exec", "gamma", "--", "cat", "/srv/d/file"]), "first");
    there.ok(&["snapshot", "rm", "one"]);
    assert_eq!(there.ok(&["exec", "beta", "--", "cat", "/srv/d/file"]), "second");
}

#[test]
fn damaged_and_encrypted_exports_are_distinguished_and_leave_nothing() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    daemon.ok(&["memory", "add", "alpha", "something"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "one", "--files-only"]);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("passphrase"), "correct horse battery staple\n").unwrap();
    daemon.ok(&["export", "one", text(&at("sealed")), "--passphrase-file", text(&at("passphrase"))]);
    assert!(fs::read(at("sealed")).unwrap().starts_with(b"age-encryption.org/v1"));
    let check = |file: &Path, expected: &str| {
        let refused = daemon.cli(&["import", text(file)]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && message.contains(expected), "{expected}: {message}");
    };
    fs::write(at("beginning"), &fs::read(at("sealed")).unwrap()[..4096]).unwrap();
    check(&at("beginning"), "--identity");
    let id = daemon.ok(&["import", text(&at("sealed")), "--passphrase-file", text(&at("passphrase"))]);
    daemon.ok(&["snapshot", "rm", &id]);

    // Through pipes, in both directions.
    let mut export = daemon.command(&["export", "one", "-"]);
    let mut export = export.stdout(Stdio::piped()).spawn().unwrap();
    let mut import = daemon.command(&["import", "-", "--name", "piped"]);
    let imported = import.stdin(export.stdout.take().unwrap()).output().unwrap();
    assert!(export.wait().unwrap().success() && imported.status.success(), "{imported:?}");
    daemon.ok(&["snapshot", "rm", "piped"]);

    daemon.ok(&["export", "one", text(&at("whole"))]);
    let whole = fs::read(at("whole")).unwrap();
    for (name, length) in [("half", whole.len() / 2), ("almost", whole.len() - 1)] {
        fs::write(at(name), &whole[..length]).unwrap();
        check(&at(name), "ends too early");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() - 50] ^= 1;
    fs::write(at("flipped"), &flipped).unwrap();
    check(&at("flipped"), "damaged");
    let mut newer = whole.clone();
    newer[8] = 2;
    fs::write(at("newer"), &newer[..4096]).unwrap();
    check(&at("newer"), "upgrade");
    fs::write(at("other"), "something else").unwrap();
    check(&at("other"), "not an exported snapshot");
    check_inventory(&daemon, "after refused imports");
    let left = json(&daemon.ok(&["snapshot", "ls", "--json"]));
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
}

#[test]
fn secrets_are_never_exported() {
    let daemon = Daemon::start();
    let canary = "canary-7f3a9c-never-to-travel";
    let allow = ["--allow", "https://api.example.com/v1/**", "--header", "Authorization: Bearer {}"];
    let mut set = daemon.command(&["secret", "set", "token", "--from-env", "CANARY"]);
    let set = set.args(allow).env("CANARY", canary).output().unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    daemon.ok(&["create", "--name", "alpha"]);
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo a marker that travels > /root/marker"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "one"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one");
    daemon.ok(&["export", "one", text(&file)]);
    let unpacked = unpacked(&file);
    let holds = |text: &str| unpacked.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("a marker that travels"), "what is looked through is the content");
    assert!(!holds(canary));
}

/// Every frame of an export, decompressed.
fn unpacked(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let (mut at, mut all) = (12, Vec::new());
    while at + 48 < bytes.len() {
        let word = |offset: usize| {
            u32::from_le_bytes(bytes[at + offset..at + offset + 4].try_into().unwrap()) as usize
        };
        let (compression, stored, raw) = (bytes[at + 1], word(4), word(8));
        let content = &bytes[at + 48..at + 48 + stored];
        match compression {
            1 => all.extend(zstd::bulk::decompress(content, raw).unwrap()),
            _ => all.extend_from_slice(content),
        }
        let last = bytes[at] == 6;
        at += 48 + stored;
        if last {
            break;
        }
    }
    all
}

/// Brings a fresh daemon to the start of `point`'s operation, arms the point and performs the operation.
fn hit(point: &str, action: &str, folder: &Path) -> Daemon {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    daemon.ok(&["memory", "add", "alpha", "something"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "one"]);
    daemon.ok(&["export", "one", text(&folder.join("before"))]);
    daemon.terminate();
    daemon.arm(Some(&format!("{point}={action}")));
    daemon.launch();
    let after = folder.join("after");
    let _ = fs::remove_file(&after);
    let done = match point.starts_with("export") {
        true => daemon.cli(&["export", "one", text(&after)]),
        false => daemon.cli(&["import", text(&folder.join("before")), "--name", "two"]),
    };
    assert!(!done.status.success(), "{point}: {done:?}");
    assert!(!after.exists(), "{point}: a file that is not whole is not there");
    daemon
}

/// Checks the host after a fault: an unacknowledged import is there completely or not at all.
fn check_recovered(daemon: &mut Daemon, point: &str, folder: &Path, context: &str) {
    daemon.arm(None);
    daemon.launch();
    check_inventory(daemon, context);
    let listed = json(&daemon.ok(&["snapshot", "ls", "--json"]));
    let expected = if point == "import.settled" { 2 } else { 1 };
    assert_eq!(listed.as_array().unwrap().len(), expected, "{context}: {listed}");
    for part in ["arriving", "transfer"] {
        assert_eq!(fs::read_dir(daemon.pool().join(part)).unwrap().count(), 0, "{context}");
    }
    let spaces = fs::read_dir(daemon.state_dir().join("memory")).unwrap();
    let spaces =
        spaces.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "db"));
    assert_eq!(spaces.count(), expected, "{context}");
    daemon.ok(&["import", text(&folder.join("before")), "--name", "again"]);
    daemon.ok(&["snapshot", "restore", "again", "--name", "beta"]);
    assert!(daemon.ok(&["memory", "ls", "beta"]).contains("something"), "{context}");
}

#[test]
fn a_kill_at_every_step_of_an_import_or_export_leaves_no_half_of_one() {
    for point in MOVING_POINTS {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = hit(point, "kill", folder.path());
        daemon.wait_dead();
        check_recovered(&mut daemon, point, folder.path(), &format!("after kill -9 at {point}"));
    }
}

#[test]
fn a_failure_at_every_step_of_an_import_or_export_leaves_no_half_of_one() {
    for point in MOVING_POINTS.iter().filter(|point| !point.ends_with(".settled")) {
        let context = format!("after a failure at {point}");
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = hit(point, "fail", folder.path());
        check_inventory(&daemon, &context);
        daemon.terminate();
        check_recovered(&mut daemon, point, folder.path(), &context);
    }
}
