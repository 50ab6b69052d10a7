//! Sends output to the client on one channel, in order, from its own task, so that the producer can continue to read.
//!
//! Reading must never wait for writing. The window messages that allow us to write arrive over the same connection as the
//! client's input: a channel that does not read its input would keep the connection from receiving them.

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};
use tokio::sync::mpsc;

use crate::connection::Connection;

/// Queued items, each at most one frame from the agent.
const QUEUE: usize = 8;

/// The code of standard error among the types of extended data.
const STDERR: u32 = 1;

/// How a channel ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelEnd {
    Code(u32),
    /// The name without `SIG`.
    Signal(String),
    /// The client has disconnected; nothing is sent.
    Gone,
}

#[derive(Debug)]
enum OutputItem {
    Out(Bytes),
    Error(Bytes),
    End(ChannelEnd),
}

#[derive(Debug)]
pub(crate) struct Output {
    queue: mpsc::Sender<OutputItem>,
    /// A terminal needs a carriage return in front of each newline.
    terminal: bool,
}

/// Queue space for one item.
#[derive(Debug)]
pub(crate) struct QueuePermit<'a>(mpsc::Permit<'a, OutputItem>);

impl QueuePermit<'_> {
    pub(crate) fn out(self, bytes: Bytes) {
        self.0.send(OutputItem::Out(bytes));
    }

    pub(crate) fn error(self, bytes: Bytes) {
        self.0.send(OutputItem::Error(bytes));
    }
}

impl Output {
    /// The task ends with the channel or the connection; until then it waits for a client that reads nothing.
    pub(crate) fn spawn(
        connection: &Connection,
        writer: ChannelWriteHalf<Msg>,
        handle: Handle,
        terminal: bool,
    ) -> Self {
        let (queue, items) = mpsc::channel(QUEUE);
        let cancel = connection.cancel.clone();
        connection
            .shared
            .tasks
            .spawn(async move { cancel.run_until_cancelled(write(writer, handle, items)).await });
        Self { queue, terminal }
    }

    /// Waits for queue space. `None`: the client has disconnected.
    pub(crate) async fn reserve(&self) -> Option<QueuePermit<'_>> {
        self.queue.reserve().await.ok().map(QueuePermit)
    }

    /// Whether output waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queue.capacity() < QUEUE
    }

    /// Prints text on standard output.
    pub(crate) async fn print(&self, text: &str) {
        let _ = self.queue.send(OutputItem::Out(self.lines(text))).await;
    }

    /// Prints a note of the gateway on standard error.
    pub(crate) async fn print_note(&self, text: &str) {
        let _ = self.queue.send(OutputItem::Error(self.note(text))).await;
    }

    /// Formats a note of the gateway.
    pub(crate) fn note(&self, text: &str) -> Bytes {
        self.lines(&format!("burrow: {text}\n"))
    }

    pub(crate) async fn end(self, ending: ChannelEnd) {
        let _ = self.queue.send(OutputItem::End(ending)).await;
    }

    fn lines(&self, text: &str) -> Bytes {
        if self.terminal { text.replace('\n', "\r\n").into() } else { text.to_owned().into() }
    }
}

/// Ends when the channel or the connection does: the library then refuses what is sent.
async fn write(writer: ChannelWriteHalf<Msg>, handle: Handle, mut items: mpsc::Receiver<OutputItem>) {
    while let Some(item) = items.recv().await {
        let sent = match item {
            OutputItem::Out(bytes) => writer.data_bytes(bytes).await,
            OutputItem::Error(bytes) => writer.extended_data_bytes(STDERR, bytes).await,
            OutputItem::End(ending) => return end(&writer, &handle, ending).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn end(writer: &ChannelWriteHalf<Msg>, handle: &Handle, ending: ChannelEnd) {
    let _ = match ending {
        ChannelEnd::Gone => return,
        ChannelEnd::Code(code) => writer.exit_status(code).await.is_ok(),
        ChannelEnd::Signal(name) => {
            let sent =
                handle.exit_signal_request(writer.id(), signal(&name), false, String::new(), String::new());
            sent.await.is_ok()
        }
    };
    let _ = writer.eof().await;
    let _ = writer.close().await;
}

/// Signals that the protocol does not define are sent as `NAME@burrow`.
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
