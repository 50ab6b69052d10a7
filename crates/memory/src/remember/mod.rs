//! Automatic recording: execs and messages become entries, and a failure returns what helped last time.
//!
//! ```text
//!  exec ends ──► shape (remove secrets, noise) ──► new entry, or a repetition
//!     └ failed ──► related: the same failure before, and what fixed it
//!     └ worked ──► open failures of that command are closed, with the commands in between
//! ```
//!
//! Shaping is pure ([`exec_entry`], [`secrets`], [`noise`], [`normal`]); recording and looking back use a view.

mod exec;
mod message;
mod noise;
mod normal;
mod record;
mod related;
pub mod secrets;
mod session;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_live;
mod turn;

pub(crate) use exec::cut;
pub use exec::{EarlierCommand, ExecFacts, Outcome, ShapedExec, exec_entry, shape};
pub use message::Message;
pub use noise::{clean, strip_terminal};
pub use normal::shown_command;
pub(crate) use record::RUN_KEY;
pub use record::{RecordedExec, record};
pub use related::{FailureFix, RelatedMemory, related};
pub use secrets::secret_values;
pub use session::{SESSION_GAP_MS, SessionOwner, current_session};
pub use turn::{Participants, StoredMessages, turn};
