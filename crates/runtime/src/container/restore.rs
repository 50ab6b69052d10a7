//! From processes on disk to a machine.
//!
//! ```text
//!   cgroups ─► CRIU in them: namespaces ─► network plugged ─► processes ─► old connections ended, name given
//!           ─► frozen ─► locks set again, the agent told who it is ─► frozen, limits exact
//! ```
//!
//! Invariant: what fails leaves nothing. All that a restore makes on the host is in the sandbox's cgroups, beside them,
//! and in its work directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use burrow_network::Attachment;
use burrow_network::linux::{HostIds, hold_packets, random_owner, release_packets, reset_outside};
use tokio::runtime::Handle;

use super::about::About;
use super::criu::{self, Place, Restored};
use super::hibernate::{Site, Tool, UNABLE, in_words};
use super::root::Root;
use super::workshop::Note;
use super::{Shared, ahead, step, volumes};
use crate::cgroup::Group;
use crate::process::Process;
use crate::{Introduce, Machine, RestoreOptions, RuntimeError};

/// CRIU and its helpers count as processes of the machine until they are done.
const PIDS_SLACK: u32 = 8;

/// An agent answers within milliseconds, on a busy host within seconds. A restored one that does not is of no use.
const INTRODUCE_TIMEOUT: Duration = Duration::from_secs(30);

impl Shared {
    /// `handle` is of the async runtime that `introduce` runs on.
    pub(super) fn restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        let tool = self.tool.as_ref().ok_or_else(|| failed(UNABLE.to_owned()))?;
        let here = About::here(&tool.version).map_err(step("look at this host", id))?;
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = About::read(&options.about).map_err(unfit)?;
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
            tracing::warn!(%id, error = &left as &dyn std::error::Error, "a failed restore left something behind");
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
        let RestoreOptions { root, images, about: _, attachment, limits, hostname, mounts, introduce } =
            options;
        let Attachment::Later(plug) = attachment else {
            return Err(failed("a restored machine makes its network namespace itself".to_owned()));
        };
        Root::open(&root).map_err(|error| failed(format!("could not {}: {}", error.step, error.source)))?;
        let Some(groups) = &self.groups else { return Err(failed(UNABLE.to_owned())) };
        let group = groups.group(id);
        let site = Site::of(&group).ok_or_else(|| failed(UNABLE.to_owned()))?;
        self.make_group(id, &group)?;
        let roomier = Limits { pids: limits.pids.saturating_add(PIDS_SLACK), ..limits };
        group.set_limits(&roomier).map_err(step("set the limits", id))?;
        let ids = self.reserve_ids(id)?;
        site.aside.create().map_err(step("make a cgroup for CRIU", id))?;
        let work = self.workshop.clear(id).map_err(step("make a directory for CRIU", id))?;
        let images = File::open(images).map_err(step("open the dump", id))?;
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
            place: Place {
                unified: machine_groups.unified.as_ref().map(AsFd::as_fd),
                tasks: &machine_groups.tasks(),
                run: self.workshop.run(&root),
            },
        };
        let connections = criu::has_connections(images.as_fd()).map_err(step("look for connections", id))?;
        let mut wire = |pid| {
            let namespace = net_of(pid)?;
            plug.plug(namespace.as_fd())?;
            // Until all sockets are there: what one end of a connection sends would be answered with a reset.
            if connections { hold_packets(namespace.as_fd()) } else { Ok(()) }
        };
        let mut settle = |pid| {
            let namespace = net_of(pid)?;
            if connections {
                release_packets(namespace.as_fd())?;
            }
            reset_outside(namespace.as_fd())?;
            volumes::set_modes(pid, &mounts)?;
            hostname.as_deref().map_or(Ok(()), |hostname| ahead::rename_still(pid, &root, hostname))
        };
        let introduces = introduce.is_some();
        let mut introduction = introduce;
        let mut introduce = |_| introduction.take().map_or(Ok(()), |introduce| make_known(introduce, handle));
        let introduce = introduces.then_some(&mut introduce as &mut dyn FnMut(u32) -> io::Result<()>);
        let restored = tool.criu.restore(&restore, &mut wire, &mut settle, introduce);
        let Restored { pid, named } = restored.map_err(|error| {
            let reason = in_words(&error);
            // CRIU knows only that something was killed.
            match group.oom_kills() {
                Ok(1..) => failed(format!("{reason}; its RAM limit of {} MiB is too small", limits.ram_mib)),
                Ok(0) | Err(_) if error.may_pass() => RuntimeError::RestoreCut { id: id.clone(), reason },
                Ok(0) | Err(_) => failed(reason),
            }
        })?;
        group.set_limits(&limits).map_err(step("set the limits", id))?;
        self.tidy_up(id, &site);
        if named {
            let noted = self.workshop.note(id, Note::Named, &root);
            noted.map_err(step("write to CRIU's directory", id))?;
        }
        let machine = Process::describe_pid(pid).map_err(step("look at the machine", id))?;
        machine.ok_or_else(|| failed("its first process ended at once".to_owned()))
    }

    /// Ids for a machine to be, until it is destroyed; `None` where all have those that are on disk.
    fn reserve_ids(&self, id: &SandboxId) -> Result<Option<HostIds>, RuntimeError> {
        if !self.own_ids {
            return Ok(None);
        }
        let ids = HostIds::reserve().map_err(|error| step(error.step, id)(error.source))?;
        self.ranges.keep(id, &ids.range);
        Ok(Some(ids))
    }
}

/// Descriptors by which CRIU, and so the machine, is put into its cgroups.
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

fn make_known(introduce: Introduce, handle: &Handle) -> io::Result<()> {
    handle.block_on(async {
        match tokio::time::timeout(INTRODUCE_TIMEOUT, introduce()).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    })
}
