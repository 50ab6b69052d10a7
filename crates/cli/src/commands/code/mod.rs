//! `burrow code`: runs code in a context that keeps its variables.

mod repl;
mod show;

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use burrow_api::{CodeEvent, CodeRunStatus, RunCode};
use burrow_client::Client;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::failure::{CODE_GENERAL, CODE_TIMED_OUT, Failure, OrFail, Stop};
use crate::{parse, print};
use show::Shown;

/// As the daemon takes it at once.
const CODE_BYTES_MAX: u64 = 1 << 20;

/// 128 + SIGINT.
const CODE_INTERRUPTED: u8 = 130;

/// Run code that keeps its variables: between calls, and while the sandbox sleeps, is restored or forked
///
/// Without code, and at a terminal, it asks for it line by line. The exit code is 0 when it ran to its end, 1 when it failed,
/// 124 when its time was up, 130 when it was interrupted, 125 for failures of burrow. The sandbox needs an image with a
/// language in it: `burrow image build --ready python-interpreter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image build --ready python-interpreter
  burrow create --name lab --image python-interpreter
  burrow code lab -e 'x = 1'
  burrow code lab -e 'x + 1'                      2
  burrow code lab                                 line by line; Ctrl-D leaves, the variables stay
  burrow code lab plot.py --save .                pictures as files
  burrow code lab --language bash -e 'cd /srv'    another language's default context")]
pub(crate) struct CodeArgs {
    /// Code to run; may be repeated, and is then run one after another
    #[arg(short = 'e', long = "eval", value_name = "CODE", conflicts_with = "file")]
    code: Vec<String>,
    /// Context to run it in, as `burrow context` knows it
    #[arg(long, value_name = "ID", conflicts_with = "language")]
    context: Option<String>,
    /// Language whose default context to run it in
    #[arg(short = 'l', long, value_name = "NAME", default_value = "python")]
    language: String,
    /// Interrupt it after this time, e.g. 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// Variable of its environment, for this run; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Keep pictures and documents that it shows as files in this directory
    #[arg(long, value_name = "DIRECTORY")]
    save: Option<PathBuf>,
    /// Print what comes of it as JSON, one event a line
    #[arg(long)]
    json: bool,
    /// Sandbox to run it in
    sandbox: String,
    /// File with the code; `-` for standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A context, and how to run code there.
pub(super) struct Session<'a> {
    client: &'a Client,
    sandbox: &'a str,
    context: String,
    request: RunCode,
    shown: Shown,
}

pub(crate) async fn run(ctx: &Context, args: CodeArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let context = args.context.unwrap_or_else(|| match args.language.as_str() {
        "python" => "default".to_owned(),
        language => format!("default-{language}"),
    });
    let timeout_ms = args.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    let request = RunCode { timeout_ms, env: args.env.into_iter().collect(), ..RunCode::default() };
    let shown = Shown::new(args.save, args.json);
    let mut session = Session { client: &client, sandbox: &args.sandbox, context, request, shown };
    let pieces = match (&args.file, args.code) {
        (Some(file), _) => vec![read(file).or_fail(|| format!("could not read `{}`", file.display()))?],
        (None, code) if !code.is_empty() => code,
        (None, _) if std::io::stdin().is_terminal() => return repl::run(&mut session).await,
        (None, _) => vec![read(Path::new("-")).or_fail(|| "could not read standard input".to_owned())?],
    };
    for code in pieces {
        match session.run(code).await? {
            CodeRunStatus::Ok => {}
            CodeRunStatus::TimedOut => return Err(Stop::Exit(CODE_TIMED_OUT)),
            CodeRunStatus::Interrupted => return Err(Stop::Exit(CODE_INTERRUPTED)),
            CodeRunStatus::Error | CodeRunStatus::OutputLimit | CodeRunStatus::KernelDied => {
                return Err(Stop::Exit(CODE_GENERAL));
            }
        }
    }
    Ok(())
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // One byte more than may be: what is too long is then refused rather than cut.
    if file == Path::new("-") {
        std::io::stdin().take(CODE_BYTES_MAX + 1).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(CODE_BYTES_MAX + 1).read_to_string(&mut text)?;
    }
    Ok(text)
}

impl Session<'_> {
    /// Runs one piece of code to its end. Ctrl-C interrupts it, and again gives up on it.
    pub(super) async fn run(&mut self, code: String) -> Result<CodeRunStatus, Stop> {
        let what = || format!("could not run code in sandbox `{}`", self.sandbox);
        let request = RunCode { code, ..self.request.clone() };
        let mut interrupts = signal(SignalKind::interrupt()).or_fail(what)?;
        let asked = self.client.run_code(self.sandbox, &self.context, &request);
        // Before there is an answer, the interpreter may be starting: leaving ends what it was asked for.
        let mut events = tokio::select! {
            events = asked => events.or_fail(what)?,
            Some(()) = interrupts.recv() => return Ok(CodeRunStatus::Interrupted),
        };
        let mut interrupted = false;
        loop {
            let event = tokio::select! {
                event = events.next() => event.or_fail(what)?,
                Some(()) = interrupts.recv() => {
                    if interrupted {
                        return Ok(CodeRunStatus::Interrupted);
                    }
                    interrupted = true;
                    tokio::select! {
                        told = self.client.interrupt_code(self.sandbox, &self.context) => told.or_fail(what)?,
                        Some(()) = interrupts.recv() => return Ok(CodeRunStatus::Interrupted),
                    }
                    continue;
                }
            };
            let Some(event) = event else {
                return Err(Failure::new(what())
                    .hint("the daemon ended the stream, and the code was interrupted; its variables are kept")
                    .into());
            };
            self.shown.show(&event)?;
            match event {
                CodeEvent::End { status, .. } => {
                    told(status);
                    return Ok(status);
                }
                CodeEvent::Broken { error } => {
                    let mut failure = Failure::new(format!("{}: {}", what(), error.message));
                    failure.hint = error.hint;
                    return Err(failure.into());
                }
                CodeEvent::Stdout { .. }
                | CodeEvent::Stderr { .. }
                | CodeEvent::Result(_)
                | CodeEvent::Error(_) => {}
            }
        }
    }
}

/// Ends that nothing else told of.
fn told(status: CodeRunStatus) {
    match status {
        CodeRunStatus::TimedOut => print::note("its time was up; it was interrupted"),
        CodeRunStatus::OutputLimit => print::note("it wrote more than may be; it was interrupted"),
        CodeRunStatus::KernelDied => {
            print::note("its process ended; the context begins anew with the next run, without variables");
        }
        CodeRunStatus::Ok | CodeRunStatus::Error | CodeRunStatus::Interrupted => {}
    }
}
