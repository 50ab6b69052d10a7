//! A person (or a script) at one end, an exec at the other.
//!
//! ```text
//!  stdin ──thread──► input task ──┐
//!  signals, resizes ─► signal task┤──► AttachSender ──► exec
//!                                                        │
//!  stdout, stderr ◄── output loop ◄── Attachment ◄───────┘
//! ```
//!
//! Three tasks, so that a full standard output never keeps a Ctrl-C from its exec.

pub(crate) mod detach;
mod input;
pub(crate) mod outcome;
mod signals;

use std::io;

use burrow_api::{Exec, OutputStream, SendSignal};
use burrow_client::{AttachEvent, AttachMode, AttachOptions, Attachment, Client};
use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::failure::{CODE_OWN_FAILURE, Failure, OrFail, Stop};
use crate::print;
use crate::terminal::RawMode;
use detach::DetachKeys;

/// How to connect the two ends.
#[derive(Debug)]
pub(crate) struct Interaction {
    pub(crate) sandbox: String,
    pub(crate) exec: String,
    /// Standard input goes to the exec.
    pub(crate) input: bool,
    /// The exec has a terminal of its own.
    pub(crate) terminal: bool,
    pub(crate) detach_keys: DetachKeys,
    pub(crate) offset: u64,
    /// Signals sent to us go to the exec; else they end us and leave it running.
    pub(crate) forward_signals: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    Exit(Box<Exec>),
    /// The person left with the detach keys; the exec goes on.
    Detached,
    /// The person insisted (several Ctrl-C, a closed terminal); the exec goes on. With an exit code.
    Left(u8),
}

/// What the tasks beside the output loop tell it.
#[derive(Debug)]
enum Aside {
    Detach,
    Leave(u8),
    Continued,
    InputFailed(io::Error),
}

pub(crate) async fn interact(client: &Client, options: Interaction) -> Result<End, Stop> {
    let attach = AttachOptions { offset: options.offset, mode: AttachMode::Lossless };
    let (sender, attachment) = client
        .attach(&options.sandbox, &options.exec, attach)
        .await
        .or_fail(|| format!("could not attach to exec `{}`", options.exec))?;
    let raw = match options.terminal && options.input {
        true => RawMode::enter().or_fail(|| "could not set up the terminal".to_owned())?,
        false => None,
    };
    // One of each kind can be under way; more would say nothing new.
    let (aside, asides) = mpsc::channel(4);
    let mut tasks = tokio::task::JoinSet::new();
    if options.input {
        let keys = if raw.is_some() { options.detach_keys.clone() } else { DetachKeys::none() };
        tasks.spawn(input::pump(sender.clone(), keys, aside.clone()));
    }
    let watch = signals::Watch { forward: options.forward_signals, resize: options.terminal };
    let signals = signals::Signals::install(watch).or_fail(|| "could not watch for signals".to_owned())?;
    tasks.spawn(signals.pump(sender, aside));
    let end = Output { client, options: &options, raw: &raw }.run(attachment, asides).await;
    // The tasks end with the set; a thread blocked on standard input ends with the program.
    tasks.abort_all();
    drop(raw);
    end
}

struct Output<'a> {
    client: &'a Client,
    options: &'a Interaction,
    raw: &'a Option<RawMode>,
}

impl Output<'_> {
    async fn run(&self, mut attachment: Attachment, mut asides: mpsc::Receiver<Aside>) -> Result<End, Stop> {
        let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
        loop {
            tokio::select! {
                event = attachment.next() => {
                    let event = match event {
                        Err(error) if error.is_asleep() => return Err(self.asleep()),
                        event => event.or_fail(|| format!("could not follow exec `{}`", self.options.exec))?,
                    };
                    match event {
                        Some(AttachEvent::Output { stream: OutputStream::Stdout, bytes, .. }) => {
                            self.write(&mut stdout, &bytes).await?;
                        }
                        Some(AttachEvent::Output { stream: OutputStream::Stderr, bytes, .. }) => {
                            self.write(&mut stderr, &bytes).await?;
                        }
                        Some(AttachEvent::Gap { from, to }) => {
                            self.say(&format!("note: {} bytes of output were not kept", to.saturating_sub(from)));
                        }
                        Some(AttachEvent::Reattached { input_in_doubt }) => self.reattached(input_in_doubt).await?,
                        Some(AttachEvent::Exit(exec)) => return Ok(End::Exit(exec)),
                        None => return Err(Failure::new("the exec's stream ended without its outcome").into()),
                    }
                }
                Some(aside) = asides.recv() => match aside {
                    Aside::Detach => return Ok(End::Detached),
                    Aside::Leave(code) => return Ok(End::Left(code)),
                    Aside::Continued => if let Some(raw) = self.raw { raw.enter_again() },
                    Aside::InputFailed(error) => self.say(&format!("warning: could not read standard input: {error}")),
                },
            }
        }
    }

    async fn write(&self, into: &mut (impl AsyncWrite + Unpin), bytes: &Bytes) -> Result<(), Stop> {
        let written = async {
            into.write_all(bytes).await?;
            into.flush().await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(error) => {
                let stop = Stop::output(error);
                if matches!(stop, Stop::BrokenPipe) {
                    self.pass_broken_pipe_on().await;
                }
                Err(stop)
            }
        }
    }

    /// A process that writes into a closed pipe is ended by the kernel; ours is far away, so we do it.
    async fn pass_broken_pipe_on(&self) {
        self.end_exec("PIPE").await;
    }

    /// A person at a terminal sees what is missing and types it again. A program fed from a pipe would take a hole in
    /// its input for the real thing, so it is ended instead.
    async fn reattached(&self, input_in_doubt: bool) -> Result<(), Stop> {
        if input_in_doubt && !self.options.terminal {
            self.end_exec("HUP").await;
            return Err(Failure::new(format!(
                "the connection to exec `{}` was lost while its input was on its way, and part of it may be missing",
                self.options.exec
            ))
            .hint("the process was told to end (SIGHUP); start it again")
            .into());
        }
        self.say("note: the connection was lost and made again");
        Ok(())
    }

    /// Somebody put the sandbox to sleep. Attaching again would wake it at once, against their will: so we leave.
    fn asleep(&self) -> Stop {
        let Interaction { sandbox, exec, .. } = self.options;
        let failure =
            Failure::new(format!("sandbox `{sandbox}` was put to sleep, and exec `{exec}` with it"));
        let hint = format!("`burrow attach {exec}` wakes it and goes on from here");
        Stop::from(failure.hint(hint)).with_code(CODE_OWN_FAILURE)
    }

    /// Best effort: we are leaving.
    async fn end_exec(&self, signal: &str) {
        let signal = SendSignal { signal: signal.to_owned(), group: true };
        let _ = self.client.signal_exec(&self.options.sandbox, &self.options.exec, &signal).await;
    }

    fn say(&self, text: &str) {
        // In raw mode a line end does not go back to the first column by itself.
        let end = if self.raw.is_some() { "\r" } else { "" };
        print::note(&format!("{end}{text}{end}"));
    }
}
