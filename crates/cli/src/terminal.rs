//! The local terminal: its size, raw mode, and the promise to put it back.
//!
//! The state before raw mode is kept in one place for the whole program, so that every way out restores it: the
//! guard's `Drop`, the panic hook, and `main` before it exits.

use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, Once, PoisonError};

use burrow_api::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What a process is told when nobody can say how large its terminal is.
const SIZE_UNKNOWN: TerminalSize = TerminalSize { columns: 80, rows: 24 };

static BEFORE_RAW: Mutex<Option<Termios>> = Mutex::new(None);

/// Size of the terminal we run in, whichever of our streams is one.
pub(crate) fn size() -> TerminalSize {
    let sizes = [tcgetwinsize(io::stdout()), tcgetwinsize(io::stdin()), tcgetwinsize(io::stderr())];
    sizes
        .into_iter()
        .flatten()
        .map(|size| TerminalSize { columns: size.ws_col, rows: size.ws_row })
        .find(|size| size.columns > 0 && size.rows > 0)
        .unwrap_or(SIZE_UNKNOWN)
}

/// While it lives, keys reach us one by one and unchanged.
#[derive(Debug)]
pub(crate) struct RawMode {
    _private: (),
}

impl RawMode {
    /// `None` when standard input is no terminal: then there is nothing to change.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        restore_on_panic();
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE_RAW.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self { _private: () };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Some(guard))
    }

    /// Once more, after the program was stopped and continued: the shell has put its own mode in place.
    pub(crate) fn enter_again(&self) {
        if let Ok(mut raw) = tcgetattr(io::stdin()) {
            raw.make_raw();
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &raw);
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back as it was. Twice does no harm.
pub(crate) fn restore() {
    if let Some(before) = BEFORE_RAW.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
    });
}
