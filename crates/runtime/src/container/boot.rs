//! Boots a machine, until its agent listens.
//!
//! The blocking part, [`Shared::start`], ends when PID 1 exists. The rest is communication over the boot socket, which
//! needs no thread to wait. Everything that a failure leaves behind is in the sandbox's cgroups, where `destroy` finds
//! it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use burrow_model::{Limits, MIB, SandboxId};
use burrow_network::Attachment;
use burrow_network::linux::HostIds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::criu;
use super::hibernate::NAMES_AWAY;
use super::root::{Root, RootError};
use super::shared_state::{Shared, step};
use super::{apparmor, volumes};
use crate::cgroup::Group;
use crate::launcher::{LaunchError, LaunchedProcess, Plan};
use crate::process::Process;
use crate::report::Report;
use crate::{BootOptions, Machine, Mount, RuntimeError};

/// A machine boots within milliseconds. Ten seconds allow for a host that swaps.
const BOOT_TIMEOUT: Duration = Duration::from_secs(10);

/// A report is one line.
const REPORT_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of times that a dead launcher is replaced within one boot.
const LAUNCH_ATTEMPTS: u32 = 2;

/// A machine whose agent has not reported yet.
pub(super) struct StartedMachine {
    /// `None`: it has ended already.
    pub(super) machine: Option<Machine>,
    pub(super) socket: UnixStream,
}

/// The part of [`crate::BootOptions`] that the start needs.
pub(super) struct Start {
    pub(super) id: SandboxId,
    pub(super) root: PathBuf,
    pub(super) user: OwnedFd,
    pub(super) net: OwnedFd,
    pub(super) ids: Option<HostIds>,
    pub(super) hostname: String,
    pub(super) limits: Limits,
    pub(super) mounts: Vec<Mount>,
}

impl Start {
    /// Checks the options, and separates the document.
    pub(super) fn of(id: &SandboxId, options: BootOptions) -> Result<(Self, Vec<u8>), RuntimeError> {
        let BootOptions { root, attachment, hostname, limits, boot_document, mounts, template: _ } = options;
        match attachment {
            Attachment::Namespaces { user, net, ids } => {
                Ok((Self { id: id.clone(), root, user, net, ids, hostname, limits, mounts }, boot_document))
            }
            Attachment::Later(_) | Attachment::None => {
                let message = "a container needs a user and a network namespace".to_owned();
                Err(RuntimeError::Boot { id: id.clone(), step: "plug in the network".to_owned(), message })
            }
        }
    }
}

