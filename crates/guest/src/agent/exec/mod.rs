//! Processes: one [`Exec`] for each, from the fork until long after its end.
//!
//! ```text
//!   spawn ──fork──► child ──execve──► program ──exit──► reaper
//!     │                                  │ pipes or PTY     │ how it ended
//!     └─► Exec ◄── table, by id and pid  ▼                  ▼
//!           log ◄──────────────────────── pump ◄────────────┘
//!            └──► attach, one per reader
//! ```
//!
//! An exec ends in three steps: the process is *reaped* (its pid may be reused: no more signals), the exec has
//! *ended* (hosts see the outcome), and its output is *done* (no reader needs to wait any longer).

mod attach;
mod child;
mod child_exit;
mod log;
mod pump;
mod spawn;
mod stdin;
mod table;
mod timeout;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::termios::Winsize;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::log::Log;
use self::stdin::Stdin;
use super::clock;
use super::failure::{fail, invalid, refused};
use super::signals;
use super::watched_fd::WatchedFd;
use crate::protocol::{ErrorCode, ExecInfo, ExecOutcome, ExecState, ReadMode, RequestError, TerminalSize};

pub(super) use self::attach::{attach, serve_start};
pub(super) use self::child_exit::ChildExit;
pub(super) use self::spawn::run_quietly;
pub(super) use self::spawn::start;
pub(super) use self::stdin::feed;
pub(super) use self::table::Table;

/// How long an exec counts as read from offset 0 if no host attaches.
const HOLD: Duration = Duration::from_secs(30);

pub(super) struct Exec {
    pub(super) id: String,
    argv: Vec<String>,
    /// First process, and its process group and session.
    pub(super) pid: i32,
    started_ms: u64,
    started_boot_us: u64,
    terminal: Option<Rc<WatchedFd>>,
    stdin: tokio::sync::Mutex<Option<Stdin>>,
    log: RefCell<Log>,
    /// The placeholder for a lossless reader that `hold` registers, and when it expires.
    held: Cell<Option<(log::ReaderId, Instant)>>,
    reaped: Cell<Option<ChildExit>>,
    outcome: RefCell<Option<ExecOutcome>>,
    output_done: Cell<bool>,
    timed_out: Cell<bool>,
    killed_here: Cell<bool>,
    /// Run by a supervisor, so that it is running does not count as activity.
    supervised: Cell<bool>,
    /// Hosts that are reading it now.
    readers: Cell<usize>,
    /// When it last started, ended, wrote or was written to, by [`clock::awake_ms`].
    active_ms: Cell<u64>,
    /// Its program could not be executed, so the host must not see the exec.
    forgotten: Cell<bool>,
    /// More output, or the next step of the end.
    changed: Notify,
    /// A reader has advanced or left.
    room: Notify,
    /// Wakes the pump when the process has been reaped.
    exited: Notify,
}

impl Exec {
    pub(super) fn info(&self) -> ExecInfo {
        let log = self.log.borrow();
        let state = match self.outcome.borrow().as_ref() {
            Some(outcome) => ExecState::Ended(outcome.clone()),
            None => ExecState::Running,
        };
        ExecInfo {
            exec: self.id.clone(),
            pid: self.pid.unsigned_abs(),
            argv: self.argv.clone(),
            terminal: self.terminal.is_some(),
            started_ms: self.started_ms,
            state,
            output_end: log.end(),
            output_start: log.start(),
            output_dropped: log.dropped(),
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    pub(super) fn outcome(&self) -> Option<ExecOutcome> {
        self.outcome.borrow().clone()
    }

    pub(super) async fn wait_ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ended() {
                return;
            }
            changed.await;
        }
    }

    /// Signals the process group, or the first process alone.
    pub(super) fn signal(&self, number: i32, group: bool) -> Result<(), RequestError> {
        if self.reaped.get().is_some() {
            return Err(fail(ErrorCode::Ended, format_args!("exec `{}` is no longer running", self.id)));
        }
        if number == libc::SIGKILL {
            self.killed_here.set(true);
        }
        let sent = match group {
            // Between fork and setsid the child does not lead a group yet.
            true => signals::send_group(self.pid, number).or_else(|errno| match errno {
                Errno::SRCH => signals::send(self.pid, number),
                _ => Err(errno),
            }),
            false => signals::send(self.pid, number),
        };
        sent.map_err(|errno| match errno {
            Errno::INVAL => invalid(format_args!("invalid signal number {number}")),
            _ => refused("signal exec", &self.id, errno),
        })
    }

    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), RequestError> {
        let Some(terminal) = &self.terminal else {
            return Err(invalid(format_args!("exec `{}` has no terminal", self.id)));
        };
        if self.ended() {
            return Err(fail(ErrorCode::Ended, format_args!("exec `{}` is no longer running", self.id)));
        }
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal.get_ref(), size)
            .map_err(|errno| refused("resize the terminal of exec", &self.id, errno))
    }

    pub(super) fn note_supervised(&self) {
        self.supervised.set(true);
    }

    fn note_active(&self) {
        self.active_ms.set(clock::awake_ms());
    }

    /// A SIGKILL that ends it from now on was sent by the agent.
    pub(super) fn note_killed_here(&self) {
        self.killed_here.set(true);
    }

    /// Stops counting as read losslessly from offset 0.
    fn release_hold(&self) {
        if let Some((reader, _)) = self.held.take() {
            self.log.borrow_mut().remove_reader(reader);
            self.room.notify_waiters();
        }
    }

    fn hold(&self) {
        let reader = self.log.borrow_mut().add_reader(0, ReadMode::Lossless);
        self.held.set(Some((reader, Instant::now() + HOLD)));
    }

    fn note_reaped(&self, reaped: ChildExit) {
        self.reaped.set(Some(reaped));
        self.exited.notify_one();
    }

    /// Publishes the outcome. Called once, by the pump.
    fn publish(&self, reaped: ChildExit) {
        let signal = libc::WIFSIGNALED(reaped.status).then(|| libc::WTERMSIG(reaped.status));
        let outcome = ExecOutcome {
            exit_code: libc::WIFEXITED(reaped.status).then(|| libc::WEXITSTATUS(reaped.status)),
            signal,
            timed_out: self.timed_out.get(),
            killed_from_outside: signal == Some(libc::SIGKILL) && !self.killed_here.get(),
            cpu_us: reaped.cpu_us,
            ram_max_bytes: reaped.ram_max_bytes,
            wall_us: reaped.boot_us.saturating_sub(self.started_boot_us),
            ended_ms: clock::unix_ms(),
        };
        *self.outcome.borrow_mut() = Some(outcome);
        self.note_active();
        self.changed.notify_waiters();
    }
}
