//! What the kernel says about a process: resident memory, its peak, processor time; and commands that must succeed.

use std::fs;
use std::process::Command;

use crate::error::BenchError;

/// Resident memory now.
pub(crate) fn rss_kib(pid: u32) -> Result<u64, BenchError> {
    status_kib(pid, "VmRSS:")
}

/// Peak resident memory since the last [`reset_peak`].
pub(crate) fn peak_kib(pid: u32) -> Result<u64, BenchError> {
    status_kib(pid, "VmHWM:")
}

/// Resets the peak to the present resident memory.
pub(crate) fn reset_peak(pid: u32) -> Result<(), BenchError> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").map_err(BenchError::io("reset the peak by", path))
}

/// Whether it is PID 1 of a pid namespace below ours.
pub(crate) fn is_first_of_its_namespace(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let Some(line) = field(&status, "NSpid:") else { return false };
    let mut pids = line.split_whitespace();
    pids.clone().count() > 1 && pids.next_back() == Some("1")
}

/// User and system time, in clock ticks.
pub(crate) fn cpu_ticks(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
    // The second field is the program's name in brackets and may contain any character; user time is the 12th field
    // after it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(number(11) + number(12))
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, BenchError> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(BenchError::io("run", &shown))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Command { command: shown, status: output.status, message })
}

fn status_kib(pid: u32, name: &'static str) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
    field(&status, name).and_then(|line| line.split_whitespace().next()?.parse().ok()).ok_or_else(|| {
        BenchError::WrongAnswer { what: format!("no {name} in {path}: the process has ended") }
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}
