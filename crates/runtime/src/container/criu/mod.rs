//! Dumps and restores the process state of machines with CRIU.
//!
//! ```text
//! dump     freeze ─► pages, files, sockets to images ─► still frozen
//! restore  namespaces ─► setup-namespaces: the network ─► processes ─► pre-resume: freeze ─► locks ─► still frozen
//! ```
//!
//! CRIU is a separate program, controlled over a socket ([`rpc`]), one process per operation ([`spawn`]). The steps
//! that it does not perform are done here while the processes are stopped ([`hold`]): the locks that it loses are set
//! again ([`locks`]), and interrupted sleeps continue ([`sleeps`]).
//!
//! All functions block, and must stay on one thread: call them on a thread that may block.
//!
//! A dump is killed only if it hangs: CRIU's code runs inside the processes meanwhile, and if CRIU dies at the wrong
//! moment, a process ends with it ([`parasite`]). If CRIU was killed, its remains are removed and the dump is retried
//! once. A restore may be killed: everything that it created is in one cgroup.

mod dumpable;
mod error;
mod fault_origin;
mod group;
mod hold;
mod host_mount;
mod image;
mod inspect;
mod kinds;
mod labels;
mod links;
mod locks;
mod namespace_owner;
mod parasite;
mod process_descriptors;
mod protobuf;
mod reason;
mod renamed_sockets;
mod replaced_images;
mod rpc;
mod sleeps;
mod sockets;
mod spawn;
mod terminals;
mod timers;
mod trace;
mod userns;
mod volume_files;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use burrow_network::linux::HostIds;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat, unlinkat};

pub(crate) use dumpable::{Adjust, Adjustment, AppliedChanges, adjust};
pub(crate) use error::CriuError;
use error::Operation;
use group::Group;
use hold::HeldThreads;
pub(crate) use host_mount::HostMount;
pub(crate) use inspect::{Obstacle, obstacles, ram_bytes};
pub(crate) use kinds::kinds;
pub(crate) use links::take_away;
use replaced_images::ReplacedImages;
use rpc::{Common, Conversation, HangPolicy, Point};
pub(crate) use spawn::{CriuPlacement, missing_helper};
use spawn::{ExitStatus, Files, Process};
use trace::OnTracerExit;

const DUMP_LOG: &str = "dump.log";
const RESTORE_LOG: &str = "restore.log";
/// A file in every dump.
const INVENTORY: &str = "inventory.img";

/// A restore without output or CPU use for this long hangs, and is killed. The longest step, reading gigabytes of pages, has no
/// output, but uses CPU time. The restore is retried once, and both attempts together end within a minute.
const RESTORE_IDLE_MAX: Duration = Duration::from_secs(25);

/// A dump without output or CPU use for this long is considered stopped, and is sent `SIGCONT`: the processes are
/// frozen until it ends. A CRIU that waits for a disk gets more time.
const DUMP_IDLE_MAX: Duration = Duration::from_secs(30);
/// If `SIGCONT` has no effect within this time, it is killed.
const DUMP_CONTINUED_MAX: Duration = Duration::from_secs(5);

/// If a step of ours fails, CRIU gives up by itself within milliseconds; after this time it is killed.
const GIVE_UP_MAX: Duration = Duration::from_secs(1);

/// The names of the images of TCP connections start with this.
const CONNECTIONS: &[u8] = b"tcp-stream-";

/// A zombie disappears when its parent has run for a moment.
const PASSING_ATTEMPTS: u32 = 100;
const PASSING_PAUSE: Duration = Duration::from_millis(5);

/// CRIU's message if a process got a netlink message during the dump, after our check. The kernel sends messages about
/// changes of the network, a few at a time, in the seconds after a machine was connected.
const UNREAD_NETLINK: &str = "The socket has data to read";
/// CRIU's message about a Unix connection with data that its server has not accepted; the socket's inode follows. A
/// running server accepts it.
const NOT_ACCEPTED: &str = "Non-empty write queue on an in-flight socket ";
/// Attempts at a dump that fails with one of these messages.
const PASSING_DUMPS: u32 = 10;

/// How often a dump whose CRIU was killed, by us or by others, is retried.
const KILLS_MAX: u32 = 1;

