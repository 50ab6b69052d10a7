//! Restores a machine from a dump.
//!
//! ```text
//!   cgroups ─► CRIU in them: namespaces ─► network connected ─► processes ─► old connections ended, name set
//!           ─► frozen ─► locks set again, the agent receives its identity ─► frozen, exact limits
//! ```
//!
//! Invariant: a failure leaves nothing behind. Everything that a restore creates on the host is in the sandbox's
//! cgroups, beside them, and in its work directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use burrow_network::linux::{HostIds, hold_packets, random_owner, release_packets, reset_outside};
use burrow_network::{Attachment, Plug};
use tokio::runtime::Handle;

use super::compatibility::DumpOrigin;
use super::criu::{self, CriuError, CriuPlacement, RestoredMachine};
use super::hibernate::{Tool, UNABLE, WorkGroups, in_words};
use super::root::Root;
use super::shared_state::{Shared, step};
use super::work_dir::Note;
use super::{apparmor, precreated, trial, volumes};
use crate::cgroup::Group;
use crate::process::Process;
use crate::{IntroduceFn, Machine, Mount, RestoreOptions, RuntimeError};

/// An agent answers within milliseconds, on a busy host within seconds. A restored agent that does not is unusable.
const INTRODUCE_TIMEOUT: Duration = Duration::from_secs(30);

impl Shared {
    /// `handle` belongs to the async runtime on which `introduce` runs.
    pub(super) fn restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        let tool = self.tool.as_ref().ok_or_else(|| failed(UNABLE.to_owned()))?;
        let here = DumpOrigin::here(&tool.version).map_err(step("inspect this host", id))?;
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = DumpOrigin::read(&options.about).map_err(unfit)?;
        if let Some(reason) = about.misfit(&here) {
            return Err(unfit(reason));
        }
        let suspicion =
            about.suspicion(&here).map_or_else(String::new, |suspicion| format!(" ({suspicion})"));
        let failed = |reason: String| failed(format!("{reason}{suspicion}"));
        let restored = self.try_restore(id, options, tool, handle, &failed);
        if restored.is_err()
            && let Err(left) = self.destroy(id)
        {
            tracing::warn!(%id, error = &left as &dyn std::error::Error, "could not clean up after a failed restore");
        }
        restored
    }

    fn try_restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        tool: &Tool,
        handle: &Handle,
        failed: &dyn Fn(String) -> RuntimeError,
    ) -> Result<Machine, RuntimeError> {
        let RestoreOptions { root, images, about: _, attachment, limits, hostname, mounts, introduce, trial } =
            options;
        let Attachment::Later(plug) = attachment else {
            return Err(failed("a restored machine creates its own network namespace".to_owned()));
        };
        Root::open(&root).map_err(|error| failed(format!("could not {}: {}", error.step, error.source)))?;
        let Some(groups) = &self.groups else { return Err(failed(UNABLE.to_owned())) };
        let group = groups.group(id);
        let site = WorkGroups::of(&group).ok_or_else(|| failed(UNABLE.to_owned()))?;
        self.make_group(id, &group)?;
        group.set_limits_of_restore(&limits).map_err(step("set the limits", id))?;
        let ids = self.reserve_ids(id)?;
        site.aside.create().map_err(step("create a cgroup for CRIU", id))?;
        let work = self.work_dir.clear(id).map_err(step("create a directory for CRIU", id))?;
        let images = File::open(images).map_err(step("open the dump", id))?;
        if trial {
            trial::check_room(id, images.as_fd())?;
        }
        let machine_groups = MachineGroups::open(&group).map_err(step("open the cgroups", id))?;
        let restore = criu::RestoreOptions {
            root: &root,
            images: images.as_fd(),
            work: work.as_fd(),
            group: &site.group,
            aside: site.aside.path(),
            outside: &volumes::outside(&mounts),
            owner: random_owner(),
            ids: ids.as_ref(),
            profile: (self.profile && apparmor::is_ready()).then_some(apparmor::PROFILE),
            place: CriuPlacement {
                unified: machine_groups.unified.as_ref().map(AsFd::as_fd),
                tasks: &machine_groups.tasks(),
                run: self.work_dir.run(&root),
            },
        };
        let connections =
            criu::has_connections(images.as_fd()).map_err(step("read the connections of the dump", id))?;
        let mut connect_network = |pid| connect_network(pid, &*plug, connections);
        let mut settle = |pid| match trial {
            // Its packets stay blocked until it ends, so peers notice nothing, and volumes keep the access modes of the
            // machine itself.
            true => Ok(()),
            false => settle(pid, connections, &root, hostname.as_deref(), &mounts),
        };
        let introduces = introduce.is_some();
        let mut introduction = introduce;
        let mut introduce =
            |_| introduction.take().map_or(Ok(()), |introduce| run_introduction(introduce, handle));
        let introduce = introduces.then_some(&mut introduce as &mut dyn FnMut(u32) -> io::Result<()>);
        let restored = tool.criu.restore(&restore, &mut connect_network, &mut settle, introduce);
        let RestoredMachine { pid, named } = restored.map_err(|error| {
            let reason = why(&error, &group, limits);
            if error.may_pass() {
                return RuntimeError::RestoreCut { id: id.clone(), reason };
            }
            self.try_again(id, images.as_fd());
            failed(reason)
        })?;
        group.set_limits(&limits).map_err(step("set the limits", id))?;
        self.tidy_up(id, &site);
        if named {
            let noted = self.work_dir.note(id, Note::Named, &root);
            noted.map_err(step("write to CRIU's directory", id))?;
        }
        if trial {
            self.tried.add(images.as_fd()).map_err(step("read the dump", id))?;
        }
        let machine = Process::describe_pid(pid).map_err(step("check the machine", id))?;
        machine.ok_or_else(|| failed("the first process ended at once".to_owned()))
    }

    /// Ids for a new machine, until it is destroyed; `None` if all machines have the ids that are on disk.
    fn reserve_ids(&self, id: &SandboxId) -> Result<Option<HostIds>, RuntimeError> {
        if !self.own_ids {
            return Ok(None);
        }
        let ids = HostIds::reserve().map_err(|error| step(error.step, id)(error.source))?;
        self.ranges.keep(id, &ids.range);
        Ok(Some(ids))
    }
}

