//! One connection to the egress process: sends requests, delivers answers to their callers, and passes log entries to
//! the daemon.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::control::{Answer, Channel, ProcessMessage, ReceiveBuffer, Request, RequestKind};
use crate::{EgressError, LogEntry};

/// Requests that wait to be sent.
const QUEUE_MAX: usize = 256;

/// Longer than the slowest trial. All other requests are answered within a millisecond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The callers' side of the connection.
#[derive(Debug)]
pub(super) struct Link {
    pid: Option<u32>,
    outgoing: mpsc::Sender<(Request, Vec<OwnedFd>)>,
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    number: AtomicU64,
}

/// The task's side of the connection.
#[derive(Debug)]
pub(super) struct Carrier {
    channel: Channel,
    incoming: ReceiveBuffer,
    queue: mpsc::Receiver<(Request, Vec<OwnedFd>)>,
    link: Arc<Link>,
    log: mpsc::Sender<LogEntry>,
}

impl Link {
    pub(super) fn new(
        channel: Channel,
        incoming: ReceiveBuffer,
        log: mpsc::Sender<LogEntry>,
    ) -> (Arc<Self>, Carrier) {
        let (outgoing, queue) = mpsc::channel(QUEUE_MAX);
        let pid = channel.stream().peer_cred().ok().and_then(|peer| peer.pid());
        let link = Arc::new(Self {
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            outgoing,
            waiting: Mutex::new(Some(HashMap::new())),
            number: AtomicU64::new(1),
        });
        let carrier = Carrier { channel, incoming, queue, link: Arc::clone(&link), log };
        (link, carrier)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Sends a request, and waits for the answer. A request that was sent takes effect even if the caller is
    /// cancelled.
    pub(super) async fn ask(
        &self,
        ask: RequestKind,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, EgressError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match self.waiting().as_mut() {
            Some(waiting) => waiting.insert(number, sender),
            None => return Err(EgressError::Down),
        };
        let _forget = RemoveOnDrop { link: self, number };
        let asked = async {
            self.outgoing
                .send((Request { number, ask }, descriptors))
                .await
                .map_err(|_| EgressError::Down)?;
            answer.await.map_err(|_| EgressError::Down)
        };
        tokio::time::timeout(ANSWER_TIMEOUT, asked).await.map_err(|_| EgressError::Silent)?
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a request from the waiting list when its caller stops waiting, for any reason.
struct RemoveOnDrop<'a> {
    link: &'a Link,
    number: u64,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.link.waiting().as_mut() {
            waiting.remove(&self.number);
        }
    }
}

impl Carrier {
    /// Transfers messages until the connection ends.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let Self { channel, incoming, queue, link, log } = &mut self;
        let speaking = async {
            while let Some((request, descriptors)) = queue.recv().await {
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                channel.send(&request, &borrowed).await?;
            }
            io::Result::Ok(())
        };
        let listening = async {
            while let Some((message, _)) = channel.receive::<ProcessMessage>(incoming).await? {
                match message {
                    ProcessMessage::Answer { number, answer } => {
                        let caller = link.waiting().as_mut().and_then(|waiting| waiting.remove(&number));
                        if let Some(caller) = caller {
                            // The caller may have stopped waiting.
                            let _ = caller.send(answer);
                        }
                    }
                    ProcessMessage::Log { entries } => {
                        // Never waits: answers use the same connection, and an unread log must not delay them.
                        let lost = entries.into_iter().filter_map(|entry| log.try_send(entry).err()).count();
                        if lost > 0 {
                            tracing::warn!(
                                lost,
                                "egress log entries were dropped because they were not read in time"
                            );
                        }
                    }
                }
            }
            io::Result::Ok(())
        };
        tokio::select! {
            outcome = speaking => outcome,
            outcome = listening => outcome,
        }
    }
}

impl Drop for Carrier {
    /// No further answers will arrive.
    fn drop(&mut self) {
        self.link.waiting().take();
    }
}
