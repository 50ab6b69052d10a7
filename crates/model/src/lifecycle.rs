//! Decides what a sandbox may do next.
//!
//! ```text
//!  Creating ──► Running ◄──► Paused
//!     │            │            │
//!     ▼            ▼            ▼
//!   Failed      Stopping ───► Stopped ──► Starting ──► Running
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
}

/// How an admitted request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Now,
    /// Resume first, then do it.
    AfterResume,
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
}

pub fn admit(state: State, request: Request) -> Result<Admission, Refusal> {
    use Admission::{AfterResume, Already, Now};
    use Request::{Delete, Pause, Resume, Start, Stop, Update, Use};

    match (state, request) {
        (State::Running, Use | Stop | Pause | Delete | Update) => Ok(Now),
        (State::Running, Start | Resume) => Ok(Already),

        (State::Paused, Use) => Ok(AfterResume),
        // To start a paused sandbox is to have it running: the same as resuming it.
        (State::Paused, Start | Resume | Stop | Delete | Update) => Ok(Now),
        (State::Paused, Pause) => Ok(Already),

        (State::Stopped | State::Failed, Start | Delete | Update) => Ok(Now),
        (State::Stopped | State::Failed, Stop) => Ok(Already),
        (State::Stopped, Use | Pause | Resume) => Err(Refusal::Stopped),
        (State::Failed, Use | Pause | Resume) => Err(Refusal::Failed),

        // Transient states are seen only when an operation could be neither finished nor undone.
        (State::Creating | State::Starting | State::Stopping, Delete) => Ok(Now),
        (State::Creating | State::Starting, Use | Start | Stop | Pause | Resume | Update) => {
            Err(Refusal::Creating)
        }
        // An earlier attempt could not finish: try again.
        (State::Stopping, Stop) | (State::Deleting, Delete) => Ok(Now),
        (State::Stopping, Use | Start | Pause | Resume | Update) => Err(Refusal::Stopped),
        (State::Deleting, Use | Start | Stop | Pause | Resume | Update) => Err(Refusal::Deleting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(state: State, request: Request, expected: Result<Admission, Refusal>) {
        assert_eq!(admit(state, request), expected, "{request:?} while {state:?}");
    }

    #[test]
    fn a_paused_sandbox_wakes_for_whoever_uses_it() {
        check(State::Paused, Request::Use, Ok(Admission::AfterResume));
        check(State::Paused, Request::Resume, Ok(Admission::Now));
    }

    #[test]
    fn asking_twice_is_safe() {
        check(State::Running, Request::Start, Ok(Admission::Already));
        check(State::Paused, Request::Pause, Ok(Admission::Already));
        check(State::Stopped, Request::Stop, Ok(Admission::Already));
        check(State::Deleting, Request::Delete, Ok(Admission::Now));
    }

    #[test]
    fn a_stopped_sandbox_refuses_what_needs_a_guest() {
        for request in [Request::Use, Request::Pause, Request::Resume] {
            check(State::Stopped, request, Err(Refusal::Stopped));
        }
    }

    #[test]
    fn every_state_can_be_deleted() {
        use State::*;
        for state in [Creating, Starting, Running, Paused, Stopping, Stopped, Deleting, Failed] {
            assert!(admit(state, Request::Delete).is_ok(), "{state:?}");
        }
    }
}
