//! `burrow logs`: the output of an exec.

use std::collections::VecDeque;

use base64::Engine as _;
use burrow_api::{Exec, OutputChunk, OutputStream};
use burrow_client::{AttachEvent, AttachMode, AttachOptions, OutputQuery};

use super::target::ExecTarget;
use crate::commands::prelude::*;
use crate::print::process_output::{ProcessOutput, gap};

/// Show the output of an exec
///
/// Shows the output that is still stored; standard error goes to standard error. On a terminal, control characters are
/// escaped unless --raw is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow logs web                              the latest exec of a sandbox
  burrow logs -f exe7h3k…
  burrow logs -n 20 web --service app")]
pub(crate) struct LogsArgs {
    /// Follow new output until the exec ends
    #[arg(short = 'f', long)]
    follow: bool,
    /// Offset of the first byte
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// Show only this many last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    /// Show the output of this service of the sandbox
    #[arg(long, conflicts_with = "exec")]
    service: Option<String>,
    /// Print control characters to the terminal unescaped
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    target: ExecTarget,
}

pub(crate) async fn run(ctx: &Context, args: LogsArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let exec = match &args.service {
        Some(service) => of_service(&client, args.target.sandbox(), service).await?,
        None => args.target.find(&client).await?,
    };
    let mut sink = ProcessOutput::new(args.raw);
    let offset = print_stored(&client, &exec, &args, &mut sink).await?;
    if args.follow && exec.outcome.is_none() {
        follow(&client, &exec, offset, &mut sink).await?;
    }
    sink.finish()
}

async fn of_service(client: &Client, sandbox: &str, service: &str) -> Result<Exec, Stop> {
    let what = || format!("could not find service `{service}` of sandbox `{sandbox}`");
    let services = client.services(sandbox).await.or_fail(what)?;
    let found = services.into_iter().find(|known| known.name == service);
    let exec = found
        .ok_or_else(|| Failure::new(what()).hint(format!("`burrow service ls {sandbox}` lists them")))?;
    let exec = exec.exec_id.ok_or_else(|| Failure::new(format!("service `{service}` has not run yet")))?;
    client.exec(sandbox, &exec).await.or_fail(what)
}

/// Prints the stored output. Returns the offset of its end.
async fn print_stored(
    client: &Client,
    exec: &Exec,
    args: &LogsArgs,
    sink: &mut ProcessOutput,
) -> Result<u64, Stop> {
    let what = || format!("could not read the output of exec `{}`", exec.id);
    let query = OutputQuery { offset: args.from, follow: false };
    let mut chunks = client.output(&exec.sandbox_id, &exec.id, query).await.or_fail(what)?;
    let mut tail = args.tail.map(Tail::new);
    let mut end = args.from;
    while let Some(chunk) = chunks.next().await.or_fail(what)? {
        match chunk {
            OutputChunk::Output { stream, offset, text, base64 } => {
                let bytes = decode(text, base64).ok_or_else(|| Failure::new(what()))?;
                end = offset + bytes.len() as u64;
                match &mut tail {
                    Some(tail) => tail.feed(stream, &bytes),
                    None => sink.write(stream, &bytes)?,
                }
            }
            OutputChunk::Gap { from, to } => {
                end = end.max(to);
                // Old execs have always lost the start of their output; it matters only if --from asks for it.
                if args.from > 0 {
                    print::note(gap(from, to));
                }
            }
            OutputChunk::Exit { .. } => break,
            OutputChunk::Drained { offset } => {
                end = end.max(offset);
                break;
            }
            OutputChunk::Error { error } => return Err(Failure::new(what()).detail(error).into()),
        }
    }
    for (stream, line) in tail.map(Tail::lines).unwrap_or_default() {
        sink.write(stream, &line)?;
    }
    Ok(end)
}

/// Prints new output until the exec ends.
async fn follow(client: &Client, exec: &Exec, offset: u64, sink: &mut ProcessOutput) -> Result<(), Stop> {
    let what = || format!("could not follow exec `{}`", exec.id);
    // A reader of logs must not slow the process down.
    let options = AttachOptions { offset, mode: AttachMode::Lossy };
    let (_sender, mut attachment) = client.attach(&exec.sandbox_id, &exec.id, options).await.or_fail(what)?;
    while let Some(event) = attachment.next().await.or_fail(what)? {
        match event {
            AttachEvent::Output { stream, bytes, .. } => sink.write(stream, &bytes)?,
            AttachEvent::Gap { from, to } => print::note(gap(from, to)),
            AttachEvent::Reattached { .. } => {}
            AttachEvent::Exit(_) => break,
        }
    }
    Ok(())
}

fn decode(text: Option<String>, base64: Option<String>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), _) => Some(text.into_bytes()),
        (None, Some(base64)) => base64::engine::general_purpose::STANDARD.decode(base64).ok(),
        (None, None) => None,
    }
}

/// The last lines of two streams, in the order they were written. Bounded by the daemon's output buffer.
#[derive(Debug)]
struct Tail {
    count: usize,
    lines: VecDeque<(OutputStream, Vec<u8>)>,
}

impl Tail {
    fn new(count: usize) -> Self {
        Self { count, lines: VecDeque::new() }
    }

    fn feed(&mut self, stream: OutputStream, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match self.lines.back_mut() {
                Some((last, line)) if *last == stream && line.last() != Some(&b'\n') => {
                    line.extend_from_slice(piece)
                }
                _ => self.lines.push_back((stream, piece.to_vec())),
            }
            if self.lines.len() > self.count {
                self.lines.pop_front();
            }
        }
    }

    fn lines(self) -> VecDeque<(OutputStream, Vec<u8>)> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_the_last_lines_however_they_are_split() {
        let mut tail = Tail::new(2);
        for (stream, piece) in [
            (OutputStream::Stdout, "one\ntw"),
            (OutputStream::Stdout, "o\nthr"),
            (OutputStream::Stderr, "oops\n"),
        ] {
            tail.feed(stream, piece.as_bytes());
        }
        let lines: Vec<_> = tail.lines().into();
        assert_eq!(
            lines,
            [(OutputStream::Stdout, b"thr".to_vec()), (OutputStream::Stderr, b"oops\n".to_vec())]
        );
    }

    #[test]
    fn binary_output_is_decoded_from_base64() {
        assert_eq!(decode(None, Some("/w==".to_owned())), Some(vec![0xff]));
        assert_eq!(decode(Some("ü".to_owned()), None), Some("ü".as_bytes().to_vec()));
        assert_eq!(decode(None, None), None);
        assert_eq!(decode(None, Some("!".to_owned())), None);
    }
}
