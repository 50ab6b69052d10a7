//! One host that reads the output of an exec and writes to its input over one connection.

use std::pin::pin;
use std::rc::Rc;

use super::log::ReaderId;
use super::{Exec, start};
use crate::agent::Agent;
use crate::agent::wire::{Inbox, Outbox, WireError};
use crate::protocol::{Attach, AttachInput, AttachNotice, ExecStart, Frame, ReadMode};

/// Output copied to a connection at a time. Bounds the RAM used for a host that does not read.
const CHUNK_BYTES: usize = 256 * 1024;

/// Carries out [`crate::protocol::Request::ExecStart`].
pub(in crate::agent) async fn serve_start(
    agent: &Rc<Agent>,
    request: ExecStart,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let mode = request.attach;
    match start(agent, request).await {
        Ok(exec) => match mode {
            Some(mode) => follow(&exec, 0, mode, true, inbox, outbox).await,
            None => outbox.reply(Ok(exec.info())).await,
        },
        Err(error) => outbox.reply::<()>(Err(error)).await,
    }
}

/// Carries out [`crate::protocol::Request::Attach`].
pub(in crate::agent) async fn attach(
    agent: &Rc<Agent>,
    request: Attach,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    match agent.execs.get(&request.exec) {
        Ok(exec) => follow(&exec, request.offset, request.mode, request.follow, inbox, outbox).await,
        Err(error) => outbox.reply::<()>(Err(error)).await,
    }
}

/// Removes the reader from the log however the connection ends, so that it no longer delays the process.
struct ReaderGuard<'e> {
    exec: &'e Exec,
    reader: ReaderId,
}

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        self.exec.log.borrow_mut().remove_reader(self.reader);
        self.exec.readers.set(self.exec.readers.get() - 1);
        self.exec.room.notify_waiters();
    }
}

async fn follow(
    exec: &Rc<Exec>,
    offset: u64,
    mode: ReadMode,
    follow: bool,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    // A reader beyond the end would wait for bytes and then skip them; it starts at the end instead.
    let offset = offset.min(exec.log.borrow().end());
    let reader = exec.log.borrow_mut().add_reader(offset, mode);
    exec.readers.set(exec.readers.get() + 1);
    let reading = ReaderGuard { exec, reader };
    exec.release_hold();
    outbox.push_reply(Ok(exec.info()))?;
    let mut receiving = pin!(receive_input(exec, inbox));
    let sent = tokio::select! {
        sent = send_output(&reading, offset, follow, outbox) => sent,
        received = &mut receiving => return received,
    };
    if sent.is_err() {
        // The host is gone, but it had accepted the input it sent: a pipe into an exec must not lose its last bytes
        // because the daemon was killed. At most a socket buffer of them is left.
        drop(reading);
        receiving.await?;
    }
    sent
}

async fn send_output(
    reading: &ReaderGuard<'_>,
    mut offset: u64,
    follow: bool,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let exec = reading.exec;
    loop {
        let changed = exec.changed.notified();
        let start = exec.log.borrow().start();
        if offset < start {
            outbox.push_control(&AttachNotice::Gap { from: offset, to: start })?;
            offset = start;
        }
        let next = exec.log.borrow_mut().take(reading.reader, offset, CHUNK_BYTES, &mut outbox.buffer);
        let moved = next > offset;
        offset = next;
        if moved {
            exec.room.notify_waiters();
            outbox.flush().await?;
            continue;
        }
        if exec.output_done.get() {
            outbox.push_control(&AttachNotice::Exit(exec.info()))?;
            return outbox.flush().await;
        }
        if !follow {
            outbox.push_control(&AttachNotice::Drained { offset })?;
            return outbox.flush().await;
        }
        outbox.flush().await?;
        changed.await;
    }
}

/// Handles standard input, its end, resizes and signals, until the host hangs up.
async fn receive_input(exec: &Exec, inbox: &mut Inbox<'_>) -> Result<(), WireError> {
    loop {
        // An error here means that the process has ended or reads no more, which its output shows.
        match inbox.next().await? {
            Some(Frame::Bytes(bytes)) => {
                let _ = exec.write_stdin(&bytes).await;
            }
            Some(Frame::End) => {
                let _ = exec.close_stdin().await;
            }
            Some(Frame::Control(json)) => match serde_json::from_slice(&json)? {
                AttachInput::Resize(size) => {
                    let _ = exec.resize(size);
                }
                AttachInput::Signal { signal } => {
                    let _ = exec.signal(signal, true);
                }
            },
            Some(Frame::Stdout { .. } | Frame::Stderr { .. }) | None => return Ok(()),
        }
    }
}
