//! The end of an exec's output, which is used to record it.

use burrow_guest::protocol::{Attach, ExecInfo, ReadMode};
use burrow_model::ExecId;

use super::super::event::{ExecEvent, OutputStream};
use crate::{Engine, EngineError, Guest};

/// Bytes kept of the end of each stream: error messages are usually there.
const TAIL_BYTES: usize = 16 << 10;

/// The ends of both streams.
#[derive(Clone, Debug, Default)]
pub(in crate::execs) struct Tails {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Tails {
    /// Keeps the end. Copies little: up to twice the limit is collected before it is cut.
    pub(in crate::execs) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let kept = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        kept.extend_from_slice(bytes);
        if kept.len() > 2 * TAIL_BYTES {
            kept.drain(..kept.len() - TAIL_BYTES);
        }
    }

    pub(super) fn texts(&self) -> (String, String) {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
        };
        (text(&self.stdout), text(&self.stderr))
    }
}

/// Fetches the end of an exec's output from its guest.
pub(super) async fn tails_of(
    engine: &Engine,
    guest: &Guest,
    exec: &ExecId,
    info: &ExecInfo,
) -> Result<Tails, EngineError> {
    let offset = info.output_end.saturating_sub(2 * TAIL_BYTES as u64).max(info.output_start);
    let attach = Attach { exec: exec.to_string(), offset, mode: ReadMode::Lossy, follow: false };
    let mut session = engine.attach_over(guest.clone(), exec.clone(), attach).await?;
    loop {
        match session.next().await? {
            ExecEvent::Output { .. } | ExecEvent::Gap { .. } => {}
            ExecEvent::Exit(_) | ExecEvent::Drained { .. } => return Ok(std::mem::take(&mut session.tails)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_each_stream_is_kept_for_pieces_of_any_size() {
        let mut tails = Tails::default();
        for number in 0..10_000 {
            tails.push(OutputStream::Stdout, format!("line {number}\n").as_bytes());
        }
        tails.push(OutputStream::Stderr, &vec![b'x'; 5 * TAIL_BYTES]);
        let (stdout, stderr) = tails.texts();
        assert!(stdout.ends_with("line 9999\n") && stdout.len() == TAIL_BYTES);
        assert_eq!(stderr.len(), TAIL_BYTES);
    }
}
