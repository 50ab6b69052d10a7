//! `burrow code`: runs code in a context that keeps its variables.

mod repl;
mod show;

use std::io::IsTerminal as _;

use burrow_api::{CodeEvent, CodeRunStatus, RunCode};
use tokio::signal::unix::{SignalKind, signal};

use super::flags::StartFlags;
use crate::commands::prelude::*;
use crate::interact::outcome;
use crate::transfer::input::read_text;
use show::CodeOutput;

/// The largest code that the daemon accepts in one request.
const CODE_BYTES_MAX: u64 = 1 << 20;

/// 128 + SIGINT.
const CODE_INTERRUPTED: u8 = 130;

/// Run code in a context that keeps its variables
///
/// Variables persist between runs, and when the sandbox sleeps, is restored or is forked. Without code, at a terminal,
/// code is read line by line. The exit code is 0 when the code completed, 1 when it failed, 124 when it timed out, 130
/// when it was interrupted, 125 for failures of burrow. The sandbox needs an image with a language:
/// `burrow image build --ready python-interpreter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow image build --ready python-interpreter
  burrow create --name lab --image python-interpreter
  burrow code lab -e 'x = 1'
  burrow code lab -e 'x + 1'                      2
  burrow code lab                                 interactive; Ctrl-D exits, the variables are kept
  burrow code lab plot.py --save .                save images as files
  burrow code lab --language bash -e 'cd /srv'    default context of another language")]
pub(crate) struct CodeArgs {
    /// Code to run; may be repeated, and runs in this order
    #[arg(short = 'e', long = "eval", value_name = "CODE", conflicts_with = "file")]
    code: Vec<String>,
    /// Context to run in, as listed by `burrow context ls`
    #[arg(long, value_name = "ID", conflicts_with = "language")]
    context: Option<String>,
    /// Language; the code runs in its default context
    #[arg(short = 'l', long, value_name = "NAME", default_value = "python")]
    language: String,
    /// Interrupt the code after this time, e.g. 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// Environment variable for this run; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Save images and documents from the output as files in this directory
    #[arg(long, value_name = "DIRECTORY")]
    save: Option<PathBuf>,
    /// Print events as JSON, one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    start: StartFlags,
    /// Sandbox to run in
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
    shown: CodeOutput,
}

pub(crate) async fn run(ctx: &Context, args: CodeArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    args.start.check(&client, &args.sandbox).await?;
    let context = args.context.unwrap_or_else(|| match args.language.as_str() {
        "python" => "default".to_owned(),
        language => format!("default-{language}"),
    });
    let timeout_ms = args.timeout.map(quantity::millis);
    let request = RunCode { timeout_ms, env: args.env.into_iter().collect(), ..RunCode::default() };
    let shown = CodeOutput::new(args.save, args.json);
    let mut session = Session { client: &client, sandbox: &args.sandbox, context, request, shown };
    let pieces = match (&args.file, args.code) {
        (Some(file), _) => vec![read(file).or_fail(|| format!("could not read `{}`", file.display()))?],
        (None, code) if !code.is_empty() => code,
        (None, _) if std::io::stdin().is_terminal() => return repl::run(&mut session).await,
        (None, _) => vec![read(Path::new("-")).or_fail("could not read standard input")?],
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

/// One byte more than the limit, so that longer code is rejected rather than truncated.
fn read(file: &Path) -> std::io::Result<String> {
    read_text(file, CODE_BYTES_MAX + 1)
}

impl Session<'_> {
    /// Runs one piece of code to its end. Ctrl-C interrupts it; a second Ctrl-C stops waiting for it.
    pub(super) async fn run(&mut self, code: String) -> Result<CodeRunStatus, Stop> {
        let what = || format!("could not run code in sandbox `{}`", self.sandbox);
        let request = RunCode { code, ..self.request.clone() };
        let mut interrupts = signal(SignalKind::interrupt()).or_fail(what)?;
        let stream = self.client.run_code(self.sandbox, &self.context, &request);
        // Until the daemon answers, the interpreter may still be starting: leaving now cancels the request.
        let mut events = tokio::select! {
            events = stream => events.or_fail(what)?,
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
                        sent = self.client.interrupt_code(self.sandbox, &self.context) => sent.or_fail(what)?,
                        Some(()) = interrupts.recv() => return Ok(CodeRunStatus::Interrupted),
                    }
                    continue;
                }
            };
            let Some(event) = event else {
                return fail(
                    what(),
                    "the daemon ended the stream, and the code was interrupted; its variables are kept",
                );
            };
            self.shown.show(&event)?;
            match event {
                CodeEvent::End { status, egress_denied, .. } => {
                    report(status);
                    if !self.shown.is_json() {
                        print::notes(outcome::denied(self.sandbox, &egress_denied));
                    }
                    return Ok(status);
                }
                CodeEvent::Broken { error } => {
                    return Err(Failure::new(what()).detail(error).into());
                }
                CodeEvent::Stdout { .. }
                | CodeEvent::Stderr { .. }
                | CodeEvent::Result(_)
                | CodeEvent::Error(_) => {}
            }
        }
    }
}

/// Reports how the code ended, unless its output already shows it.
fn report(status: CodeRunStatus) {
    match status {
        CodeRunStatus::TimedOut => print::note("the code timed out and was interrupted"),
        CodeRunStatus::OutputLimit => {
            print::note("the output limit was exceeded, and the code was interrupted")
        }
        CodeRunStatus::KernelDied => {
            print::note("the process of the context ended; the next run starts a new one, without variables");
        }
        CodeRunStatus::Ok | CodeRunStatus::Error | CodeRunStatus::Interrupted => {}
    }
}