/// CRIU on this host.
#[derive(Clone, Debug)]
pub(crate) struct Criu {
    pub program: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpOptions<'a> {
    /// The machine's first process.
    pub pid: u32,
    /// The `/` of that process.
    pub root: &'a Path,
    /// An empty directory for the images.
    pub images: BorrowedFd<'a>,
    /// A directory for CRIU's other files.
    pub work: BorrowedFd<'a>,
    /// The v2 cgroup of the machine.
    pub group: &'a Path,
    /// The v2 cgroup that CRIU runs in.
    pub aside: &'a Path,
    /// The mounts that CRIU does not dump, in CRIU's syntax.
    pub external: &'a [String],
    /// The same mounts. Files in them that were deleted while they were open cannot be restored.
    pub outside: &'a [HostMount],
    /// Whether it is frozen already; then it also stays frozen when the dump fails.
    pub was_frozen: bool,
    /// Where CRIU runs: not in the machine's own cgroups.
    pub place: CriuPlacement<'a>,
}

/// A machine that was dumped.
#[derive(Debug)]
pub(crate) struct DumpedMachine {
    /// For how long it has been frozen.
    pub frozen_for: Duration,
    /// Whether deleted files were given names, which [`take_away`] must remove before the machine resumes.
    pub named: bool,
}

/// A machine that was restored, and is frozen.
#[derive(Debug)]
pub(crate) struct RestoredMachine {
    /// Its first process.
    pub pid: u32,
    /// As in [`DumpedMachine`].
    pub named: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoreOptions<'a> {
    /// The future `/`: the files as they were at the dump.
    pub root: &'a Path,
    pub images: BorrowedFd<'a>,
    /// A directory for CRIU's files; several restores of one dump have one each.
    pub work: BorrowedFd<'a>,
    /// The v2 cgroup of the new machine, which is empty.
    pub group: &'a Path,
    /// A v2 cgroup to which CRIU itself is moved at the end, so that the machine's can be frozen.
    pub aside: &'a Path,
    /// Directories of the host that are mounted in the machine.
    pub outside: &'a [HostMount],
    /// The owner of the machine's user namespace: a uid that nothing else has.
    pub owner: u32,
    /// The ids of the machine on this host; `None`: those that its files have on disk.
    pub ids: Option<&'a HostIds>,
    /// The AppArmor profile of its processes.
    pub profile: Option<&'a str>,
    /// Where CRIU starts: in the cgroups of the machine.
    pub place: CriuPlacement<'a>,
}

