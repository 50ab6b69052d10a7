//! E-A1: without a log no secret is injected, and changes to the log are detected.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::hosts::Sender;
use super::placeholders::works;
use super::{again, answered, inside, kept, outside, row, weakly};
use crate::ground::{Ground, Sandbox};
use crate::harness::{Daemon, eventually, run};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] =
    &[row("E-A1", "no room for the log; a log with something gone", unlogged, unlogged_unguarded)];

/// The spool of the audit log on a small separate disk, so that it can be filled.
pub(crate) struct SmallSpool(PathBuf);

fn spool(daemon: &Daemon) -> PathBuf {
    daemon.state_dir().join("audit/spool")
}

impl SmallSpool {
    /// Call it before the daemon is launched.
    pub(crate) fn under(daemon: &Daemon) -> Self {
        let spool = spool(daemon);
        fs::create_dir_all(&spool).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m,mode=0700", "none"]).arg(&spool));
        Self(spool)
    }
}

impl Drop for SmallSpool {
    fn drop(&mut self) {
        // The daemon and the egress process still have files open in it.
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// Uses all free space until it is dropped.
struct FilledDisk(PathBuf);

impl FilledDisk {
    fn up(daemon: &Daemon) -> Self {
        let file = spool(daemon).join("filling");
        let output = Command::new("dd")
            .args(["if=/dev/zero", "bs=4k"])
            .arg(format!("of={}", file.display()))
            .output()
            .unwrap();
        assert!(!output.status.success(), "there is no end to the room");
        Self(file)
    }
}

impl Drop for FilledDisk {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// More requests than the already allocated space of the log can record.
const MANY: &str = "
for number in range(30): ask('with', '/v1/a1-secret')
http2('with-2', 'up.example', path='/v1/a1-secret')
";

fn unlogged(sandbox: &Sandbox<'_>) -> Finding {
    works(sandbox)?;
    let sent =
        || outside().records.with("a1-secret").iter().filter(|seen| seen.sender == Sender::Egress).count();
    let full = FilledDisk::up(&sandbox.ground.daemon);
    let found = again(sandbox, MANY)?;
    answered(&found, &[200, 503])?;
    kept(&found)?;
    let with = found.iter().filter(|attempt| attempt.status == 200).count();
    let last: Vec<u16> = found.iter().rev().take(5).map(|attempt| attempt.status).collect();
    ensure(last == [503; 5], || format!("not refused: {found:?}"))?;
    ensure(sent() == with, || format!("{} were sent, {with} answered", sent()))?;
    // Requests that need no secret continue to work.
    answered(&again(sandbox, "ask('without', '/open/a1')")?, &[200])?;
    drop(full);
    let after = eventually("the log to have room again", || {
        let found = again(sandbox, "ask('with', '/v1/a1-secret')").ok()?;
        (found[0].status == 200).then_some(found)
    });
    kept(&after)?;
    // Every request that was sent is in the log.
    let injected = |event: &Value| event["action"] == "egress.inject" && event["path"] == "/v1/a1-secret";
    super::audited_times(sandbox, sent(), "the secret that went along", injected);
    changed(sandbox)?;
    Ok(format!(
        "{with} of {} while there was room, then 503 and nothing sent; every change of the log is found",
        found.len()
    ))
}

/// Removed, swapped, repeated and changed events are detected.
fn changed(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let daemon = &sandbox.ground.daemon;
    let at = |name: &str| outside().file(name).display().to_string();
    let (export, kept, key) = (at("audit.jsonl"), at("checkpoint"), at("audit.pub"));
    fs::write(&key, daemon.ok(&["audit", "key"]) + "\n").unwrap();
    fs::write(&kept, daemon.ok(&["audit", "checkpoint"]) + "\n").unwrap();
    inside(sandbox, "ask('more', '/v1/a1-more')")?;
    daemon.ok(&["audit", "export", "-o", &export]);
    let verify =
        ["audit", "verify", "--export", &export, "--checkpoint", &kept, "--public-key", &key, "--json"];
    let told: Value = serde_json::from_str(&daemon.ok(&verify)).unwrap();
    ensure(told["verified"] == true, || format!("the log itself does not verify: {told}"))?;
    let text = fs::read_to_string(&export).unwrap();
    let leak = outside().leak(&text);
    ensure(leak.is_none(), || format!("the export holds {leak:?}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let injected = lines.iter().position(|line| line.contains("egress.inject")).unwrap();
    let mut removed = lines.clone();
    removed.remove(injected);
    let mut swapped = lines.clone();
    swapped.swap(injected, injected + 1);
    let mut repeated = lines.clone();
    repeated.insert(injected, lines[injected]);
    let edited = lines[injected].replace("egress.inject", "egress.allow");
    let mut changed = lines.clone();
    changed[injected] = &edited;
    for (what, lines) in
        [("removed", removed), ("swapped", swapped), ("repeated", repeated), ("edited", changed)]
    {
        fs::write(&export, lines.join("\n") + "\n").unwrap();
        let output = daemon.cli(&verify);
        ensure(!output.status.success(), || format!("an event was {what}, and nobody noticed"))?;
    }
    // Everything since the stored checkpoint and more is removed, with a checkpoint that matches the rest.
    let shorter = &lines[..lines.len() / 2];
    fs::write(&export, shorter.join("\n") + "\n").unwrap();
    ensure(!daemon.cli(&verify).status.success(), || "half the log is gone, and nobody noticed".to_owned())
}

fn unlogged_unguarded(_: &Ground) -> Finding {
    answered(&weakly("ask('with', '/v1/a1-secret')")?, &[200])?;
    Ok("a program with the secret in hand leaves no trace at all".to_owned())
}
