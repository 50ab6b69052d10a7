//! The local terminal: its size, raw mode, and restoring its state.
//!
//! The state before raw mode is kept in one place for the whole program, so that every way out restores it: the
//! guard's `Drop`, the panic hook, and `main` before it exits.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, Once, PoisonError};

use burrow_api::TerminalSize;
use burrow_model::{SECRET_BYTES_MAX, SecretBytes};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal size of a process if the actual size is unknown.
const SIZE_UNKNOWN: TerminalSize = TerminalSize { columns: 80, rows: 24 };

static BEFORE_RAW: Mutex<Option<Termios>> = Mutex::new(None);

/// Size of the terminal, from whichever standard stream is one.
pub(crate) fn size() -> TerminalSize {
    let sizes = [tcgetwinsize(io::stdout()), tcgetwinsize(io::stdin()), tcgetwinsize(io::stderr())];
    sizes
        .into_iter()
        .flatten()
        .map(|size| TerminalSize { columns: size.ws_col, rows: size.ws_row })
        .find(|size| size.columns > 0 && size.rows > 0)
        .unwrap_or(SIZE_UNKNOWN)
}

/// While it exists, keys are read one by one and unchanged.
#[derive(Debug)]
pub(crate) struct RawMode {
    _private: (),
}

impl RawMode {
    /// `None` when standard input is not a terminal.
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

    /// Enters raw mode again after the program was stopped and continued: the shell has set its own mode.
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

/// Reads input without showing it. The echo is disabled before the question is printed.
pub(crate) fn read_hidden(question: &str) -> io::Result<SecretBytes> {
    let _hidden = RawMode::enter()?;
    let mut stderr = io::stderr();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    let typed = read_typed(io::stdin().lock());
    // In raw mode, Enter does not start a new line.
    stderr.write_all(b"\r\n")?;
    typed
}

/// Reads one line, byte by byte, from a terminal in raw mode.
fn read_typed(mut reader: impl io::Read) -> io::Result<SecretBytes> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const KILL: u8 = 21;
    // Allocated at its maximum size, since a buffer that grows leaves copies in memory.
    let mut line = zeroize::Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 1));
    let mut byte = [0];
    while reader.read(&mut byte)? == 1 {
        match byte[0] {
            b'\r' | b'\n' => return Ok(SecretBytes::new(line.to_vec())),
            INTERRUPT => return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled")),
            END => break,
            KILL => line.clear(),
            0x08 | 0x7f => {
                line.pop();
            }
            _ if line.len() > SECRET_BYTES_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
            other => line.push(other),
        }
    }
    match line.is_empty() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(SecretBytes::new(line.to_vec())),
    }
}

/// Restores the state of the terminal. May be called repeatedly.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_input_can_be_corrected_and_cancelled() {
        let typed = |keys: &[u8]| read_typed(keys).map(|typed| typed.expose().to_vec());
        assert_eq!(typed(b"secret\r").unwrap(), b"secret");
        assert_eq!(typed(b"secrex\x7ft\nmore").unwrap(), b"secret");
        assert_eq!(typed(b"wrong\x15secret\n").unwrap(), b"secret");
        assert_eq!(typed(b"secret\x04").unwrap(), b"secret");
        assert_eq!(typed(b"sec\x03ret\n").unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(typed(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
