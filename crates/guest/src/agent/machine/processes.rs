//! The resource usage of all processes, summed up from procfs.
//!
//! Cheap on purpose: two short files per process. `smaps_rollup` would count shared pages more precisely, but walks
//! page tables.

use std::fs;
use std::io::Read;

use rustix::param::{clock_ticks_per_second, page_size};

/// More processes than a sandbox may have, so that a scan ends.
const PROCESSES_MAX: usize = 100_000;

/// The sums over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) ram_bytes: u64,
    pub(super) processes: u32,
    pub(super) threads: u32,
}

/// The fields of `/proc/<pid>/stat` that are used.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    /// The process's own time and that of its reaped children, in clock ticks.
    ticks: u64,
    threads: u32,
}

/// Sums up all processes. A process that ends meanwhile is left out.
pub(super) fn scan() -> Usage {
    let mut usage = Usage::default();
    let mut ticks = 0;
    let mut text = String::new();
    let Ok(entries) = fs::read_dir("/proc") else { return usage };
    for entry in entries.flatten().take(PROCESSES_MAX) {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let Some(stat) = read_into(&format!("/proc/{pid}/stat"), &mut text).and_then(parse_stat) else {
            continue;
        };
        ticks += stat.ticks;
        usage.threads += stat.threads;
        usage.processes += 1;
        let pages = read_into(&format!("/proc/{pid}/statm"), &mut text).and_then(unshared_pages).unwrap_or(0);
        usage.ram_bytes += pages * page_size() as u64;
    }
    usage.ram_bytes += shared_memory();
    usage.cpu_us = ticks.saturating_mul(1_000_000 / clock_ticks_per_second().max(1));
    usage
}

fn read_into<'t>(path: &str, text: &'t mut String) -> Option<&'t str> {
    text.clear();
    fs::File::open(path).ok()?.read_to_string(text).ok()?;
    Some(text)
}

/// The command name, in parentheses, may contain any characters, so the last closing parenthesis ends it.
fn parse_stat(stat: &str) -> Option<ProcessStat> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    // Field 3 (state) comes first; fields 14 to 17 are the times, field 20 the number of threads.
    let mut ticks = 0u64;
    let mut times = fields.by_ref().skip(11);
    for _ in 0..4 {
        ticks += u64::try_from(times.next()?.parse::<i64>().ok()?).unwrap_or(0);
    }
    let threads = fields.nth(2)?.parse().ok()?;
    Some(ProcessStat { ticks, threads })
}

/// Resident pages that are not backed by a file, and therefore not shared.
fn unshared_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let resident = fields.next()?.ok()?;
    let shared = fields.next()?.ok()?;
    Some(resident.saturating_sub(shared))
}

/// Files in `/dev/shm` use RAM that no process's own pages include.
fn shared_memory() -> u64 {
    rustix::fs::statvfs("/dev/shm").map_or(0, |fs| (fs.f_blocks - fs.f_bfree.min(fs.f_blocks)) * fs.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_and_spaces_is_parsed() {
        let stat = "42 (a) R 1 (b) S 1 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 7 0 100 1000 5";
        assert_eq!(parse_stat(stat), Some(ProcessStat { ticks: 100, threads: 7 }));
        assert_eq!(parse_stat("garbage"), None);
        assert_eq!(parse_stat("1 (x) S 1"), None);
    }

    #[test]
    fn a_scan_includes_the_test_process() {
        let usage = scan();
        assert!(usage.processes > 0 && usage.threads >= usage.processes && usage.ram_bytes > 0, "{usage:?}");
    }
}