impl Criu {
    /// Dumps the state of all processes of a machine, and leaves them frozen. A failure leaves them in their earlier
    /// state.
    pub(crate) fn dump(
        &self,
        options: &DumpOptions<'_>,
        adjust: &Adjust<'_>,
    ) -> Result<DumpedMachine, CriuError> {
        let mut kills = 0;
        for _ in 1..PASSING_DUMPS {
            match self.dump_once(options, adjust) {
                Err(CriuError::Refused { reason, .. })
                    if [UNREAD_NETLINK, NOT_ACCEPTED].iter().any(|known| reason.contains(known)) => {}
                Err(error @ (CriuError::Killed { .. } | CriuError::Timeout { .. })) if kills < KILLS_MAX => {
                    kills += 1;
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "retrying a dump");
                    clean(options, adjust)?;
                }
                Err(error @ (CriuError::Killed { .. } | CriuError::Timeout { .. })) => {
                    clean(options, adjust)?;
                    return Err(error);
                }
                outcome => return outcome,
            }
            let at = |source| CriuError::Step {
                operation: Operation::Dump,
                step: "remove the incomplete dump",
                source,
            };
            empty(options.images).map_err(at)?;
        }
        self.dump_once(options, adjust).map_err(|error| named(options.group, error))
    }

    fn dump_once(&self, options: &DumpOptions<'_>, adjust: &Adjust<'_>) -> Result<DumpedMachine, CriuError> {
        let operation = Operation::Dump;
        let at = |step| move |source| CriuError::Step { operation, step, source };
        let found = obstacles(options.group).map_err(at("check the processes"))?;
        if found.iter().any(|obstacle| !obstacle.reason.passes()) {
            return Err(CriuError::Obstacles { obstacles: found });
        }
        let (process, socket) = Process::start(&self.program, options.place, None)?;
        let (criu, group) = (process.pid, Group::at(options.group));
        let mut since = Instant::now();
        let mut opened = None;
        let mut links = Vec::new();
        let mut act = |point, _| match point {
            Point::PreDump => {
                let become_owner = |owner| namespace_owner::become_owner(criu, owner);
                namespace_owner::of_machine(options.pid)
                    .and_then(become_owner)
                    .map_err(at("become the machine's owner"))?;
                since = freeze_without_obstacles(&group, options.was_frozen)?;
                // From here on the machine is frozen, and must be resumed if anything fails. The first process must be
                // closed again, even if it is unknown how far this step got.
                opened = Some(AppliedChanges::ALL);
                opened = Some(adjust(Adjustment::Open).map_err(at("open the first process"))?);
                Ok(())
            }
            Point::PostDump => {
                renamed_sockets::write_present(options.images, &group).map_err(at("name renamed sockets"))?;
                links::refuse_in(options.images, options.outside).map_err(at("check deleted files"))?;
                sockets::refuse_in(options.images, options.root, options.outside)
                    .map_err(at("check the sockets"))?;
                links = links::hold(options.images, options.root).map_err(at("read the deleted files"))?;
                userns::write_stored(options.images).map_err(at("write the ids on disk to the images"))?;
                sockets::write_listeners_first(options.images).map_err(at("order the sockets"))?;
                timers::rearm_expired(options.images).map_err(at("rearm the timers"))?;
                let sleeps = opened.as_ref().map_or(&[][..], |opened| &opened.sleeps);
                sleeps::write(options.images, sleeps).map_err(at("write the sleeps"))?;
                if opened.as_ref().is_some_and(|opened| opened.closed) {
                    dumpable::write_closed(options.images).map_err(at("close the first process's image"))?;
                }
                Ok(())
            }
            Point::PreRestore | Point::SetupNamespaces | Point::PreResume => Ok(()),
        };
        let common = Common {
            images: options.images,
            work: options.work,
            log: DUMP_LOG,
            root: options.root,
            external: options.external,
        };
        let request = rpc::dump_request(common, options.pid, options.group);
        let conversation = Conversation { socket, process: process.pidfd(), operation };
        let outcome = run_dump(&conversation, &request, &Group::at(options.aside), &mut act);
        let hung = matches!(outcome, Err(CriuError::Timeout { .. }));
        let outcome =
            end(process, outcome, hung, options.work, DUMP_LOG).and_then(|_| written(options.images));
        // Whatever the outcome, the surviving processes must not keep the changes that were made for the dump.
        match opened {
            // The machine could not be frozen; a refusal does not change it.
            None => outcome?,
            Some(opened) => {
                let stays_frozen = outcome.is_ok() || options.was_frozen;
                let put_right = dumpable::close(&group, opened, stays_frozen, adjust);
                outcome?;
                put_right.map_err(at("undo the changes of the processes"))?;
            }
        }
        let named = links::recreate(&links, options.root).map_err(at("name deleted files"));
        if named.is_err() && !options.was_frozen {
            group.thaw().map_err(at("resume the processes"))?;
        }
        Ok(DumpedMachine { frozen_for: since.elapsed(), named: named? })
    }

    /// Creates a machine from images, and leaves it frozen. The three callbacks get its first process: `wire` is called
    /// when its network namespace exists and is empty; `settle` when everything is restored and frozen; `introduce`, if
    /// given, when only the first process runs.
    ///
    /// After a failure, the remains are in the machine's cgroup, where the caller must kill them.
    pub(crate) fn restore(
        &self,
        options: &RestoreOptions<'_>,
        wire: &mut dyn FnMut(u32) -> io::Result<()>,
        settle: &mut dyn FnMut(u32) -> io::Result<()>,
        introduce: Option<&mut dyn FnMut(u32) -> io::Result<()>>,
    ) -> Result<RestoredMachine, CriuError> {
        let operation = Operation::Restore;
        let at = |step| move |source| CriuError::Step { operation, step, source };
        sockets::refuse_in(options.images, options.root, options.outside).map_err(at("check the sockets"))?;
        let locks = locks::read(options.images).map_err(at("read the locks of the dump"))?;
        let sleeps = sleeps::read(options.images).map_err(at("read the sleeps of the dump"))?;
        links::sweep(options.images, options.root).map_err(at("remove the remains of an earlier restore"))?;
        let links = links::hold(options.images, options.root).map_err(at("read the deleted files"))?;
        let images = images_of(options).map_err(at("read the images for this host"))?;
        let files = Files { root: options.root, outside: options.outside, ids: options.ids };
        let (process, socket) = Process::start(&self.program, options.place, Some(files))?;
        let external = process.external(options.outside);
        let (group, aside, criu) = (Group::at(options.group), Group::at(options.aside), process.pid);
        let mut first = 0;
        let killed_by_us = Cell::new(false);
        let mut act = |point, pid: Option<u32>| match point {
            Point::PreRestore => {
                namespace_owner::become_owner(criu, options.owner).map_err(at("become the machine's owner"))
            }
            Point::SetupNamespaces => {
                first = pid
                    .ok_or(io::ErrorKind::InvalidData.into())
                    .map_err(at("get the pid of the first process"))?;
                if options.owner != 0 {
                    let back =
                        group.processes().and_then(|processes| namespace_owner::become_root(&processes));
                    back.map_err(at("become root again"))?;
                }
                wire(first).map_err(at("connect the network"))
            }
            Point::PreResume => {
                let settled = settle(first)
                    .map_err(at("settle the machine"))
                    // CRIU is in the machine's cgroup, and must not be frozen with it.
                    .and_then(|()| aside.add_process(criu).map_err(at("move CRIU aside")))
                    .and_then(|()| group.freeze().map_err(at("freeze the processes")));
                if settled.is_err() {
                    killed_by_us.set(!process.ends_within(Duration::ZERO));
                    // CRIU would resume them despite the error.
                    group.kill().map_err(at("kill the restored processes"))?;
                }
                settled
            }
            Point::PreDump | Point::PostDump => Ok(()),
        };
        let common = Common {
            images: images.as_fd(),
            work: options.work,
            log: RESTORE_LOG,
            root: options.root,
            external: &external,
        };
        let request = rpc::restore_request(common);
        let progress = || group.cpu_us().saturating_add(aside.cpu_us());
        let patience = HangPolicy { progress: &progress, idle_max: RESTORE_IDLE_MAX, nudge: None };
        let conversation = Conversation { socket, process: process.pidfd(), operation };
        let outcome = conversation.run(&request, Some(&patience), &mut act);
        if let Err(CriuError::Timeout { .. } | CriuError::Step { .. }) = outcome {
            let ends = matches!(outcome, Err(CriuError::Step { .. })) && process.ends_within(GIVE_UP_MAX);
            killed_by_us.set(killed_by_us.get() || !ends);
            // Everything that it created is in these groups, and so is CRIU itself: it hangs, or may not have ended
            // because a step of ours failed.
            let killed = group.kill().and_then(|()| aside.kill());
            killed.map_err(at("kill the restored processes"))?;
        }
        let pid = end(process, outcome, killed_by_us.get(), options.work, RESTORE_LOG);
        let pid = pid.map_err(|error| with_origin(options, error));
        // CRIU has removed the names; but until the machine has resumed, the restore may have to be repeated.
        let named = links::recreate(&links, options.root).map_err(at("name deleted files"));
        let (pid, named) = (pid?, named?);
        let pid =
            pid.ok_or_else(|| CriuError::Talk { operation, source: io::ErrorKind::InvalidData.into() })?;
        finish(&group, &locks, &sleeps, pid, introduce)?;
        Ok(RestoredMachine { pid, named })
    }
}

