//! The statistics of the sandbox: its processes, disk and network, and the agent itself.

use std::fs;
use std::rc::Rc;

use rustix::param::page_size;

use super::processes::scan;
use crate::agent::Agent;
use crate::protocol::MachineStats;

/// Carries out [`crate::protocol::Request::Stats`].
pub(in crate::agent) async fn stats(agent: &Rc<Agent>) -> MachineStats {
    let own_kernel = agent.group.is_some();
    let look = move || (scan(), disk(), network(), own_ram(), if own_kernel { oom_kills() } else { 0 });
    let (usage, disk, network, agent_ram_bytes, oom_kills) =
        tokio::task::spawn_blocking(look).await.unwrap_or_default();
    agent.meminfo.show(usage.ram_bytes);
    MachineStats {
        cpu_us: usage.cpu_us,
        ram_bytes: usage.ram_bytes,
        ram_limit_bytes: agent.meminfo.limit(),
        processes: usage.processes,
        threads: usage.threads,
        disk_used_bytes: disk.0,
        disk_total_bytes: disk.1,
        network_received_bytes: network.0,
        network_sent_bytes: network.1,
        execs_running: u32::try_from(agent.execs.running()).unwrap_or(u32::MAX),
        agent_ram_bytes,
        uptime_ms: agent.boot.uptime_ms(),
        oom_kills,
    }
}

/// Of all processes since this kernel booted.
fn oom_kills() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Used and total.
fn disk() -> (u64, u64) {
    rustix::fs::statvfs("/").map_or((0, 0), |fs| {
        let used = fs.f_blocks.saturating_sub(fs.f_bfree);
        (used.saturating_mul(fs.f_frsize), fs.f_blocks.saturating_mul(fs.f_frsize))
    })
}

/// Received and sent bytes of all interfaces except loopback.
fn network() -> (u64, u64) {
    parse_network(&fs::read_to_string("/proc/net/dev").unwrap_or_default())
}

fn parse_network(text: &str) -> (u64, u64) {
    let mut total = (0, 0);
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        if name.trim() == "lo" {
            continue;
        }
        let mut counters = counters.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        total.0 += counters.next().unwrap_or(0);
        total.1 += counters.nth(7).unwrap_or(0);
    }
    total
}

fn own_ram() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    resident.unwrap_or(0) * page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_traffic_is_not_counted() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes\n    \
                    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0\n  \
                    eth0: 100 2 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n";
        assert_eq!(parse_network(text), (100, 50));
    }
}
