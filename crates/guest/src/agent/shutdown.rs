//! Ends the sandbox: everybody is asked, then made to go; the disk is synced; PID 1 exits.

use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::{Agent, services, signals};

/// How often it is looked whether anybody is left: between two SIGCHLDs nothing else tells.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What SIGKILL may take: processes in the middle of disk work end only after it.
const KILL_WAIT_MAX: Duration = Duration::from_secs(5);

/// What syncing may take before the sandbox ends regardless.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest grace a host may give: longer is a hang.
const GRACE_MAX: Duration = Duration::from_secs(600);

impl Agent {
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down.get()
    }

    /// Ends everything and tells the server to stop. Repeated calls wait for the first.
    pub(super) async fn shut_down(&self, grace_ms: u64) {
        if self.shutting_down.replace(true) {
            while !self.is_down.get() {
                self.down.notified().await;
            }
            return;
        }
        let grace = Duration::from_millis(grace_ms).min(GRACE_MAX);
        services::stop_supervising(self);
        everybody(libc::SIGTERM);
        // A stopped process acts on SIGTERM only once it goes on.
        everybody(libc::SIGCONT);
        // A microVM's kernel has threads that look like processes and never end.
        let owns_all = self.group.is_none() && std::process::id() == 1;
        let _ = tokio::time::timeout(grace, until_alone(owns_all)).await;
        for exec in self.execs.all() {
            exec.note_killed_here();
        }
        everybody(libc::SIGKILL);
        let _ = tokio::time::timeout(KILL_WAIT_MAX, until_alone(owns_all)).await;
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

fn everybody(signal: i32) {
    if std::process::id() == 1 {
        // Nobody left to signal is fine.
        let _ = signals::send_everybody(signal);
        return;
    }
    for pid in descendants() {
        let _ = signals::send(pid, signal);
    }
}

/// `owns_all`: all that is visible is ours to outlive.
async fn until_alone(owns_all: bool) {
    loop {
        let left = if owns_all { signals::anybody_left() } else { !descendants().is_empty() };
        if !left {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Outside a pid namespace of its own (in tests), or beside the kernel's threads, the agent owns what descends from it, and nothing else.
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

/// The sandbox's own file system only: `sync` would flush every disk of the host.
fn sync_disk() {
    if let Ok(root) =
        rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::fs::syncfs(root);
    }
}