/// Runs a dump, and kills CRIU if it hangs.
fn run_dump(
    conversation: &Conversation<'_>,
    request: &protobuf::Message,
    aside: &Group,
    act: &mut dyn FnMut(Point, Option<u32>) -> Result<(), CriuError>,
) -> Result<rpc::CriuResponse, CriuError> {
    let disk_waits = Cell::new(0);
    let progress = || {
        if aside.waits_for_disk() {
            disk_waits.set(disk_waits.get() + 1);
        }
        // The machine's own CPU time is no measure: it runs until CRIU freezes it.
        aside.cpu_us().saturating_add(disk_waits.get())
    };
    let nudge = || {
        tracing::warn!(idle = ?DUMP_IDLE_MAX, "sending SIGCONT to a CRIU that makes no progress in a dump");
        if let Err(error) = aside.continue_stopped() {
            tracing::warn!(%error, "could not send SIGCONT to CRIU");
        }
    };
    let patience = HangPolicy {
        progress: &progress,
        idle_max: DUMP_IDLE_MAX,
        nudge: Some((&nudge, DUMP_CONTINUED_MAX)),
    };
    let outcome = conversation.run(request, Some(&patience), act);
    if let Err(CriuError::Timeout { .. }) = outcome {
        let at = |source| CriuError::Step { operation: Operation::Dump, step: "kill CRIU", source };
        aside.kill_each().map_err(at)?;
    }
    outcome
}

