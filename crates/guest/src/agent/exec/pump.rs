//! Follows one process from its start to its end: reads its output into the log, ends it at its timeout, and
//! publishes the outcome.
//!
//! ```text
//!   running ──reaped──► draining ──┬─ both ends closed ─────────────► ended, output done
//!                                  ├─ a descendant holds them, quiet ► ended, output done; then lingering
//!                                  └─ a lossless reader is behind ──► ended; done once it has read
//! ```
//!
//! Lingering: a background child that inherited the pipe may continue to write to it. Closing the agent's end would
//! kill the child by SIGPIPE, so its output still goes to the log, without delaying anything.

use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;

use super::Exec;
use super::log::Stream;
use super::timeout::Timeout;
use crate::agent::watched_fd::WatchedFd;
use crate::agent::{Agent, signals};

/// The capacity of a pipe, so that one read can empty it.
const READ_BYTES: usize = 64 * 1024;

/// How long a pipe that descendants still hold open must be quiet before the exec counts as ended.
const QUIET: Duration = Duration::from_millis(100);

/// The longest time for which output of descendants can delay the end.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The time between SIGTERM and SIGKILL for a process group.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// How long `then_stop` waits for readers to drain.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// The grace period of the other processes when `then_stop` stops the sandbox.
const STOP_GRACE_MS: u64 = 2000;

