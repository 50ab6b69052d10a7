//! Listens on the control socket, and serves sandboxes as the daemon requests.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::SandboxId;
use tokio::net::{TcpListener, UdpSocket, UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinHandle};

use super::Options;
use crate::clock::monotonic_ms;
use crate::control::{Answer, Channel, Greeting, ProcessMessage, ReceiveBuffer, Request, RequestKind};
use crate::dns::server;
use crate::intercept::Roots;
use crate::log::Journal;
use crate::proxy::{self, Shared};
use crate::sandbox::Sandbox;
use crate::{Limits, Policy};

/// Log entries per message.
const ENTRIES_PER_MESSAGE: usize = 256;

/// Answers that wait for the daemon to read them. It sends few requests at a time.
const ANSWERS_MAX: usize = 256;

/// Interval for enforcing limits and releasing combined log entries.
const TICK: Duration = Duration::from_secs(1);

/// Without daemon and sandboxes for this long, the process ends.
const UNUSED_MAX_MS: u64 = 60_000;

#[derive(Debug)]
struct Process {
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    served: Mutex<BTreeMap<SandboxId, AttachedSandbox>>,
    limits: Mutex<Limits>,
    quit: Notify,
}

#[derive(Debug)]
struct AttachedSandbox {
    sandbox: Arc<Sandbox>,
    listeners: Listeners,
}

/// The tasks that serve a sandbox's listeners. Dropping them closes the listeners.
#[derive(Debug)]
struct Listeners([AbortHandle; 3]);

impl Drop for Listeners {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

pub(super) async fn serve(options: Options, listener: OwnedFd, roots: Roots) -> io::Result<()> {
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let process = Arc::new(Process {
        shared: Shared::new(roots),
        journal: Arc::default(),
        served: Mutex::default(),
        limits: Mutex::new(Limits::STANDARD),
        quit: Notify::new(),
    });
    let mut daemon: Option<JoinHandle<()>> = None;
    let mut tick = tokio::time::interval(TICK);
    let mut unused_since_ms = monotonic_ms();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(TICK).await;
                    continue;
                };
                if !may_control(&stream, options) {
                    continue;
                }
                // The newest daemon takes precedence: an older one has ended or is about to.
                if let Some(before) = daemon.take() {
                    before.abort();
                }
                daemon = Some(tokio::spawn(serve_daemon(Arc::clone(&process), Channel::new(stream))));
            }
            _ = tick.tick() => {
                process.tick();
                let in_use = daemon.as_ref().is_some_and(|daemon| !daemon.is_finished());
                if in_use || !process.served().is_empty() {
                    unused_since_ms = monotonic_ms();
                } else if monotonic_ms().saturating_sub(unused_since_ms) > UNUSED_MAX_MS {
                    return Ok(());
                }
            }
            () = process.quit.notified() => return Ok(()),
        }
    }
}

/// The socket's mode already restricts it to its owner; this checks the process that connected as well.
fn may_control(stream: &UnixStream, options: Options) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == options.owner)
}

/// Serves one daemon until it disconnects.
async fn serve_daemon(process: Arc<Process>, channel: Channel) {
    if channel.send(&Greeting::ours(), &[]).await.is_err() {
        return;
    }
    let (answers, mut queue) = mpsc::channel(ANSWERS_MAX);
    let listening = async {
        let mut incoming = ReceiveBuffer::default();
        // An invalid message ends the connection: the messages after it could not be trusted.
        while let Ok(Some((request, listeners))) = channel.receive::<Request>(&mut incoming).await {
            handle(&process, request, listeners, &answers).await;
        }
    };
    let speaking = async {
        loop {
            tokio::select! {
                message = queue.recv() => match message {
                    // Log entries from before a request are sent before its answer.
                    Some(message)
                        if send_entries(&process.journal, &channel).await
                            && channel.send::<ProcessMessage>(&message, &[]).await.is_ok() => {}
                    Some(_) | None => return,
                },
                () = process.journal.ready.notified() => {
                    if !send_entries(&process.journal, &channel).await {
                        return;
                    }
                }
            }
        }
    };
    // Sends entries that were collected while no daemon was connected.
    process.journal.ready.notify_one();
    tokio::select! {
        () = listening => {}
        () = speaking => {}
    }
}

/// Sends all log entries to the daemon; `false` if it has disconnected.
async fn send_entries(journal: &Journal, channel: &Channel) -> bool {
    loop {
        let entries = journal.take(ENTRIES_PER_MESSAGE);
        if entries.is_empty() {
            return true;
        }
        let message = ProcessMessage::Log { entries };
        if channel.send(&message, &[]).await.is_err() {
            if let ProcessMessage::Log { entries } = message {
                journal.give_back(entries);
            }
            return false;
        }
    }
}

