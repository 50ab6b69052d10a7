//! Decides what a sandbox may do next.
//!
//! ```text
//!  Creating ──► Running ◄──► Paused          Running, Paused ──► Hibernating ──► Hibernated ──► Waking ──► Running
//!     │            │            │
//!     ▼            ▼            ▼
//!   Failed      Stopping ───► Stopped ──► Starting ──► Running
//!
//!  Running, Paused, Hibernated, Stopped, Failed ──► Restoring ──► Hibernated (and woken) or Stopped
//!                                                (Deleting is reachable from every state)
//! ```
//!
//! Pure: no lock, no clock, no disk. One task per sandbox owns a [`State`] and calls [`admit`] before it acts, so this
//! module is the only place that defines what may happen when.

use serde::{Deserialize, Serialize};

/// The state of a sandbox. Stored, so names are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Creating,
    Starting,
    Running,
    /// CPU is stopped, RAM is kept.
    Paused,
    Stopping,
    /// No processes; files are kept.
    Stopped,
    Deleting,
    /// Could not be started; files are kept. It may be started again or deleted.
    Failed,
    /// Its processes are being dumped. Undone to the previous state.
    Hibernating,
    /// No processes; files are kept, and a dump of the processes, which `wake` restores.
    Hibernated,
    /// Its processes are being restored from a dump. Undone to `Hibernated`.
    Waking,
    /// Its files are being replaced by those of a snapshot. Completed, never undone.
    Restoring,
}

impl State {
    pub const ALL: [Self; 12] = [
        Self::Creating,
        Self::Starting,
        Self::Running,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Deleting,
        Self::Failed,
        Self::Hibernating,
        Self::Hibernated,
        Self::Waking,
        Self::Restoring,
    ];
}

/// Why a sandbox that ran is no longer running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// A client requested it.
    Requested,
    /// Its first process ended by itself or was killed.
    GuestExited,
    /// The host was restarted, or the machine no longer existed when the daemon started.
    HostRestarted,
    /// Its lifetime ended.
    Expired,
    /// It was idle, and its sleep policy applied.
    Idle,
}

/// A request to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Exec, files, attach: anything that needs an answer from the guest.
    Use,
    Start,
    Stop,
    Pause,
    Resume,
    Delete,
    /// Change limits, labels, environment, name or services.
    Update,
    /// Dump its processes to disk and free its RAM.
    Hibernate,
    /// Make it run again, from any kind of sleep.
    Wake,
    Snapshot,
    /// Restore it in place to a snapshot.
    Restore,
    Fork,
}

impl Request {
    pub const ALL: [Self; 12] = [
        Self::Use,
        Self::Start,
        Self::Stop,
        Self::Pause,
        Self::Resume,
        Self::Delete,
        Self::Update,
        Self::Hibernate,
        Self::Wake,
        Self::Snapshot,
        Self::Restore,
        Self::Fork,
    ];
}

/// How an admitted request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Now,
    /// Resume it first.
    AfterResume,
    /// Restore its processes from their dump first.
    AfterWake,
    /// Boot it first, unless its policy refuses this.
    AfterStart,
    /// Nothing to do, because it is in that state already. Makes retries safe.
    Already,
}

/// Why a request is not admitted. Callers never see transient states, because their request waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is stopped")]
    Stopped,
    #[error("it failed to start")]
    Failed,
    #[error("it is being created")]
    Creating,
    #[error("it is being deleted")]
    Deleting,
    /// It was being dumped, woken, or restored to a snapshot.
    #[error("an operation on it could not be completed")]
    Moving,
}

