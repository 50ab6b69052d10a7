//! Reaps every child: execs receive their outcome, other orphans are only reaped.

#![expect(
    unsafe_code,
    reason = "wait4, which alone gives the usage of the one child it reaps, has no safe wrapper"
)]

use std::io;
use std::rc::Rc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exec::ChildExit;
use super::{Agent, clock};

/// Children reaped before other tasks run: 20,000 orphans at once must not stall the sandbox.
const BATCH: usize = 256;

pub(super) struct Reaper {
    signal: Signal,
}

impl Reaper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::child())? })
    }

    pub(super) async fn run(mut self, agent: Rc<Agent>) {
        while self.signal.recv().await.is_some() {
            loop {
                let mut count = 0;
                while count < BATCH {
                    let Some(reaped) = reap_one() else { break };
                    agent.execs.reaped(reaped);
                    count += 1;
                }
                if count < BATCH {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

fn reap_one() -> Option<ChildExit> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage, which is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
    if pid <= 0 {
        return None;
    }
    let cpu = micros(usage.ru_utime) + micros(usage.ru_stime);
    let ram = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    Some(ChildExit { pid, status, cpu_us: cpu, ram_max_bytes: ram, boot_us: clock::boot_us() })
}

fn micros(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec)).unwrap_or(0)
}