async fn handle(
    process: &Arc<Process>,
    Request { number, ask }: Request,
    listeners: Vec<OwnedFd>,
    answers: &mpsc::Sender<ProcessMessage>,
) {
    let answer = match ask {
        RequestKind::Configure { limits, roots } => {
            *process.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
            process.shared.roots.set_extra(&roots);
            Answer::Done
        }
        RequestKind::Spool => set_spool(process, listeners).await,
        RequestKind::Approvals { id } => {
            process.with(&id, |sandbox| Answer::Approvals { waiting: sandbox.intercept.approvals.list() })
        }
        RequestKind::Decide { id, number, yes } => process.with(&id, |sandbox| {
            let waited = sandbox.intercept.approvals.decide(number, yes);
            if waited { Answer::Done } else { Answer::NotWaiting }
        }),
        RequestKind::Budgets { id } => {
            process.with(&id, |sandbox| Answer::Budgets { budgets: sandbox.budgets_left() })
        }
        RequestKind::Attach { id, policy } => match process.attach(&id, policy, listeners) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed { reason: error.to_string() },
        },
        RequestKind::SetPolicy { id, policy } => process.with(&id, |sandbox| {
            sandbox.set_policy(policy);
            Answer::Done
        }),
        RequestKind::Detach { id } => {
            process.detach(&id);
            Answer::Done
        }
        RequestKind::List => Answer::Sandboxes { ids: process.served().keys().cloned().collect() },
        RequestKind::Counters { id } => {
            process.journal.unfold(&id);
            process.with(&id, |sandbox| {
                let mut counters = sandbox.counters();
                counters.log_dropped += process.shared.audit.lost();
                Answer::Counters { counters }
            })
        }
        RequestKind::Trial { id, target } => {
            let sandbox = process.served().get(&id).map(|served| Arc::clone(&served.sandbox));
            let Some(sandbox) = sandbox else {
                let _ = answers.send(ProcessMessage::Answer { number, answer: Answer::NotAttached }).await;
                return;
            };
            // A trial may take seconds and must not delay other requests. It ends by itself: each step has a time
            // limit.
            let (shared, answers) = (Arc::clone(&process.shared), answers.clone());
            drop(tokio::spawn(async move {
                let trial = proxy::trial(&shared, &sandbox, &target).await;
                let _ =
                    answers.send(ProcessMessage::Answer { number, answer: Answer::Trial { trial } }).await;
            }));
            return;
        }
        RequestKind::Quit => {
            process.quit.notify_one();
            return;
        }
    };
    // If the daemon has disconnected, the answer is discarded.
    let _ = answers.send(ProcessMessage::Answer { number, answer }).await;
}

async fn set_spool(process: &Process, mut descriptors: Vec<OwnedFd>) -> Answer {
    let set = match (descriptors.pop(), descriptors.is_empty()) {
        (Some(segment), true) => process.shared.audit.set(segment).await,
        _ => Err(io::Error::other("the message contains no segment")),
    };
    match set {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed { reason: error.to_string() },
    }
}

impl Process {
    fn attach(&self, id: &SandboxId, policy: Policy, listeners: Vec<OwnedFd>) -> io::Result<()> {
        let [tcp, dns_udp, dns_tcp] = <[OwnedFd; 3]>::try_from(listeners)
            .map_err(|_| io::Error::other("the message does not contain three listeners"))?;
        let tcp = listener(tcp)?;
        let dns_tcp = listener(dns_tcp)?;
        let dns_udp = std::net::UdpSocket::from(dns_udp);
        dns_udp.set_nonblocking(true)?;
        let dns_udp = UdpSocket::from_std(dns_udp)?;

        let mut served = self.served();
        let sandbox = match served.get(id) {
            Some(served) => {
                served.sandbox.set_policy(policy);
                Arc::clone(&served.sandbox)
            }
            None => {
                let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                let (journal, audit) = (Arc::clone(&self.journal), Arc::clone(&self.shared.audit));
                Sandbox::new(id.clone(), policy, limits, journal, audit)
            }
        };
        let listeners = Listeners([
            tokio::spawn(proxy::serve(Arc::clone(&self.shared), Arc::clone(&sandbox), tcp)).abort_handle(),
            tokio::spawn(server::serve_udp(Arc::clone(&sandbox), dns_udp)).abort_handle(),
            tokio::spawn(server::serve_tcp(Arc::clone(&sandbox), dns_tcp)).abort_handle(),
        ]);
        // The previous listeners are closed when their tasks are dropped here.
        served.insert(id.clone(), AttachedSandbox { sandbox, listeners });
        Ok(())
    }

    fn detach(&self, id: &SandboxId) {
        if let Some(AttachedSandbox { sandbox, listeners }) = self.served().remove(id) {
            drop(listeners);
            sandbox.close();
        }
    }

    fn with(&self, id: &SandboxId, act: impl FnOnce(&Sandbox) -> Answer) -> Answer {
        let sandbox = self.served().get(id).map(|served| Arc::clone(&served.sandbox));
        sandbox.map_or(Answer::NotAttached, |sandbox| act(&sandbox))
    }

    fn tick(&self) {
        let now = monotonic_ms();
        let sandboxes: Vec<_> = self.served().values().map(|served| Arc::clone(&served.sandbox)).collect();
        for sandbox in sandboxes {
            sandbox.sweep(now);
        }
        self.journal.tick(now);
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<SandboxId, AttachedSandbox>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listener(listener: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