pub fn admit(state: State, request: Request) -> Result<Admission, Refusal> {
    use Admission::{AfterResume, AfterStart, AfterWake, Already, Now};
    use Request::{
        Delete, Fork, Hibernate, Pause, Restore, Resume, Snapshot, Start, Stop, Update, Use, Wake,
    };

    match (state, request) {
        (State::Running, Use | Stop | Pause | Delete | Update) => Ok(Now),
        (State::Running, Hibernate | Snapshot | Restore | Fork) => Ok(Now),
        (State::Running, Start | Resume | Wake) => Ok(Already),

        (State::Paused, Use) => Ok(AfterResume),
        // Starting a paused sandbox means to have it running: the same as resuming or waking it.
        (State::Paused, Start | Resume | Wake | Stop | Delete | Update) => Ok(Now),
        (State::Paused, Hibernate | Snapshot | Restore | Fork) => Ok(Now),
        (State::Paused, Pause) => Ok(Already),

        (State::Hibernated, Use) => Ok(AfterWake),
        // Here too all three mean: have it running, with its earlier processes.
        (State::Hibernated, Start | Resume | Wake | Stop | Delete | Update) => Ok(Now),
        (State::Hibernated, Snapshot | Restore | Fork) => Ok(Now),
        // Hibernation already does more than a pause.
        (State::Hibernated, Hibernate | Pause) => Ok(Already),

        // To wake a sandbox without processes is to start it. A copy contains its files.
        (State::Stopped | State::Failed, Start | Wake | Delete | Update) => Ok(Now),
        (State::Stopped | State::Failed, Snapshot | Restore | Fork) => Ok(Now),
        (State::Stopped | State::Failed, Stop) => Ok(Already),
        (State::Stopped | State::Failed, Use) => Ok(AfterStart),
        (State::Stopped, Pause | Resume | Hibernate) => Err(Refusal::Stopped),
        (State::Failed, Pause | Resume | Hibernate) => Err(Refusal::Failed),

        // Transient states are visible here only if an operation could be neither completed nor undone.
        (
            State::Creating
            | State::Starting
            | State::Stopping
            | State::Hibernating
            | State::Waking
            | State::Restoring,
            Delete,
        ) => Ok(Now),
        // An earlier attempt did not complete: try again.
        (State::Stopping, Stop) | (State::Deleting, Delete) => Ok(Now),
        (
            State::Creating | State::Starting,
            Use | Start | Stop | Pause | Resume | Update | Hibernate | Wake | Snapshot | Restore | Fork,
        ) => Err(Refusal::Creating),
        (
            State::Stopping,
            Use | Start | Pause | Resume | Update | Hibernate | Wake | Snapshot | Restore | Fork,
        ) => Err(Refusal::Stopped),
        (
            State::Deleting,
            Use | Start | Stop | Pause | Resume | Update | Hibernate | Wake | Snapshot | Restore | Fork,
        ) => Err(Refusal::Deleting),
        (
            State::Hibernating | State::Waking | State::Restoring,
            Use | Start | Stop | Pause | Resume | Update | Hibernate | Wake | Snapshot | Restore | Fork,
        ) => Err(Refusal::Moving),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row per state, one column per request: `now`, `+res` after a resume, `+wake` after a wake, `+start` after a start,
    /// `same` for nothing to do; upper case is a refusal.
    const TABLE: &str = "
                     Use    Start  Stop   Pause  Resume Delete Update Hiber  Wake   Snap   Resto  Fork
        Creating     CREA   CREA   CREA   CREA   CREA   now    CREA   CREA   CREA   CREA   CREA   CREA
        Starting     CREA   CREA   CREA   CREA   CREA   now    CREA   CREA   CREA   CREA   CREA   CREA
        Running      now    same   now    now    same   now    now    now    same   now    now    now
        Paused       +res   now    now    same   now    now    now    now    now    now    now    now
        Stopping     STOP   STOP   now    STOP   STOP   now    STOP   STOP   STOP   STOP   STOP   STOP
        Stopped      +start now    same   STOP   STOP   now    now    STOP   now    now    now    now
        Deleting     DELE   DELE   DELE   DELE   DELE   now    DELE   DELE   DELE   DELE   DELE   DELE
        Failed       +start now    same   FAIL   FAIL   now    now    FAIL   now    now    now    now
        Hibernating  MOVE   MOVE   MOVE   MOVE   MOVE   now    MOVE   MOVE   MOVE   MOVE   MOVE   MOVE
        Hibernated   +wake  now    now    same   now    now    now    same   now    now    now    now
        Waking       MOVE   MOVE   MOVE   MOVE   MOVE   now    MOVE   MOVE   MOVE   MOVE   MOVE   MOVE
        Restoring    MOVE   MOVE   MOVE   MOVE   MOVE   now    MOVE   MOVE   MOVE   MOVE   MOVE   MOVE
    ";

    fn read(cell: &str) -> Result<Admission, Refusal> {
        match cell {
            "now" => Ok(Admission::Now),
            "+res" => Ok(Admission::AfterResume),
            "+wake" => Ok(Admission::AfterWake),
            "+start" => Ok(Admission::AfterStart),
            "same" => Ok(Admission::Already),
            "CREA" => Err(Refusal::Creating),
            "STOP" => Err(Refusal::Stopped),
            "FAIL" => Err(Refusal::Failed),
            "DELE" => Err(Refusal::Deleting),
            "MOVE" => Err(Refusal::Moving),
            other => panic!("no such answer: {other}"),
        }
    }

    #[test]
    fn every_request_in_every_state_is_answered_as_the_table_says() {
        let mut lines = TABLE.lines().filter(|line| !line.trim().is_empty());
        let columns: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(columns.len(), Request::ALL.len());
        for (column, request) in columns.iter().zip(Request::ALL) {
            assert!(format!("{request:?}").starts_with(column), "{request:?} is under {column}");
        }
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), State::ALL.len());
        for (row, state) in rows.iter().zip(State::ALL) {
            assert_eq!(row[0], format!("{state:?}"));
            assert_eq!(row.len(), 1 + Request::ALL.len(), "{state:?}");
            for (cell, request) in row[1..].iter().zip(Request::ALL) {
                assert_eq!(admit(state, request), read(cell), "{request:?} while {state:?}");
            }
        }
    }

    #[test]
    fn a_use_makes_a_sandbox_run_from_any_settled_state() {
        assert_eq!(admit(State::Paused, Request::Use), Ok(Admission::AfterResume));
        assert_eq!(admit(State::Hibernated, Request::Use), Ok(Admission::AfterWake));
        assert_eq!(admit(State::Stopped, Request::Use), Ok(Admission::AfterStart));
        assert_eq!(admit(State::Failed, Request::Use), Ok(Admission::AfterStart));
    }

    #[test]
    fn every_state_can_be_deleted() {
        for state in State::ALL {
            assert!(admit(state, Request::Delete).is_ok(), "{state:?}");
        }
    }
}
