//! Artifacts: large ones with constant RAM, small ones by name and version, all of them restored with the sandbox.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use crate::harness::{Daemon, eventually};

const LARGE: u64 = 100 << 20;
/// The growth of the daemon that is allowed while a blob passes through: buffers, not the blob.
const GROWTH_KIB_MAX: u64 = 40 << 10;

/// Bytes that neither compression nor deduplication makes smaller, the same each time.
fn noise(length: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..length / (1 << 20)).map(move |_| {
        (0..(1 << 20) / 8)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect()
    })
}

#[test]
fn an_artifact_of_a_hundred_megabytes_passes_at_constant_ram() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.fed(&["artifact", "put", "alpha", "-", "--name", "warm"], b"x");
    let (before, _) = daemon.ram_kib();
    let mut put = daemon
        .command(&["artifact", "put", "alpha", "-", "--name", "dumps/large", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = put.stdin.take().unwrap();
    for piece in noise(LARGE) {
        stdin.write_all(&piece).unwrap();
    }
    drop(stdin);
    let answer = put.wait_with_output().unwrap();
    assert!(answer.status.success());
    let kept: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(kept["bytes"], LARGE);

    let mut get =
        daemon.command(&["artifact", "get", "alpha", "dumps/large"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = get.stdout.take().unwrap();
    for piece in noise(LARGE) {
        let mut read = vec![0; piece.len()];
        stdout.read_exact(&mut read).unwrap();
        assert!(read == piece, "what comes back is what was given");
    }
    assert_eq!(stdout.read(&mut [0]).unwrap(), 0);
    assert!(get.wait().unwrap().success());
    let (_, peak) = daemon.ram_kib();
    assert!(peak < before + GROWTH_KIB_MAX, "{before} KiB before, {peak} KiB at most");
    let part = daemon
        .cli(&["artifact", "get", "alpha", "dumps/large", "--from", "1048576", "--to", "1048580"])
        .stdout;
    assert_eq!(part, noise(LARGE).nth(1).unwrap()[..4]);
    assert!(daemon.ok(&["memory", "check", "alpha"]).contains("intact"));
}

#[test]
fn versions_of_an_artifact_are_restored_with_the_sandbox_and_stored_once() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let hash = |text: &[u8]| {
        let put = daemon.fed(&["artifact", "put", "alpha", "-", "--name", "report.txt"], text);
        assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        String::from_utf8(put.stdout).unwrap().trim().to_owned()
    };
    let first = hash(b"first");
    daemon.ok(&["memory", "add", "alpha", "the report is done", "--artifact", "report.txt"]);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "early", "--files-only"]);
    let second = hash(b"second");
    assert_ne!(first, second);
    assert_eq!(daemon.ok(&["artifact", "get", "alpha", "report.txt"]), "second");
    assert_eq!(daemon.ok(&["artifact", "get", "alpha", "report.txt", "--version", "1"]), "first");
    assert_eq!(daemon.ok(&["artifact", "get", "alpha", "report.txt", "--as-of", "early"]), "first");
    daemon.ok(&["snapshot", "restore", "early", "--in-place", "alpha", "--yes"]);
    assert_eq!(daemon.ok(&["artifact", "get", "alpha", "report.txt"]), "first");
    assert_eq!(
        daemon.json(&["artifact", "versions", "alpha", "report.txt", "--json"]).as_array().unwrap().len(),
        1
    );
    let listed = daemon.json(&["artifact", "ls", "alpha", "--json"]);
    assert_eq!(
        (&listed[0]["hash"], &listed[0]["media_type"]),
        (&first.as_str().into(), &"text/plain; charset=utf-8".into())
    );

    // The same content elsewhere has the same hash, and is removed with its last reference.
    daemon.create("beta");
    let put = daemon.fed(&["artifact", "put", "beta", "-", "--name", "copy"], b"first");
    assert_eq!(String::from_utf8(put.stdout).unwrap().trim(), first);
    daemon.ok(&["rm", "--purge", "-f", "--snapshots", "alpha"]);
    assert_eq!(daemon.ok(&["artifact", "get", "beta", "copy"]), "first");
    daemon.ok(&["artifact", "rm", "beta", "copy"]);
    let gone = daemon.refused(&["artifact", "get", "beta", "copy"], 1);
    assert!(gone.contains("copy"), "{gone}");
    eventually("the names to be gone", || {
        daemon.json(&["artifact", "ls", "beta", "--json"]).as_array().unwrap().is_empty().then_some(())
    });
}
