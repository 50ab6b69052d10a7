//! What goes to the client on one channel, in order, by a task of its own: whoever produces it goes on listening meanwhile.
//!
//! Listening must never wait for writing. The window that lets us write comes over the same connection as the client's input,
//! so a channel that does not take its input keeps the connection from hearing that there is room again.

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};
use tokio::sync::mpsc;

use crate::visit::Visit;

/// Pieces on their way, each at most a frame of the agent's.
const QUEUE: usize = 8;

/// Standard error's number among the kinds of extra data.
const STDERR: u32 = 1;

/// How a channel ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Code(u32),
    /// Without its `SIG`.
    Signal(String),
    /// The client is gone; nobody is told.
    Gone,
}

#[derive(Debug)]
enum Piece {
    Out(Bytes),
    Error(Bytes),
    End(Ending),
}

#[derive(Debug)]
pub(crate) struct Output {
    queue: mpsc::Sender<Piece>,
    /// In a terminal a line ends where the next begins.
    terminal: bool,
}

/// Room for one piece.
#[derive(Debug)]
pub(crate) struct Room<'a>(mpsc::Permit<'a, Piece>);

impl Room<'_> {
    pub(crate) fn out(self, bytes: Bytes) {
        self.0.send(Piece::Out(bytes));
    }

    pub(crate) fn error(self, bytes: Bytes) {
        self.0.send(Piece::Error(bytes));
    }
}

impl Output {
    /// The task ends with the channel, or with the connection: a client that takes nothing is waited for until then.
    pub(crate) fn begin(
        visit: &Visit,
        writer: ChannelWriteHalf<Msg>,
        handle: Handle,
        terminal: bool,
    ) -> Self {
        let (queue, pieces) = mpsc::channel(QUEUE);
        let cut = visit.cut.clone();
        visit.shared.tasks.spawn(async move { cut.run_until_cancelled(write(writer, handle, pieces)).await });
        Self { queue, terminal }
    }

    /// Waits for room. `None`: the client is gone.
    pub(crate) async fn room(&self) -> Option<Room<'_>> {
        self.queue.reserve().await.ok().map(Room)
    }

    /// Whether something waits to be taken by the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queue.capacity() < QUEUE
    }

    /// A page, on standard output.
    pub(crate) async fn say(&self, text: &str) {
        let _ = self.queue.send(Piece::Out(self.lines(text))).await;
    }

    /// A note of our own, on standard error.
    pub(crate) async fn tell(&self, text: &str) {
        let _ = self.queue.send(Piece::Error(self.note(text))).await;
    }

    /// A note of our own, as it is shown.
    pub(crate) fn note(&self, text: &str) -> Bytes {
        self.lines(&format!("burrow: {text}\n"))
    }

    pub(crate) async fn end(self, ending: Ending) {
        let _ = self.queue.send(Piece::End(ending)).await;
    }

    fn lines(&self, text: &str) -> Bytes {
        if self.terminal { text.replace('\n', "\r\n").into() } else { text.to_owned().into() }
    }
}

/// Ends when the channel does, or its client: both make the library refuse what is sent.
async fn write(writer: ChannelWriteHalf<Msg>, handle: Handle, mut pieces: mpsc::Receiver<Piece>) {
    while let Some(piece) = pieces.recv().await {
        let sent = match piece {
            Piece::Out(bytes) => writer.data_bytes(bytes).await,
            Piece::Error(bytes) => writer.extended_data_bytes(STDERR, bytes).await,
            Piece::End(ending) => return end(&writer, &handle, ending).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn end(writer: &ChannelWriteHalf<Msg>, handle: &Handle, ending: Ending) {
    let _ = match ending {
        Ending::Gone => return,
        Ending::Code(code) => writer.exit_status(code).await.is_ok(),
        Ending::Signal(name) => {
            let told =
                handle.exit_signal_request(writer.id(), signal(&name), false, String::new(), String::new());
            told.await.is_ok()
        }
    };
    let _ = writer.eof().await;
    let _ = writer.close().await;
}

/// Those that the protocol knows go by their own names.
pub(crate) fn signal(name: &str) -> Sig {
    match name {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        other => Sig::Custom(format!("{other}@burrow")),
    }
}
