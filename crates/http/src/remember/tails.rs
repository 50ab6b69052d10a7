//! The end of an exec's output, which is used to record it.

use burrow_api::{Exec, OutputStream};
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{Attach, AttachNotice, ExecInfo, Frame, ReadMode, Request};

use crate::convert;
use crate::error::ApiError;

/// Bytes kept of the end of each stream: error messages are usually there.
const TAIL_BYTES: usize = 16 << 10;

/// The ends of both streams.
#[derive(Clone, Debug, Default)]
pub struct Tails {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Tails {
    /// Keeps the end. Copies little: up to twice the limit is collected before it is cut.
    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
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
pub(super) async fn tails_of(guest: &Guest, exec: &Exec) -> Result<Tails, ApiError> {
    let offset = exec.output_end.saturating_sub(2 * TAIL_BYTES as u64).max(exec.output_start);
    let request =
        Request::Attach(Attach { exec: exec.id.clone(), offset, mode: ReadMode::Lossy, follow: false });
    let mut connection = guest.open(&request).await?;
    let _info: ExecInfo = guest.reply(&mut connection).await?;
    let (mut reader, _writer) = connection.split();
    let mut tails = Tails::default();
    while let Some(frame) = reader.next().await.map_err(|error| guest.error(error))? {
        if let Some((stream, _, bytes)) = convert::stream_of(&frame) {
            tails.push(stream, bytes);
            continue;
        }
        let Frame::Control(json) = &frame else { break };
        match parse::<AttachNotice>(json).map_err(|error| guest.error(error))? {
            AttachNotice::Gap { .. } => {}
            AttachNotice::Exit(_) | AttachNotice::Drained { .. } => break,
        }
    }
    Ok(tails)
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
