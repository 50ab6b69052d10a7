//! The agent as the first process of a microVM.
//!
//! ```text
//!   kernel ──"vm"──► init: modules, disk, switch of root ──► channel: boot ──► settle, network ──► agent, as anywhere
//!                                                                │
//!                                       hold, settle, release ◄──┘   for as long as it lives
//! ```
//!
//! For a container the host does all this from outside. Here the host touches nothing inside the machine: it sends
//! requests over the channel, and a machine that ignores them harms only itself.
//!
//! All processes except the agent are in one control group, which can be frozen as a whole: a copy of the machine
//! must not run before it knows that it is a copy.

mod apply;
mod channel;
mod connections;
mod etc;
mod failure;
mod group;
mod init;
mod netlink;
mod network;
mod pieces;
mod reader;
mod settle;
mod warm_up;

use std::path::Path;
use std::rc::Rc;

use super::Agent;
use crate::protocol::{Boot, BootReport, VmBoot, VmRequest};
use channel::Channel;
use failure::Failure;
pub(super) use group::Group;

/// The step named in errors about invalid messages.
const READ: &str = "read the driver's message";

/// A machine whose disk is mounted and whose channel is open.
pub(super) struct Machine {
    channel: Channel,
    group: Group,
}

/// The connection to the driver that requested the boot, for the report and for later requests.
pub(super) struct DriverConnection {
    channel: Channel,
    id: u64,
}

/// Prepares a bare kernel for running an agent. On failure it ends the machine, since no host is listening yet.
pub(super) fn prepare() -> Machine {
    let prepared = init::prepare().and_then(|()| {
        let channel = Channel::open()?;
        Ok(Machine { channel, group: Group::make()? })
    });
    match prepared {
        Ok(machine) => machine,
        Err(failure) => {
            init::tell(&format!("could not {failure}"));
            reboot()
        }
    }
}

/// Reads disks for the host, and ends the machine.
pub(super) fn read_disks() -> ! {
    if let Err(failure) = reader::run() {
        init::tell(&format!("could not {failure}"));
    }
    reboot()
}

/// Ends the machine, after its file systems were synced as far as possible.
pub(super) fn reboot() -> ! {
    init::reboot()
}

impl Machine {
    /// Waits for the boot message, and sets up the machine accordingly.
    pub(super) async fn boot(self) -> Result<(Boot, Group, DriverConnection), (Failure, DriverConnection)> {
        let Self { mut channel, group } = self;
        let (id, boot) = loop {
            let message = channel.next().await;
            match message.request {
                VmRequest::Boot(boot) => break (message.id, boot),
                // No other request is possible before the boot; no process is running that could be frozen.
                VmRequest::Hold | VmRequest::Release { .. } | VmRequest::Sync => {
                    channel.answer(message.id, BootReport::Ready).await;
                }
                VmRequest::Grow { bytes } => {
                    let grown = settle::grow(bytes).await;
                    channel.answer(message.id, reported(grown)).await;
                }
                VmRequest::WarmUp => {
                    let warmed_up = warm_up::warm_up().await;
                    channel.answer(message.id, reported(warmed_up)).await;
                }
                VmRequest::Invalid { message: why } => {
                    channel.answer(message.id, Failure::new(READ, &why).report()).await;
                }
                VmRequest::Settle(_) | VmRequest::Apply => {
                    let failure = Failure::new("handle the request", "the machine has not booted yet");
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
        let driver = DriverConnection { channel, id };
        match done {
            Ok(()) => Ok((boot, group, driver)),
            Err(failure) => Err((failure, driver)),
        }
    }
}

impl DriverConnection {
    pub(super) async fn report(&mut self, report: BootReport) {
        self.channel.answer(self.id, report).await;
    }

    /// Carries out the driver's requests until the machine ends.
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
                VmRequest::Invalid { message } => Err(Failure::new(READ, &message)),
                VmRequest::Boot(_) | VmRequest::WarmUp => {
                    Err(Failure::new("boot", "the machine has already booted"))
                }
            };
            channel.answer(message.id, reported(done)).await;
        }
    }
}

/// Applies changes to files on behalf of the host, while no other process runs that could see intermediate states.
async fn change_files(group: &Group, stream: Option<channel::Stream>) -> Result<(), Failure> {
    let Some(mut stream) = stream.filter(|_| group.is_held()) else {
        return Err(Failure::new("change files", "the processes are not frozen"));
    };
    let done = tokio::task::spawn_blocking(move || apply::apply(Path::new("/"), &mut stream)).await;
    done.unwrap_or_else(|_| Err(Failure::new("change files", "the work ended without a result")))
}

fn reported(done: Result<(), Failure>) -> BootReport {
    done.map_or_else(Failure::report, |()| BootReport::Ready)
}