/// Removes the remains of a killed CRIU from the machine.
fn clean(options: &DumpOptions<'_>, adjust: &Adjust<'_>) -> Result<(), CriuError> {
    let at = |step| move |source| CriuError::Step { operation: Operation::Dump, step, source };
    adjust(Adjustment::Clean { stays_frozen: options.was_frozen })
        .map_err(at("remove CRIU's code from the processes"))?;
    parasite::remove_names(&Group::at(options.group), options.root)
        .map_err(at("remove the names that CRIU gave"))
}

/// Recovers a machine whose dump was interrupted because this process, or an earlier one, was killed. CRIU then gives
/// up and detaches, or was killed as well; but the machine is still frozen, and its first process open. Harmless for
/// other machines, except that their first process is closed afterwards. CRIU must have ended.
pub(crate) fn recover(group: &Path, root: &Path, stays_frozen: bool, adjust: &Adjust<'_>) -> io::Result<()> {
    let group = Group::at(group);
    dumpable::close(&group, AppliedChanges::ALL, stays_frozen, adjust)?;
    adjust(Adjustment::Clean { stays_frozen })?;
    parasite::remove_names(&group, root)
}

/// The images of a dump, adapted to this host.
fn images_of(options: &RestoreOptions<'_>) -> io::Result<ReplacedImages> {
    let mut replacements = labels::replacements(options.images, options.profile)?;
    replacements.push(userns::replacement(options.images, options.ids)?);
    replacements.extend(volume_files::replacement(options.images, options.outside)?);
    ReplacedImages::of(options.images, options.work, &replacements)
}

/// Names the process and the descriptor to which CRIU refers by an inode.
fn named(group: &Path, error: CriuError) -> CriuError {
    let CriuError::Refused { reason, .. } = &error else { return error };
    let inode = reason.split_once(NOT_ACCEPTED).and_then(|(_, rest)| {
        let digits = rest.trim_start_matches("0x").split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    });
    let what = "a Unix connection with data that its server has not accepted";
    match inode.map(|inode| inspect::socket(&Group::at(group), inode, what)) {
        Some(Ok(Some(obstacle))) => CriuError::Obstacles { obstacles: vec![obstacle] },
        _ => error,
    }
}

/// Names the process and the descriptor at which a restore failed.
fn with_origin(options: &RestoreOptions<'_>, error: CriuError) -> CriuError {
    let log = read_log(options.work, RESTORE_LOG).unwrap_or_default();
    match error {
        CriuError::Refused { operation, reason } => {
            let at_fault =
                reason::first_line(&log).and_then(|line| fault_origin::name(options.images, &log, line));
            let reason = at_fault.map_or(reason.clone(), |at_fault| format!("{at_fault}: {reason}"));
            CriuError::Refused { operation, reason }
        }
        CriuError::Timeout { operation, after, .. } => {
            CriuError::Timeout { operation, after, last: fault_origin::last(options.images, &log) }
        }
        error @ (CriuError::Obstacles { .. }
        | CriuError::Start { .. }
        | CriuError::Talk { .. }
        | CriuError::Step { .. }
        | CriuError::Died { .. }
        | CriuError::Killed { .. }
        | CriuError::Finish { .. }) => error,
    }
}

/// Freezes a machine at a moment without obstacles, and returns the time of the freeze. A refusal leaves it in its
/// earlier state. A machine that `was_frozen` runs for moments if only that removes the obstacles.
fn freeze_without_obstacles(group: &Group, was_frozen: bool) -> Result<Instant, CriuError> {
    let at = |step| move |source| CriuError::Step { operation: Operation::Dump, step, source };
    for attempt in 1..=PASSING_ATTEMPTS {
        let since = Instant::now();
        let looked = obstacles_of_frozen(group);
        if matches!(&looked, Ok(found) if found.is_empty()) {
            return Ok(since);
        }
        let give_up = attempt == PASSING_ATTEMPTS
            || looked.as_ref().map_or(true, |found| found.iter().any(|obstacle| !obstacle.reason.passes()));
        if !(give_up && was_frozen) {
            group.thaw().map_err(at("resume the processes"))?;
        }
        let found = looked.map_err(at("check the frozen processes"))?;
        if give_up {
            return Err(CriuError::Obstacles { obstacles: found });
        }
        thread::sleep(PASSING_PAUSE);
    }
    unreachable!("the last attempt returns")
}

