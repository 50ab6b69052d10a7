//! Forwards signals and changes of the terminal size to the exec.

use std::io;

use burrow_client::AttachSender;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use super::TaskMessage;
use crate::signals::Signals;
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
pub(super) struct ExecSignals {
    watch: Watch,
    signals: Signals<&'static str>,
}

impl ExecSignals {
    pub(super) fn install(watch: Watch) -> io::Result<Self> {
        let signals = Signals::install(&[
            ("INT", SignalKind::interrupt()),
            ("TERM", SignalKind::terminate()),
            ("HUP", SignalKind::hangup()),
            ("QUIT", SignalKind::quit()),
            ("USR1", SignalKind::user_defined1()),
            ("USR2", SignalKind::user_defined2()),
            ("WINCH", SignalKind::window_change()),
            ("CONT", SignalKind::from_raw(SIGCONT)),
        ])?;
        Ok(Self { watch, signals })
    }

    /// Ends when the exec accepts no more, or when this program must exit.
    pub(super) async fn pump(mut self, sender: AttachSender, messages: mpsc::Sender<TaskMessage>) {
        let mut interrupts = 0;
        // The size may have changed between the exec's start and now.
        if self.watch.resize && resize(&sender).await.is_none() {
            return;
        }
        loop {
            let name = self.signals.next().await;
            interrupts += u32::from(name == "INT");
            let done = match name {
                "WINCH" | "CONT" => self.redraw(name, &sender, &messages).await,
                _ => self.forward(name, interrupts, &sender, &messages).await,
            };
            if done.is_none() {
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
