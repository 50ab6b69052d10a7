//! The agent as the first process of a microVM.
//!
//! ```text
//!   kernel ──"vm"──► init: modules, disk, switch of root ──► channel: boot ──► settle, network ──► agent, as anywhere
//!                                                                │
//!                                       hold, settle, release ◄──┘   for as long as it lives
//! ```
//!
//! In a container the host does all this from outside. Here the host touches nothing of the machine's: what it wants is
//! said over the channel, and a machine that does not listen harms itself.
//!
//! Whatever runs besides the agent is in one control group, which can be stopped as a whole: a copy of the machine must
//! not run before it knows that it is one.

mod apply;
mod channel;
mod connections;
mod etc;
mod group;
mod init;
mod netlink;
mod network;
mod pieces;
mod reader;
mod rehearse;
mod settle;

use std::path::Path;
use std::rc::Rc;

use super::Agent;
use crate::protocol::{Boot, BootReport, VmBoot, VmRequest};
use channel::Channel;
pub(super) use group::Group;

/// What is being done with a message that makes no sense.
const READ: &str = "read the driver's message";

/// What went wrong, and at what.
#[derive(Debug)]
pub(super) struct Failure {
    step: String,
    message: String,
}

/// A machine whose disk is mounted and which hears its host.
pub(super) struct Machine {
    channel: Channel,
    group: Group,
}

/// The way back to whoever asked for the boot.
pub(super) struct Asked {
    channel: Channel,
    id: u64,
}

/// Makes of a bare kernel what an agent can run in. Never returns without: nobody could be told.
pub(super) fn prepare() -> Machine {
    let prepared = init::prepare().and_then(|()| {
        let channel = Channel::open()?;
        Ok(Machine { channel, group: Group::make()? })
    });
    match prepared {
        Ok(machine) => machine,
        Err(failure) => {
            init::tell(&format!("could not {}: {}", failure.step, failure.message));
            reboot()
        }
    }
}

/// Reads disks for the host, and ends the machine.
pub(super) fn read_disks() -> ! {
    if let Err(failure) = reader::run() {
        init::tell(&format!("could not {}: {}", failure.step, failure.message));
    }
    reboot()
}

/// Ends the machine. Its file systems are at rest, as far as they can be.
pub(super) fn reboot() -> ! {
    init::reboot()
}

impl Machine {
    /// Waits for the boot message, and does what of it is the machine's.
    pub(super) async fn boot(self) -> Result<(Boot, Group, Asked), (Failure, Asked)> {
        let Self { mut channel, group } = self;
        let (id, boot) = loop {
            let message = channel.next().await;
            match message.request {
                VmRequest::Boot(boot) => break (message.id, boot),
                // Of a machine that is not up yet nothing else can be asked; it is at rest already.
                VmRequest::Hold | VmRequest::Release { .. } | VmRequest::Sync => {
                    channel.answer(message.id, BootReport::Ready).await;
                }
                VmRequest::Grow { bytes } => {
                    let grown = settle::grow(bytes).await;
                    channel.answer(message.id, reported(grown)).await;
                }
                VmRequest::Rehearse => {
                    let rehearsed = rehearse::rehearse().await;
                    channel.answer(message.id, reported(rehearsed)).await;
                }
                VmRequest::Nonsense { message: why } => {
                    channel.answer(message.id, Failure::new(READ, &why).report()).await;
                }
                VmRequest::Settle(_) | VmRequest::Apply => {
                    let failure = Failure::new("do as told", "the machine is not up yet");
                    channel.answer(message.id, failure.report()).await;
                }
            }
        };
        let VmBoot { settle, network, boot } = *boot;
        let done = settle::settle(&group, &settle).and_then(|()| {
            network::set_up(&network).map_err(|error| Failure::of("set up the network", &error))?;
            if let Some(hostname) = &settle.hostname {
                etc::name(hostname, network.gateway_v4);
            }
            Ok(())
        });
        let asked = Asked { channel, id };
        match done {
            Ok(()) => Ok((boot, group, asked)),
            Err(failure) => Err((failure, asked)),
        }
    }
}

impl Asked {
    pub(super) async fn report(&mut self, report: BootReport) {
        self.channel.answer(self.id, report).await;
    }

    /// Does what the driver asks for, for ever.
    pub(super) async fn serve(self, agent: Rc<Agent>) {
        let mut channel = self.channel;
        loop {
            let message = channel.next().await;
            let Some(group) = agent.group.as_ref() else { return };
            let done = match message.request {
                VmRequest::Hold => match group.hold().await {
                    Ok(()) => settle::sync().await,
                    Err(failure) => Err(failure),
                },
                VmRequest::Sync => settle::sync().await,
                VmRequest::Release { unix_ns } => {
                    unix_ns.map_or(Ok(()), settle::set_clock).and_then(|()| group.release())
                }
                VmRequest::Settle(settle) => settle::settle(group, &settle),
                VmRequest::Grow { bytes } => settle::grow(bytes).await,
                VmRequest::Apply => change_files(group, channel.take_stream()).await,
                VmRequest::Nonsense { message } => Err(Failure::new(READ, &message)),
                VmRequest::Boot(_) | VmRequest::Rehearse => {
                    Err(Failure::new("boot", "the machine is up already"))
                }
            };
            channel.answer(message.id, reported(done)).await;
        }
    }
}

/// Changes files as the host says, while nobody else runs who could see it half done.
async fn change_files(group: &Group, stream: Option<channel::Stream>) -> Result<(), Failure> {
    let Some(mut stream) = stream.filter(|_| group.is_held()) else {
        return Err(Failure::new("change files", "the machine is not held"));
    };
    let done = tokio::task::spawn_blocking(move || apply::apply(Path::new("/"), &mut stream)).await;
    done.unwrap_or_else(|_| Err(Failure::new("change files", "the work ended without a result")))
}

fn reported(done: Result<(), Failure>) -> BootReport {
    done.map_or_else(Failure::report, |()| BootReport::Ready)
}

impl Failure {
    fn new(step: &str, message: &str) -> Self {
        Self { step: step.to_owned(), message: message.to_owned() }
    }

    fn of(step: &str, error: &dyn std::error::Error) -> Self {
        Self::new(step, &error.to_string())
    }

    pub(super) fn report(self) -> BootReport {
        BootReport::Failed { step: self.step, message: self.message }
    }
}

/// Names the step of an error, as in `mount(…).at("mount `/proc`")?`.
trait At<T> {
    fn at(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<std::io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(step, &error.into()))
    }
}
