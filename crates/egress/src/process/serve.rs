//! Listens on the control socket, and serves sandboxes as it is told.

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
use crate::control::{Answer, Ask, Channel, Greeting, Incoming, Request, Said};
use crate::dns::server;
use crate::intercept::Roots;
use crate::log::Journal;
use crate::proxy::{self, Shared};
use crate::sandbox::Sandbox;
use crate::{Limits, Policy};

/// Log entries in one message.
const ENTRIES_PER_MESSAGE: usize = 256;

/// Answers that wait for the daemon to read them. It asks little at a time.
const ANSWERS_MAX: usize = 256;

/// How often limits are looked after, and folded log entries told.
const TICK: Duration = Duration::from_secs(1);

/// Without daemon and sandbox for this long, there is nothing to stay for.
const LONELY_MAX_MS: u64 = 60_000;

#[derive(Debug)]
struct Process {
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    served: Mutex<BTreeMap<SandboxId, Served>>,
    limits: Mutex<Limits>,
    quit: Notify,
}

#[derive(Debug)]
struct Served {
    sandbox: Arc<Sandbox>,
    doors: Doors,
}

/// The tasks behind a sandbox's doors. Dropping them closes the doors.
#[derive(Debug)]
struct Doors([AbortHandle; 3]);

impl Drop for Doors {
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
    let mut lonely_since_ms = monotonic_ms();
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
                // The newest daemon is the one that counts: an older one is gone, or about to be.
                if let Some(before) = daemon.take() {
                    before.abort();
                }
                daemon = Some(tokio::spawn(converse(Arc::clone(&process), Channel::new(stream))));
            }
            _ = tick.tick() => {
                process.tick();
                let in_use = daemon.as_ref().is_some_and(|daemon| !daemon.is_finished());
                if in_use || !process.served().is_empty() {
                    lonely_since_ms = monotonic_ms();
                } else if monotonic_ms().saturating_sub(lonely_since_ms) > LONELY_MAX_MS {
                    return Ok(());
                }
            }
            () = process.quit.notified() => return Ok(()),
        }
    }
}

/// The socket is for its owner only by its mode; this says so again, of the very process that connected.
fn may_control(stream: &UnixStream, options: Options) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == options.owner)
}

/// Talks to one daemon until it hangs up.
async fn converse(process: Arc<Process>, channel: Channel) {
    if channel.send(&Greeting::ours(), &[]).await.is_err() {
        return;
    }
    let (answers, mut queue) = mpsc::channel(ANSWERS_MAX);
    let listening = async {
        let mut incoming = Incoming::default();
        // A message that cannot be understood ends the conversation: what follows it could not be trusted.
        while let Ok(Some((request, doors))) = channel.receive::<Request>(&mut incoming).await {
            handle(&process, request, doors, &answers).await;
        }
    };
    let speaking = async {
        loop {
            tokio::select! {
                said = queue.recv() => match said {
                    // What happened before a question is told before its answer.
                    Some(said)
                        if tell(&process.journal, &channel).await
                            && channel.send::<Said>(&said, &[]).await.is_ok() => {}
                    Some(_) | None => return,
                },
                () = process.journal.ready.notified() => {
                    if !tell(&process.journal, &channel).await {
                        return;
                    }
                }
            }
        }
    };
    // What was collected while nobody listened.
    process.journal.ready.notify_one();
    tokio::select! {
        () = listening => {}
        () = speaking => {}
    }
}

/// Tells the daemon all there is to tell; `false` when it is gone.
async fn tell(journal: &Journal, channel: &Channel) -> bool {
    loop {
        let entries = journal.take(ENTRIES_PER_MESSAGE);
        if entries.is_empty() {
            return true;
        }
        let message = Said::Log { entries };
        if channel.send(&message, &[]).await.is_err() {
            if let Said::Log { entries } = message {
                journal.give_back(entries);
            }
            return false;
        }
    }
}

