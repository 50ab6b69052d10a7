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
//! Pure: no lock, no clock, no disk. One task per sandbox owns a [`State`] and asks [`admit`] before it acts, so
//! there is one place to read to learn what may happen when.

use serde::{Deserialize, Serialize};

/// Where a sandbox is in its life. Stored, so names only get added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Creating,
    Starting,
    Running,
    /// CPU stopped, RAM kept.
    Paused,
    Stopping,
    /// No process; files kept.
    Stopped,
    Deleting,
    /// Could not be brought up; files kept, may be started again or deleted.
    Failed,
    /// Its processes are being written down. Undone to what it was.
    Hibernating,
    /// No process; files kept, and a dump of the processes that `wake` brings back.
    Hibernated,
    /// Its processes are being brought back from a dump. Undone to `Hibernated`.
    Waking,
    /// Its files are being replaced by a snapshot's. Completed, never undone.
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

/// Why a sandbox that ran does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// Somebody asked.
    Requested,
    /// Its first process ended by itself or was killed.
    GuestExited,
    /// The host was restarted, or the machine was gone when the daemon came back.
    HostRestarted,
    /// Its time was up.
    Expired,
    /// Nothing was done in it, and its sleep policy said so.
    Idle,
}

/// What can be asked of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Exec, files, attach: anything that needs the guest to answer.
    Use,
    Start,
    Stop,
    Pause,
    Resume,
    Delete,
    /// Change of limits, labels, environment, name, services.
    Update,
    /// Write its processes down and give its RAM back.
    Hibernate,
    /// Have it running again, from wherever it sleeps.
    Wake,
    Snapshot,
    /// Put it back, in place, to what a snapshot holds.
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
    /// Resume first, then do it.
    AfterResume,
    /// Bring its processes back from their dump first, then do it.
    AfterWake,
    /// Nothing to do: it is so already. Makes retries safe.
    Already,
}

/// Why a request is not admitted. Transient states never reach a caller: its request waits in the queue.
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
    /// It was on its way into or out of a dump, or to a snapshot.
    #[error("an operation on it could not be finished")]
    Moving,
}

pub fn admit(state: State, request: Request) -> Result<Admission, Refusal> {
    use Admission::{AfterResume, AfterWake, Already, Now};
    use Request::{
        Delete, Fork, Hibernate, Pause, Restore, Resume, Snapshot, Start, Stop, Update, Use, Wake,
    };

    match (state, request) {
        (State::Running, Use | Stop | Pause | Delete | Update) => Ok(Now),
        (State::Running, Hibernate | Snapshot | Restore | Fork) => Ok(Now),
        (State::Running, Start | Resume | Wake) => Ok(Already),

        (State::Paused, Use) => Ok(AfterResume),
        // To start a paused sandbox is to have it running: the same as resuming it, or waking it.
        (State::Paused, Start | Resume | Wake | Stop | Delete | Update) => Ok(Now),
        (State::Paused, Hibernate | Snapshot | Restore | Fork) => Ok(Now),
        (State::Paused, Pause) => Ok(Already),

        (State::Hibernated, Use) => Ok(AfterWake),
        // Here too all three mean: have it running, with the processes it had.
        (State::Hibernated, Start | Resume | Wake | Stop | Delete | Update) => Ok(Now),
        (State::Hibernated, Snapshot | Restore | Fork) => Ok(Now),
        // It stands stiller than a pause would have it.
        (State::Hibernated, Hibernate | Pause) => Ok(Already),

        // To wake one that has no processes is to start it. What is copied are its files.
        (State::Stopped | State::Failed, Start | Wake | Delete | Update) => Ok(Now),
        (State::Stopped | State::Failed, Snapshot | Restore | Fork) => Ok(Now),
        (State::Stopped | State::Failed, Stop) => Ok(Already),
        (State::Stopped, Use | Pause | Resume | Hibernate) => Err(Refusal::Stopped),
        (State::Failed, Use | Pause | Resume | Hibernate) => Err(Refusal::Failed),

        // Transient states are seen only when an operation could be neither finished nor undone.
        (
            State::Creating
            | State::Starting
            | State::Stopping
            | State::Hibernating
            | State::Waking
            | State::Restoring,
            Delete,
        ) => Ok(Now),
        // An earlier attempt could not finish: try again.
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

    /// One row per state, one column per request: `now`, `+res` after a resume, `+wake` after a wake, `same` for
    /// nothing to do, and a refusal in capitals.
    const TABLE: &str = "
                     Use    Start  Stop   Pause  Resume Delete Update Hiber  Wake   Snap   Resto  Fork
        Creating     CREA   CREA   CREA   CREA   CREA   now    CREA   CREA   CREA   CREA   CREA   CREA
        Starting     CREA   CREA   CREA   CREA   CREA   now    CREA   CREA   CREA   CREA   CREA   CREA
        Running      now    same   now    now    same   now    now    now    same   now    now    now
        Paused       +res   now    now    same   now    now    now    now    now    now    now    now
        Stopping     STOP   STOP   now    STOP   STOP   now    STOP   STOP   STOP   STOP   STOP   STOP
        Stopped      STOP   now    same   STOP   STOP   now    now    STOP   now    now    now    now
        Deleting     DELE   DELE   DELE   DELE   DELE   now    DELE   DELE   DELE   DELE   DELE   DELE
        Failed       FAIL   now    same   FAIL   FAIL   now    now    FAIL   now    now    now    now
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
    fn whatever_sleeps_wakes_for_whoever_uses_it() {
        assert_eq!(admit(State::Paused, Request::Use), Ok(Admission::AfterResume));
        assert_eq!(admit(State::Hibernated, Request::Use), Ok(Admission::AfterWake));
    }

    #[test]
    fn every_state_can_be_deleted() {
        for state in State::ALL {
            assert!(admit(state, Request::Delete).is_ok(), "{state:?}");
        }
    }
}
