//! Ends the sandbox: SIGTERM to all processes, then SIGKILL; the disk is synced; PID 1 exits.

use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::{Agent, services, signals};

/// How often the agent checks whether any process is left: between two SIGCHLDs there is no other notification.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// How long processes may take to end after SIGKILL: those in the middle of disk work end only after it.
const KILL_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long syncing may take before the sandbox ends regardless.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest grace period that a host may set: more would be a hang.
const GRACE_MAX: Duration = Duration::from_secs(600);

impl Agent {
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down.get()
    }

    /// Ends all processes and makes the server stop. Repeated calls wait for the first.
    pub(super) async fn shut_down(&self, grace_ms: u64) {
        if self.shutting_down.replace(true) {
            while !self.is_down.get() {
                self.down.notified().await;
            }
            return;
        }
        let grace = Duration::from_millis(grace_ms).min(GRACE_MAX);
        services::stop_supervising(self);
        signal_all(libc::SIGTERM);
        // A stopped process handles SIGTERM only once it continues.
        signal_all(libc::SIGCONT);
        // A microVM's kernel has threads that look like processes and never end.
        let owns_all = self.group.is_none() && std::process::id() == 1;
        let _ = tokio::time::timeout(grace, until_processes_ended(owns_all)).await;
        for exec in self.execs.all() {
            exec.note_killed_here();
        }
        signal_all(libc::SIGKILL);
        let _ = tokio::time::timeout(KILL_WAIT_MAX, until_processes_ended(owns_all)).await;
        let _ = tokio::time::timeout(SYNC_WAIT_MAX, tokio::task::spawn_blocking(sync_disk)).await;
        self.is_down.set(true);
        self.down.notify_waiters();
    }

    pub(super) async fn until_down(&self) {
        loop {
            let down = self.down.notified();
            if self.is_down.get() {
                return;
            }
            down.await;
        }
    }
}

fn signal_all(signal: i32) {
    if std::process::id() == 1 {
        // It is not an error if no process is left.
        let _ = signals::send_all(signal);
        return;
    }
    for pid in descendants() {
        let _ = signals::send(pid, signal);
    }
}

/// `owns_all`: every visible process must end first.
async fn until_processes_ended(owns_all: bool) {
    loop {
        let left = if owns_all { signals::any_process_left() } else { !descendants().is_empty() };
        if !left {
            return;
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Outside its own pid namespace (in tests), or next to kernel threads, the agent owns only its descendants.
fn descendants() -> Vec<i32> {
    let mut parents = Vec::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some(parent) =
            stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2)?.parse::<i32>().ok())
        else {
            continue;
        };
        parents.push((pid, parent));
    }
    let mut found = vec![i32::try_from(std::process::id()).unwrap_or(0)];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, other)| *other == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Syncs the sandbox's own file system only: `sync` would flush every disk of the host.
fn sync_disk() {
    if let Ok(root) =
        rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::fs::syncfs(root);
    }
}