async fn handle(
    process: &Arc<Process>,
    Request { number, ask }: Request,
    doors: Vec<OwnedFd>,
    answers: &mpsc::Sender<Said>,
) {
    let answer = match ask {
        Ask::Configure { limits, roots } => {
            *process.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
            process.shared.roots.set_extra(&roots);
            Answer::Done
        }
        Ask::Spool => set_spool(process, doors).await,
        Ask::Approvals { id } => {
            process.with(&id, |sandbox| Answer::Approvals { waiting: sandbox.intercept.approvals.list() })
        }
        Ask::Decide { id, number, yes } => process.with(&id, |sandbox| {
            let waited = sandbox.intercept.approvals.decide(number, yes);
            if waited { Answer::Done } else { Answer::NotWaiting }
        }),
        Ask::Budgets { id } => {
            process.with(&id, |sandbox| Answer::Budgets { budgets: sandbox.budgets_left() })
        }
        Ask::Attach { id, policy } => match process.attach(&id, policy, doors) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed { reason: error.to_string() },
        },
        Ask::SetPolicy { id, policy } => process.with(&id, |sandbox| {
            sandbox.set_policy(policy);
            Answer::Done
        }),
        Ask::Detach { id } => {
            process.detach(&id);
            Answer::Done
        }
        Ask::List => Answer::Sandboxes { ids: process.served().keys().cloned().collect() },
        Ask::Counters { id } => {
            process.journal.unfold(&id);
            process.with(&id, |sandbox| {
                let mut counters = sandbox.counters();
                counters.log_dropped += process.shared.audit.lost();
                Answer::Counters { counters }
            })
        }
        Ask::Trial { id, target } => {
            let sandbox = process.served().get(&id).map(|served| Arc::clone(&served.sandbox));
            let Some(sandbox) = sandbox else {
                let _ = answers.send(Said::Answer { number, answer: Answer::NotAttached }).await;
                return;
            };
            // It may take seconds, and others want to be heard meanwhile. It ends by itself: each step has a limit.
            let (shared, answers) = (Arc::clone(&process.shared), answers.clone());
            tokio::spawn(async move {
                let trial = proxy::trial(&shared, &sandbox, &target).await;
                let _ = answers.send(Said::Answer { number, answer: Answer::Trial { trial } }).await;
            });
            return;
        }
        Ask::Quit => {
            process.quit.notify_one();
            return;
        }
    };
    // A daemon that has gone does not want the answer.
    let _ = answers.send(Said::Answer { number, answer }).await;
}

async fn set_spool(process: &Process, mut descriptors: Vec<OwnedFd>) -> Answer {
    let set = match (descriptors.pop(), descriptors.is_empty()) {
        (Some(segment), true) => process.shared.audit.set(segment).await,
        _ => Err(io::Error::other("no segment came along")),
    };
    match set {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed { reason: error.to_string() },
    }
}

impl Process {
    fn attach(&self, id: &SandboxId, policy: Policy, doors: Vec<OwnedFd>) -> io::Result<()> {
        let [tcp, dns_udp, dns_tcp] =
            <[OwnedFd; 3]>::try_from(doors).map_err(|_| io::Error::other("the doors did not come along"))?;
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
        let doors = Doors([
            tokio::spawn(proxy::serve(Arc::clone(&self.shared), Arc::clone(&sandbox), tcp)).abort_handle(),
            tokio::spawn(server::serve_udp(Arc::clone(&sandbox), dns_udp)).abort_handle(),
            tokio::spawn(server::serve_tcp(Arc::clone(&sandbox), dns_tcp)).abort_handle(),
        ]);
        // The doors before are closed with the tasks that are dropped here.
        served.insert(id.clone(), Served { sandbox, doors });
        Ok(())
    }

    fn detach(&self, id: &SandboxId) {
        if let Some(Served { sandbox, doors }) = self.served().remove(id) {
            drop(doors);
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

    fn served(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listener(door: OwnedFd) -> io::Result<TcpListener> {
    let door = std::net::TcpListener::from(door);
    door.set_nonblocking(true)?;
    TcpListener::from_std(door)
}