/// Gives the machine its network interface, before it has any process.
fn connect_network(pid: u32, plug: &dyn Plug, connections: bool) -> io::Result<()> {
    let namespace = net_of(pid)?;
    plug.plug(namespace.as_fd())?;
    // Until all sockets exist: packets from one end of a connection would be answered with a reset.
    if connections { hold_packets(namespace.as_fd()) } else { Ok(()) }
}

/// Called when all processes exist, and are frozen.
fn settle(
    pid: u32,
    connections: bool,
    root: &Path,
    hostname: Option<&str>,
    mounts: &[Mount],
) -> io::Result<()> {
    let namespace = net_of(pid)?;
    if connections {
        release_packets(namespace.as_fd())?;
    }
    reset_outside(namespace.as_fd())?;
    volumes::set_modes(pid, mounts)?;
    hostname.map_or(Ok(()), |hostname| precreated::rename_paused(pid, root, hostname))
}

/// Why a restore failed. CRIU only knows that a process was killed.
fn why(error: &CriuError, group: &Group<'_>, limits: Limits) -> String {
    let reason = in_words(error);
    match group.oom_kills() {
        Ok(1..) => {
            let limit = limits.ram_mib;
            format!("{reason}; the RAM limit of {limit} MiB is too small, or the host is out of memory")
        }
        Ok(0) | Err(_) => reason,
    }
}

/// Descriptors with which CRIU, and so the machine, joins its cgroups.
struct MachineGroups {
    unified: Option<File>,
    tasks: Vec<File>,
}

impl MachineGroups {
    fn open(group: &Group<'_>) -> io::Result<Self> {
        Ok(Self { unified: group.unified()?, tasks: group.tasks()? })
    }

    fn tasks(&self) -> Vec<BorrowedFd<'_>> {
        self.tasks.iter().map(AsFd::as_fd).collect()
    }
}

fn net_of(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/ns/net"))
}

fn run_introduction(introduce: IntroduceFn, handle: &Handle) -> io::Result<()> {
    handle.block_on(async {
        match tokio::time::timeout(INTRODUCE_TIMEOUT, introduce()).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    })
}