/// The obstacles of a frozen machine.
fn obstacles_of_frozen(group: &Group) -> io::Result<Vec<Obstacle>> {
    group.freeze()?;
    group.await_frozen()?;
    let mut found = inspect::in_group(group)?;
    found.extend(inspect::passing(group)?);
    Ok(found)
}

/// The last steps of a restore, in a group that is about to freeze: sets the file locks that CRIU lost, continues interrupted
/// sleeps, and lets the first process run alone for a moment. When it returns, all processes are frozen.
fn finish(
    group: &Group,
    locks: &[locks::Lock],
    sleeps: &sleeps::StoredSleeps,
    first: u32,
    introduce: Option<&mut dyn FnMut(u32) -> io::Result<()>>,
) -> Result<(), CriuError> {
    let at = |step| move |source| CriuError::Finish { step, source };
    if locks.is_empty() && sleeps.is_empty() && introduce.is_none() {
        return group.await_frozen().map_err(at("freeze the processes"));
    }
    let mut held = HeldThreads::take(group, OnTracerExit::Dies).map_err(at("seize the processes"))?;
    // Dropped before `held`: unfinished processes must not run when they are detached.
    let mut unfinished = UnfinishedProcesses(Some(group));
    held.set_locks(locks).map_err(at("set the locks"))?;
    sleeps::restart(&mut held, &sleeps.sleeps, sleeps.now).map_err(at("restart the sleeps"))?;
    if let Some(introduce) = introduce {
        held.resume_first();
        introduce(first).map_err(at("introduce the first process"))?;
    }
    group.freeze().map_err(at("freeze the processes"))?;
    unfinished.0 = None;
    held.detach_frozen(group).map_err(at("freeze the processes"))
}

/// Processes that are held and not frozen. They are killed when this is dropped by an error or a panic.
struct UnfinishedProcesses<'a>(Option<&'a Group>);

impl Drop for UnfinishedProcesses<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The caller kills them again, and reports it if that fails.
            let _ = group.kill();
        }
    }
}

/// Waits for CRIU's end, and explains a failure.
fn end(
    process: Process,
    outcome: Result<rpc::CriuResponse, CriuError>,
    killed_by_us: bool,
    logs: BorrowedFd<'_>,
    log: &str,
) -> Result<Option<u32>, CriuError> {
    match outcome {
        Ok(answer) => {
            process.end()?;
            Ok(answer.pid)
        }
        Err(CriuError::Talk { operation, source }) => {
            let status = process.end()?;
            if let ExitStatus::Signal(signal) = status {
                return Err(CriuError::Killed { operation, signal });
            }
            match read_log(logs, log).as_deref().and_then(reason::first_error) {
                Some(reason) => Err(CriuError::Died { operation, reason: format!("{reason} ({status})") }),
                None if source.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(CriuError::Died { operation, reason: status.to_string() })
                }
                None => Err(CriuError::Talk { operation, source }),
            }
        }
        Err(CriuError::Refused { operation, reason }) => {
            process.end()?;
            let logged = if reason.is_empty() {
                read_log(logs, log).as_deref().and_then(reason::first_error)
            } else {
                None
            };
            let reason = logged.unwrap_or(reason);
            Err(CriuError::Refused { operation, reason })
        }
        Err(other) => match (process.operation(), process.end()?) {
            // If CRIU is killed, a step of ours that needs it fails.
            (operation, ExitStatus::Signal(signal)) if !killed_by_us => {
                Err(CriuError::Killed { operation, signal })
            }
            _ => Err(other),
        },
    }
}

/// Whether a dump contains TCP connections.
pub(crate) fn has_connections(images: BorrowedFd<'_>) -> io::Result<bool> {
    for entry in Dir::read_from(images)? {
        if entry?.file_name().to_bytes().starts_with(CONNECTIONS) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that a dump exists, whatever CRIU reported: processes are never ended without one.
fn written(images: BorrowedFd<'_>) -> Result<(), CriuError> {
    match statat(images, INVENTORY, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if found.st_size > 0 => Ok(()),
        _ => Err(CriuError::Died { operation: Operation::Dump, reason: "no dump was written".to_owned() }),
    }
}

/// Removes all files of a directory.
fn empty(directory: BorrowedFd<'_>) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            unlinkat(directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// The end of a log.
fn read_log(directory: BorrowedFd<'_>, name: &str) -> Option<String> {
    let file =
        openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut file = File::from(file);
    let length = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(reason::LOG_BYTES_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(reason::LOG_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
