//! Connects the user, or a script, with an exec.
//!
//! ```text
//!  stdin ──thread──► input task ──┐
//!  signals, resizes ─► signal task┤──► AttachSender ──► exec
//!                                                        │
//!  stdout, stderr ◄── output loop ◄── Attachment ◄───────┘
//! ```
//!
//! There are three tasks, so that a blocked standard output never delays a Ctrl-C.

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

use crate::failure::{CODE_OWN_FAILURE, Failure, OrFail, Stop, fail};
use crate::print;
use crate::print::process_output::gap;
use crate::terminal::RawMode;
use detach::DetachKeys;

/// How to connect the two ends.
#[derive(Debug)]
pub(crate) struct Interaction {
    pub(crate) sandbox: String,
    pub(crate) exec: String,
    /// Standard input goes to the exec.
    pub(crate) input: bool,
    /// The exec has its own terminal.
    pub(crate) terminal: bool,
    pub(crate) detach_keys: DetachKeys,
    pub(crate) offset: u64,
    /// Signals sent to this program go to the exec; otherwise they end this program and the exec keeps running.
    pub(crate) forward_signals: bool,
}

/// How the interaction ended.
#[derive(Debug)]
pub(crate) enum InteractionEnd {
    Exit(Box<Exec>),
    /// The user detached with the key sequence; the exec keeps running.
    Detached,
    /// The user forced it (several Ctrl-C, a closed terminal); the exec keeps running. With an exit code.
    Left(u8),
}

/// Messages of the other tasks to the output loop.
#[derive(Debug)]
enum TaskMessage {
    Detach,
    Leave(u8),
    Continued,
    InputFailed(io::Error),
}

pub(crate) async fn interact(client: &Client, options: Interaction) -> Result<InteractionEnd, Stop> {
    let attach = AttachOptions { offset: options.offset, mode: AttachMode::Lossless };
    let (sender, attachment) = client
        .attach(&options.sandbox, &options.exec, attach)
        .await
        .or_fail(|| format!("could not attach to exec `{}`", options.exec))?;
    let raw = match options.terminal && options.input {
        true => RawMode::enter().or_fail("could not set up the terminal")?,
        false => None,
    };
    // At most one message of each kind is pending.
    let (messages, received) = mpsc::channel(4);
    let mut tasks = tokio::task::JoinSet::new();
    if options.input {
        let keys = if raw.is_some() { options.detach_keys.clone() } else { DetachKeys::none() };
        tasks.spawn(input::pump(sender.clone(), keys, messages.clone()));
    }
    let watch = signals::Watch { forward: options.forward_signals, resize: options.terminal };
    let signals = signals::ExecSignals::install(watch).or_fail("could not watch for signals")?;
    tasks.spawn(signals.pump(sender, messages));
    let end = Output { client, options: &options, raw: &raw }.run(attachment, received).await;
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
    async fn run(
        &self,
        mut attachment: Attachment,
        mut received: mpsc::Receiver<TaskMessage>,
    ) -> Result<InteractionEnd, Stop> {
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
                        Some(AttachEvent::Gap { from, to }) => self.print_note(&gap(from, to)),
                        Some(AttachEvent::Reattached { input_in_doubt }) => self.reattached(input_in_doubt).await?,
                        Some(AttachEvent::Exit(exec)) => return Ok(InteractionEnd::Exit(exec)),
                        None => return Err(Failure::new("the stream of the exec ended without its outcome").into()),
                    }
                }
                Some(message) = received.recv() => match message {
                    TaskMessage::Detach => return Ok(InteractionEnd::Detached),
                    TaskMessage::Leave(code) => return Ok(InteractionEnd::Left(code)),
                    TaskMessage::Continued => if let Some(raw) = self.raw { raw.enter_again() },
                    TaskMessage::InputFailed(error) => self.print_note(&format!("warning: could not read standard input: {error}")),
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
                    // The kernel ends a process that writes to a closed pipe; for a remote process, this program does.
                    self.end_exec("PIPE").await;
                }
                Err(stop)
            }
        }
    }

    /// A user at a terminal sees what is missing and types it again. A program that reads from a pipe would not
    /// notice the gap in its input, so it is ended instead.
    async fn reattached(&self, input_in_doubt: bool) -> Result<(), Stop> {
        if input_in_doubt && !self.options.terminal {
            self.end_exec("HUP").await;
            return fail(
                format!(
                    "the connection to exec `{}` was lost while its input was being sent, and part of it may be missing",
                    self.options.exec
                ),
                "the process was sent SIGHUP; start it again",
            );
        }
        self.print_note("note: the connection was lost and restored");
        Ok(())
    }

    /// The sandbox was put to sleep. Attaching again would wake it at once, so this program exits.
    fn asleep(&self) -> Stop {
        let Interaction { sandbox, exec, .. } = self.options;
        let failure =
            Failure::new(format!("sandbox `{sandbox}` was put to sleep, and exec `{exec}` with it"));
        let hint = format!("`burrow attach {exec}` wakes it and continues from here");
        Stop::from(failure.hint(hint)).with_code(CODE_OWN_FAILURE)
    }

    /// Best effort: this program exits.
    async fn end_exec(&self, signal: &str) {
        let signal = SendSignal { signal: signal.to_owned(), group: true };
        let _ = self.client.signal_exec(&self.options.sandbox, &self.options.exec, &signal).await;
    }

    fn print_note(&self, text: &str) {
        // In raw mode, a line end does not return to the first column.
        let end = if self.raw.is_some() && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            "\r"
        } else {
            ""
        };
        print::note(format!("{end}{text}{end}"));
    }
}