thread_local! {
    /// One buffer for all pumps: it is filled and copied without an await in between.
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

pub(super) struct Source {
    pub(super) stream: Stream,
    pub(super) fd: Rc<WatchedFd>,
}

pub(super) struct Pump {
    pub(super) agent: Rc<Agent>,
    pub(super) exec: Rc<Exec>,
    pub(super) stdout: Option<Source>,
    pub(super) stderr: Option<Source>,
    pub(super) timeout: Option<Timeout>,
    pub(super) then_stop: bool,
}

/// What woke the pump.
enum Event {
    Read(Stream, ReadOutcome),
    Exited,
    Room,
    CheckTimeout,
    Quiet,
    HeldLongEnough,
}

enum ReadOutcome {
    Some,
    End,
}

impl Pump {
    pub(super) async fn run(mut self) {
        self.until_reaped().await;
        self.drain().await;
        self.publish();
        // Only a lossless reader that is behind leaves anything to read now.
        self.drain_for_readers().await;
        self.exec.output_done.set(true);
        self.exec.changed.notify_waiters();
        self.agent.execs.finished(&self.exec);
        if self.then_stop && !self.exec.forgotten.get() {
            // Ends with the sandbox.
            drop(tokio::task::spawn_local(stop_sandbox(Rc::clone(&self.agent), Rc::clone(&self.exec))));
        }
        self.linger().await;
    }

    async fn until_reaped(&mut self) {
        while self.exec.reaped.get().is_none() {
            match self.next(None).await {
                Event::Read(stream, reading) => self.note(stream, &reading),
                Event::CheckTimeout => self.check_timeout(),
                Event::HeldLongEnough => self.exec.release_hold(),
                Event::Exited | Event::Room | Event::Quiet => {}
            }
        }
    }

    /// Reads the output that the process left behind, and for a moment what its descendants add.
    async fn drain(&mut self) {
        let last = Instant::now() + DRAIN_MAX;
        while self.is_open() && self.exec.log.borrow().room() > 0 {
            let quiet = (Instant::now() + QUIET).min(last);
            match self.next(Some(quiet)).await {
                Event::Read(stream, reading) => self.note(stream, &reading),
                Event::Quiet => break,
                Event::CheckTimeout => self.timeout = None,
                Event::HeldLongEnough => self.exec.release_hold(),
                Event::Exited | Event::Room => {}
            }
        }
    }

    /// The same, but waits for the readers that must not lose anything.
    async fn drain_for_readers(&mut self) {
        while self.is_open() && self.exec.log.borrow().room() == 0 {
            match self.next(None).await {
                Event::HeldLongEnough => self.exec.release_hold(),
                Event::Read(..) | Event::Exited | Event::Room | Event::CheckTimeout | Event::Quiet => {}
            }
            self.drain().await;
        }
    }

    fn publish(&mut self) {
        self.timeout = None;
        let reaped = self.exec.reaped.get().expect("the pump drains after the process was reaped");
        self.exec.publish(reaped);
        self.agent.execs.ended();
    }

    async fn linger(mut self) {
        if !self.is_open() || self.exec.terminal.is_some() || !self.agent.execs.may_linger() {
            return;
        }
        while self.is_open() {
            match self.next(None).await {
                Event::Read(stream, reading) => self.note(stream, &reading),
                Event::HeldLongEnough => self.exec.release_hold(),
                Event::Exited | Event::Room | Event::CheckTimeout | Event::Quiet => {}
            }
            self.agent.execs.bound_kept_output();
        }
        self.agent.execs.note_lingering();
    }

    fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    fn note(&mut self, stream: Stream, reading: &ReadOutcome) {
        match (reading, stream) {
            (ReadOutcome::Some, Stream::Stdout | Stream::Stderr) => {}
            (ReadOutcome::End, Stream::Stdout) => self.stdout = None,
            (ReadOutcome::End, Stream::Stderr) => self.stderr = None,
        }
    }

    async fn next(&self, quiet: Option<Instant>) -> Event {
        let room = self.exec.log.borrow().room();
        let may_read = room > 0;
        let exited = self.exec.reaped.get().is_some();
        let held = self.exec.held.get().map(|(_, until)| until);
        let check_at = self.timeout.as_ref().map(Timeout::next_check);
        tokio::select! {
            reading = read(self.stdout.as_ref(), &self.exec, room), if may_read && self.stdout.is_some() => {
                Event::Read(Stream::Stdout, reading)
            }
            reading = read(self.stderr.as_ref(), &self.exec, room), if may_read && self.stderr.is_some() => {
                Event::Read(Stream::Stderr, reading)
            }
            () = self.exec.exited.notified(), if !exited => Event::Exited,
            () = self.exec.room.notified(), if !may_read => Event::Room,
            () = until(check_at), if check_at.is_some() => Event::CheckTimeout,
            () = until(quiet), if quiet.is_some() => Event::Quiet,
            () = until(held), if held.is_some() => Event::HeldLongEnough,
        }
    }

    /// At the timeout, sends SIGTERM to the whole group, and SIGKILL 2 s later.
    fn check_timeout(&mut self) {
        if !self.timeout.as_mut().is_some_and(|timeout| timeout.is_up(Instant::now())) {
            return;
        }
        self.timeout = None;
        self.exec.timed_out.set(true);
        // The process may have ended already.
        let _ = self.exec.signal(libc::SIGTERM, true);
        // Ends after the signal.
        drop(tokio::task::spawn_local(kill_later(Rc::clone(&self.agent), Rc::clone(&self.exec))));
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn read(source: Option<&Source>, exec: &Exec, room: usize) -> ReadOutcome {
    let Some(source) = source else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = source.fd.readable().await else { return ReadOutcome::End };
        let result = SCRATCH.with_borrow_mut(|scratch| {
            let limit = room.min(scratch.len());
            let count = rustix::io::read(source.fd.get_ref(), &mut scratch[..limit])?;
            exec.log.borrow_mut().push(source.stream, &scratch[..count]);
            Ok::<_, Errno>(count)
        });
        match result {
            Ok(0) => return ReadOutcome::End,
            Ok(_) => {
                exec.note_active();
                exec.changed.notify_waiters();
                return ReadOutcome::Some;
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            // A terminal whose last user has left fails with EIO; after any other error, reading cannot continue
            // either.
            Err(_) => return ReadOutcome::End,
        }
    }
}

async fn kill_later(agent: Rc<Agent>, exec: Rc<Exec>) {
    tokio::time::sleep(KILL_AFTER).await;
    if exec.signal(libc::SIGKILL, true).is_err() && !agent.execs.is_running_pid(exec.pid) {
        // The first process has been reaped, so its pid could be reused. But the kernel does not reuse it while the
        // group has members, and without members no process receives the signal.
        let _ = signals::send_group(exec.pid, libc::SIGKILL);
    }
}

async fn stop_sandbox(agent: Rc<Agent>, exec: Rc<Exec>) {
    let drained = async {
        loop {
            let room = exec.room.notified();
            if !exec.log.borrow().has_readers() {
                return;
            }
            room.await;
        }
    };
    let _ = tokio::time::timeout(STOP_WAIT_MAX, drained).await;
    agent.shut_down(STOP_GRACE_MS).await;
}
