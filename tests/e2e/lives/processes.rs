//! Finds and kills the processes of a daemon.

use std::fs;
use std::process::Command;

use crate::harness::eventually;

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Daemon,
    Launcher,
    Egress,
    None,
}

/// The launchers of a daemon, one per driver. Empty before its first request to a driver.
pub(super) fn launchers(daemon: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_launcher_of(*pid, daemon) == Some(true)).collect()
}

fn is_launcher_of(pid: u32, daemon: u32) -> Option<bool> {
    let (_, parent) = state_and_parent(pid)?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(parent == daemon && command.split(|byte| *byte == 0).any(|word| word == b"launcher"))
}

/// Kills processes, and waits until they have exited. A zombie counts as exited.
pub(super) fn kill(pids: &[u32]) {
    for pid in pids {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
    }
    eventually("killed processes to be gone", || {
        pids.iter().all(|pid| state_and_parent(*pid).is_none_or(|(state, _)| state == 'Z')).then_some(())
    });
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
