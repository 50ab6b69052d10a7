//! Forwards signals and changes of the terminal size to the exec.

use std::io;

use burrow_client::AttachSender;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::TaskMessage;
use crate::terminal;

/// After this many Ctrl-C in a row that the exec ignores, this program exits.
const INTERRUPTS_MAX: u32 = 3;
const SIGCONT: i32 = 18;
/// 128 + the number, as a shell shows it.
const CODE_INTERRUPTED: u8 = 130;
const CODE_HUNG_UP: u8 = 129;

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) forward: bool,
    pub(super) resize: bool,
}

#[derive(Debug)]
pub(super) struct Signals {
    watch: Watch,
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
    window: Signal,
    continued: Signal,
}

impl Signals {
    pub(super) fn install(watch: Watch) -> io::Result<Self> {
        Ok(Self {
            watch,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            window: signal(SignalKind::window_change())?,
            continued: signal(SignalKind::from_raw(SIGCONT))?,
        })
    }

    /// Ends when the exec accepts no more, or when this program must exit.
    pub(super) async fn pump(mut self, sender: AttachSender, messages: mpsc::Sender<TaskMessage>) {
        let mut interrupts = 0;
        // The size may have changed between the exec's start and now.
        if self.watch.resize && resize(&sender).await.is_none() {
            return;
        }
        loop {
            let name = tokio::select! {
                Some(()) = self.interrupt.recv() => {
                    interrupts += 1;
                    "INT"
                }
                Some(()) = self.terminate.recv() => "TERM",
                Some(()) = self.hang_up.recv() => "HUP",
                Some(()) = self.quit.recv() => "QUIT",
                Some(()) = self.user1.recv() => "USR1",
                Some(()) = self.user2.recv() => "USR2",
                Some(()) = self.window.recv() => "WINCH",
                Some(()) = self.continued.recv() => "CONT",
            };
            let went_on = match name {
                "WINCH" | "CONT" => self.redraw(name, &sender, &messages).await,
                _ => self.forward(name, interrupts, &sender, &messages).await,
            };
            if went_on.is_none() {
                return;
            }
        }
    }

    async fn redraw(
        &self,
        name: &str,
        sender: &AttachSender,
        messages: &mpsc::Sender<TaskMessage>,
    ) -> Option<()> {
        if name == "CONT" {
            messages.send(TaskMessage::Continued).await.ok()?;
        }
        if self.watch.resize { resize(sender).await } else { Some(()) }
    }

    async fn forward(
        &self,
        name: &str,
        interrupts: u32,
        sender: &AttachSender,
        messages: &mpsc::Sender<TaskMessage>,
    ) -> Option<()> {
        let leave = match name {
            "INT" if !self.watch.forward || interrupts >= INTERRUPTS_MAX => Some(CODE_INTERRUPTED),
            // The terminal is closed: no one can read more output.
            "HUP" => Some(CODE_HUNG_UP),
            _ if !self.watch.forward => Some(128 + crate::parse::signal_number(name).unwrap_or_default()),
            _ => None,
        };
        if self.watch.forward {
            sender.signal(name).await.ok()?;
        }
        match leave {
            Some(code) => {
                let _ = messages.send(TaskMessage::Leave(code)).await;
                None
            }
            None => Some(()),
        }
    }
}

async fn resize(sender: &AttachSender) -> Option<()> {
    let size = terminal::size();
    sender.resize(size.columns, size.rows).await.ok()
}