impl Shared {
    /// The part of a boot that does not wait for the agent.
    pub(super) fn start(&self, start: &Start) -> Result<StartedMachine, RuntimeError> {
        let id = &start.id;
        let Some(groups) = &self.groups else {
            let message = "this host has no usable cgroups".to_owned();
            return Err(RuntimeError::Boot {
                id: id.clone(),
                step: "create the cgroups".to_owned(),
                message,
            });
        };
        let group = groups.group(id);
        for attempt in 1..=LAUNCH_ATTEMPTS {
            match self.try_start(start, &group) {
                Ok(started) => return Ok(started),
                Err(RuntimeError::Launcher { source }) if attempt < LAUNCH_ATTEMPTS => {
                    tracing::warn!(%id, %source, "the launcher has ended, starting another");
                }
                Err(error) => {
                    // `destroy` removes the remains, and the caller repeats it if it must be certain.
                    let _ = self.destroy(id);
                    return Err(error);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Creates empty cgroups. Existing ones belong to an interrupted boot, which must not run while its files are
    /// prepared.
    pub(super) fn make_group(&self, id: &SandboxId, group: &Group<'_>) -> Result<(), RuntimeError> {
        match group.create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.destroy(id)?;
                group.create().map_err(step("create the cgroups", id))
            }
            other => other.map_err(step("create the cgroups", id)),
        }
    }

    fn prepare(&self, start: &Start) -> Result<Root, RuntimeError> {
        let at = |error: RootError| step(error.step, &start.id)(error.source);
        let root = Root::open(&start.root).map_err(at)?;
        // The files may belong to a dump that is discarded now. If the sandbox prevents the removal, it keeps these
        // names.
        if let Err(error) = criu::take_away(&start.root) {
            tracing::info!(id = %start.id, %error, "could not {NAMES_AWAY}");
        }
        root.prepare(&self.guest_binary, u64::from(start.limits.ram_mib) * MIB).map_err(at)?;
        root.name(&start.hostname).map_err(at)?;
        Ok(root)
    }

    fn try_start(&self, start: &Start, group: &Group<'_>) -> Result<StartedMachine, RuntimeError> {
        let id = &start.id;
        self.make_group(id, group)?;
        if let Some(ids) = &start.ids {
            self.ranges.keep(id, &ids.range);
        }
        let root = self.prepare(start)?;
        group.set_limits(&start.limits).map_err(step("set the limits", id))?;
        let (ours, theirs) = UnixStream::pair().map_err(step("create the boot socket", id))?;
        let unified = group.unified().map_err(step("open the cgroup", id))?;
        let tasks = group.tasks().map_err(step("open the cgroups", id))?;
        let mut descriptors = vec![start.user.as_fd(), start.net.as_fd(), theirs.as_fd()];
        descriptors.extend(start.ids.iter().map(|ids| ids.mounts.as_fd()));
        descriptors.extend(unified.iter().map(AsFd::as_fd));
        descriptors.extend(tasks.iter().map(AsFd::as_fd));
        let plan = Plan {
            root: root.path().to_owned(),
            root_identity: root.identity().map_err(step("inspect the root directory", id))?,
            hostname: start.hostname.clone(),
            // Counted against the RAM limit in any case; half of it, as the kernel's default.
            shm_bytes: u64::from(start.limits.ram_mib) * MIB / 2,
            own_ids: start.ids.is_some(),
            profile: self.profile && apparmor::is_ready(),
            unified: unified.is_some(),
            mounts: volumes::plan(&root, &start.mounts)
                .map_err(step("create the volumes' mount points", id))?,
        };
        match self.launcher.launch(plan, &descriptors) {
            Ok(LaunchedProcess { pid, pidfd }) => {
                let machine = Process::describe(pid, pidfd).map_err(step("check the machine", id))?;
                Ok(StartedMachine { machine, socket: ours })
            }
            Err(LaunchError::Refused(failure)) => Err(RuntimeError::Boot {
                id: id.clone(),
                message: failure.source().to_string(),
                step: failure.step,
            }),
            Err(LaunchError::Gone(source)) => Err(RuntimeError::Launcher { source }),
        }
    }
}

/// Sends the agent its document and waits until it reports that it listens.
pub(super) async fn await_report(
    id: &SandboxId,
    socket: UnixStream,
    document: &[u8],
) -> Result<(), RuntimeError> {
    let talk = async {
        socket.set_nonblocking(true)?;
        let mut socket = tokio::net::UnixStream::from_std(socket)?;
        // A machine that has ended does not read any more; its report, sent before, contains the reason.
        let _ = socket.write_all(document).await;
        let _ = socket.shutdown().await;
        let mut bytes = Vec::new();
        let mut chunk = [0; 1024];
        while bytes.len() < REPORT_BYTES_MAX {
            match socket.read(&mut chunk).await {
                // An end with unread bytes is a reset.
                Ok(0) | Err(_) => break,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            }
            if let Ok(report) = serde_json::from_slice::<Report>(&bytes) {
                return Ok(Some(report));
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(BOOT_TIMEOUT, talk).await {
        Err(_) => Err(RuntimeError::BootTimeout { id: id.clone(), seconds: BOOT_TIMEOUT.as_secs() }),
        Ok(Err(source)) => Err(step("read from the guest agent", id)(source)),
        Ok(Ok(Some(Report::Ready))) => Ok(()),
        Ok(Ok(Some(Report::Failed { step, message }))) => {
            Err(RuntimeError::Boot { id: id.clone(), step, message })
        }
        Ok(Ok(None)) => Err(ended_early(id)),
    }
}

pub(super) fn ended_early(id: &SandboxId) -> RuntimeError {
    let message = "the machine ended without a report".to_owned();
    RuntimeError::Boot { id: id.clone(), step: "start the guest agent".to_owned(), message }
}
