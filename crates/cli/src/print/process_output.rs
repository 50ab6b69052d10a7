//! Writes the output of a process in a sandbox to standard output and standard error, escaped on a terminal.
//!
//! Files and pipes get the bytes unchanged.

use std::io::{self, IsTerminal as _, Write};

use burrow_api::OutputStream;

use super::escape::StreamEscaper;
use crate::failure::Stop;

/// Standard output and standard error.
#[derive(Debug)]
pub(crate) struct ProcessOutput<Out = io::Stdout, Err = io::Stderr> {
    stdout: Destination<Out>,
    stderr: Destination<Err>,
}

#[derive(Debug)]
struct Destination<W> {
    writer: W,
    /// Present if the writer is a terminal.
    escaper: Option<StreamEscaper>,
}

/// The message about output that was replaced by newer output.
pub(crate) fn gap(from: u64, to: u64) -> String {
    format!("note: {} bytes of output are no longer stored", to.saturating_sub(from))
}

impl ProcessOutput {
    /// `raw`: nothing is escaped, terminal or not.
    pub(crate) fn new(raw: bool) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let (out_escaped, err_escaped) = (!raw && out.is_terminal(), !raw && err.is_terminal());
        Self { stdout: Destination::new(out, out_escaped), stderr: Destination::new(err, err_escaped) }
    }
}

impl<Out: Write, Err: Write> ProcessOutput<Out, Err> {
    pub(crate) fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), Stop> {
        match stream {
            OutputStream::Stdout => self.stdout.write(bytes),
            OutputStream::Stderr => self.stderr.write(bytes),
        }
        .map_err(Stop::output)
    }

    /// Writes bytes that were held back as the start of an incomplete character: at the end of the output, and before
    /// other text is written in between.
    pub(crate) fn finish(&mut self) -> Result<(), Stop> {
        self.stdout.finish().and_then(|()| self.stderr.finish()).map_err(Stop::output)
    }
}

impl<W: Write> Destination<W> {
    fn new(writer: W, escaped: bool) -> Self {
        Self { writer, escaper: escaped.then(StreamEscaper::default) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.escaper {
            Some(escaper) => self.writer.write_all(escaper.feed(bytes).as_bytes())?,
            None => self.writer.write_all(bytes)?,
        }
        self.writer.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(escaper) = &mut self.escaper else { return Ok(()) };
        self.writer.write_all(escaper.finish().as_bytes())?;
        self.writer.flush()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl ProcessOutput<Vec<u8>, Vec<u8>> {
        /// Stores the output in memory, as if both outputs were terminals, or neither.
        pub(crate) fn in_memory(terminal: bool) -> Self {
            Self {
                stdout: Destination::new(Vec::new(), terminal),
                stderr: Destination::new(Vec::new(), terminal),
            }
        }

        pub(crate) fn written(&self) -> (String, String) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&self.stdout.writer), text(&self.stderr.writer))
        }
    }

    #[test]
    fn a_terminal_gets_escapes_and_a_file_gets_the_bytes() {
        for (terminal, shown) in [(true, "\\x1b]0;title\\x07 ok\n"), (false, "\x1b]0;title\x07 ok\n")] {
            let mut output = ProcessOutput::in_memory(terminal);
            for piece in ["\x1b]0;ti", "tle\x07 ok\n"] {
                output.write(OutputStream::Stdout, piece.as_bytes()).unwrap();
                output.write(OutputStream::Stderr, piece.as_bytes()).unwrap();
            }
            output.finish().unwrap();
            assert_eq!(output.written(), (shown.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn incomplete_characters_are_written_at_the_end() {
        let mut output = ProcessOutput::in_memory(true);
        output.write(OutputStream::Stdout, b"50%\r").unwrap();
        output.finish().unwrap();
        assert_eq!(output.written().0, "50%\\r");
    }
}
