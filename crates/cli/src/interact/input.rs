//! Forwards standard input to the exec.

use std::io::{self, Read as _};

use burrow_client::AttachSender;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::TaskMessage;
use super::detach::{DetachKeys, TypedBytes};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks read ahead of the exec.
const CHUNKS_AHEAD: usize = 4;

/// Ends at the end of standard input, when the exec accepts no more, or when the user detaches.
pub(super) async fn pump(sender: AttachSender, mut keys: DetachKeys, messages: mpsc::Sender<TaskMessage>) {
    let mut chunks = read_in_thread();
    while let Some(chunk) = chunks.recv().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                let _ = messages.send(TaskMessage::InputFailed(error)).await;
                break;
            }
        };
        let (bytes, detach) = match keys.feed(&chunk) {
            TypedBytes::Pass(bytes) => (bytes, false),
            TypedBytes::Detach(bytes) => (bytes, true),
        };
        if !bytes.is_empty() && sender.stdin(bytes).await.is_err() {
            return;
        }
        if detach {
            let _ = messages.send(TaskMessage::Detach).await;
            return;
        }
    }
    let _ = sender.close_stdin().await;
}

/// Reads in a separate thread: a blocked read cannot be cancelled, and must not keep the runtime from ending. The
/// thread ends with the program.
fn read_in_thread() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let chunk = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = chunk.is_err();
            if sender.blocking_send(chunk).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
