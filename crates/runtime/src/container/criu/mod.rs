//! Process state of machines, by CRIU: out of RAM into images, and from images to life.
//!
//! ```text
//! dump     freeze ─► pages, files, sockets to images ─► still frozen
//! restore  namespaces ─► setup-namespaces: the network ─► processes ─► pre-resume: freeze ─► locks ─► still frozen
//! ```
//!
//! CRIU is a separate program, asked over a socket ([`rpc`]), one process per operation ([`spawn`]). What it leaves
//! undone is done here while the processes stand still ([`hold`]): the locks it loses are set again ([`locks`]).
//!
//! Blocking throughout, and tied to its thread: call it where that is allowed.
//!
//! A dump is never killed: CRIU's code runs inside the processes meanwhile, and one that dies there takes them along. A
//! restore may be: whatever it made is in one cgroup.

mod closed;
mod copied;
mod error;
mod group;
mod hold;
mod image;
mod inspect;
mod links;
mod locks;
mod owner;
mod protobuf;
mod reason;
mod rpc;
mod sockets;
mod spawn;
mod terminals;
mod timers;
mod trace;
mod userns;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use burrow_network::linux::HostIds;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat, unlinkat};

pub(crate) use closed::{Adjust, Adjustment, Opened, adjust};
pub(crate) use error::CriuError;
use error::Operation;
use group::Group;
use hold::Held;
pub(crate) use inspect::{Obstacle, obstacles, ram_bytes};
pub(crate) use links::take_away;
use rpc::{Common, Conversation, Patience, Point};
pub(crate) use spawn::Place;
use spawn::{Files, Process};
use trace::IfWeDie;

const DUMP_LOG: &str = "dump.log";
const RESTORE_LOG: &str = "restore.log";
/// In every dump of CRIU's.
const INVENTORY: &str = "inventory.img";

/// A restore that says nothing and uses no processor time for so long hangs, and is killed. The largest step, reading gigabytes of
/// pages, says nothing, but works.
const RESTORE_IDLE_MAX: Duration = Duration::from_secs(30);

/// The images of TCP connections begin so.
const CONNECTIONS: &[u8] = b"tcp-stream-";

/// A process whose end nobody has taken note of yet is gone when its parent has run for a moment.
const PASSING_ATTEMPTS: u32 = 100;
const PASSING_PAUSE: Duration = Duration::from_millis(5);

/// What CRIU says when the kernel told a process something in the middle of a dump; it was not there when we looked. The
/// kernel tells of changes of the network, of which one brings a few about, in the seconds after a machine was wired.
const TOLD_MIDWAY: &str = "The socket has data to read";
/// What CRIU says of a Unix connection with data that its server has not accepted; the socket's inode follows. A server
/// that runs accepts it.
const NOT_ACCEPTED: &str = "Non-empty write queue on an in-flight socket ";
/// Attempts at a dump that fails by one of these.
const PASSING_DUMPS: u32 = 10;

/// CRIU on this host.
#[derive(Clone, Debug)]
pub(crate) struct Criu {
    pub program: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpOptions<'a> {
    /// The machine's first process.
    pub pid: u32,
    /// What is `/` to it.
    pub root: &'a Path,
    /// An empty directory for the images.
    pub images: BorrowedFd<'a>,
    /// A directory for what else CRIU writes.
    pub work: BorrowedFd<'a>,
    /// The v2 cgroup of the machine.
    pub group: &'a Path,
    /// What CRIU does not look into, in its own words.
    pub external: &'a [String],
    /// What that is. Files that were deleted there while they were open cannot be kept.
    pub outside: &'a [Outside],
    /// Whether it is frozen already, and stays so also when the dump fails.
    pub was_frozen: bool,
    /// Where CRIU runs: not in the machine's own cgroups.
    pub place: Place<'a>,
}

/// A machine that was dumped.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// How long it has stood still by now.
    pub for_so_long: Duration,
    /// Whether deleted files were given names, which [`take_away`] must take away before the machine goes on.
    pub named: bool,
}

/// A machine that was restored, and is frozen.
#[derive(Debug)]
pub(crate) struct Restored {
    /// Its first process.
    pub pid: u32,
    /// As in [`Frozen`].
    pub named: bool,
}

/// A directory of the host that a machine has: what it was dumped as, and where it is now.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// The place in the machine.
    pub key: String,
    pub source: PathBuf,
    pub read_only: bool,
}

impl Outside {
    /// From the root on.
    fn place(&self) -> &Path {
        Path::new(self.key.trim_start_matches('/'))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoreOptions<'a> {
    /// What becomes `/`: the files as they were at the dump.
    pub root: &'a Path,
    pub images: BorrowedFd<'a>,
    /// A directory for what CRIU writes; several restores of one dump have one each.
    pub work: BorrowedFd<'a>,
    /// The v2 cgroup of the machine to be, which is empty.
    pub group: &'a Path,
    /// A v2 cgroup that CRIU itself is moved to in the end, so that the machine's can be frozen.
    pub aside: &'a Path,
    /// Directories of the host that the machine has.
    pub outside: &'a [Outside],
    /// Whose the machine's user namespace will be: a uid that nobody else has.
    pub owner: u32,
    /// The ids of the machine on this host; `None`: those that its files have on disk.
    pub ids: Option<&'a HostIds>,
    /// Where CRIU starts: in the cgroups of the machine.
    pub place: Place<'a>,
}

impl Criu {
    /// Writes the state of all processes of a machine, and leaves them frozen. A failure leaves them as they were.
    pub(crate) fn dump(&self, options: &DumpOptions<'_>, adjust: &Adjust<'_>) -> Result<Frozen, CriuError> {
        for _ in 1..PASSING_DUMPS {
            match self.dump_once(options, adjust) {
                Err(CriuError::Refused { reason, .. })
                    if [TOLD_MIDWAY, NOT_ACCEPTED].iter().any(|known| reason.contains(known)) =>
                {
                    let at = |source| CriuError::Step {
                        operation: Operation::Dump,
                        step: "remove what was written so far",
                        source,
                    };
                    empty(options.images).map_err(at)?;
                }
                outcome => return outcome,
            }
        }
        self.dump_once(options, adjust).map_err(|error| named(options.group, error))
    }

    fn dump_once(&self, options: &DumpOptions<'_>, adjust: &Adjust<'_>) -> Result<Frozen, CriuError> {
        let operation = Operation::Dump;
        let at = |step| move |source| CriuError::Step { operation, step, source };
        let found = obstacles(options.group).map_err(at("look at the processes"))?;
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
                let become_owner = |owner| owner::become_owner(criu, owner);
                owner::of_machine(options.pid)
                    .and_then(become_owner)
                    .map_err(at("become the machine's owner"))?;
                since = stand_still(&group, options.was_frozen)?;
                // From here on it is frozen, and must not stay so if anything fails. Nor open, if nobody knows how far it got.
                opened = Some(Opened::ALL);
                opened = Some(adjust(Adjustment::Open).map_err(at("open the first process"))?);
                Ok(())
            }
            Point::PostDump => {
                links::refuse_in(options.images, options.outside).map_err(at("keep deleted files"))?;
                sockets::refuse_in(options.images, options.root, options.outside)
                    .map_err(at("keep the sockets"))?;
                links = links::hold(options.images, options.root).map_err(at("look for deleted files"))?;
                userns::write_stored(options.images).map_err(at("write the ids as they are on disk"))?;
                sockets::write_listeners_first(options.images).map_err(at("order the sockets"))?;
                timers::write_wound_up(options.images).map_err(at("wind up the timers"))?;
                if opened.is_some_and(|opened| opened.closed) {
                    closed::write_closed(options.images).map_err(at("close the first process's image"))?;
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
        let outcome =
            Conversation { socket, process: process.pidfd(), operation }.run(&request, None, &mut act);
        let outcome = end(process, outcome, options.work, DUMP_LOG).and_then(|_| written(options.images));
        // Whatever came of it, what lives on must not stay as it was made for the dump.
        match opened {
            // It did not even come to stand still; a refusal leaves it as it was.
            None => outcome?,
            Some(opened) => {
                let stays_frozen = outcome.is_ok() || options.was_frozen;
                let put_right = closed::close(&group, opened, stays_frozen, adjust);
                outcome?;
                put_right.map_err(at("put the processes right"))?;
            }
        }
        let named = links::give_again(&links, options.root).map_err(at("name deleted files"));
        if named.is_err() && !options.was_frozen {
            group.thaw().map_err(at("let the processes go on"))?;
        }
        Ok(Frozen { for_so_long: since.elapsed(), named: named? })
    }

    /// Makes a machine of images, and leaves it frozen. All three steps are called with its first process: `wire` when its network namespace is there and empty; `settle` when all is restored and stands still;
    /// `introduce`, if given, when the first process runs and no other does.
    ///
    /// A failure leaves what there is in the machine's cgroup, to be killed there.
    pub(crate) fn restore(
        &self,
        options: &RestoreOptions<'_>,
        wire: &mut dyn FnMut(u32) -> io::Result<()>,
        settle: &mut dyn FnMut(u32) -> io::Result<()>,
        introduce: Option<&mut dyn FnMut(u32) -> io::Result<()>>,
    ) -> Result<Restored, CriuError> {
        let operation = Operation::Restore;
        let at = |step| move |source| CriuError::Step { operation, step, source };
        sockets::refuse_in(options.images, options.root, options.outside).map_err(at("keep the sockets"))?;
        let locks = locks::read(options.images).map_err(at("read the locks of the dump"))?;
        links::sweep(options.images, options.root).map_err(at("remove what an earlier restore left"))?;
        let links = links::hold(options.images, options.root).map_err(at("look for deleted files"))?;
        let images = userns::MappedImages::of(options.images, options.work, options.ids);
        let images = images.map_err(at("map the ids of the dump"))?;
        let files = Files { root: options.root, outside: options.outside, ids: options.ids };
        let (process, socket) = Process::start(&self.program, options.place, Some(files))?;
        let external = process.external(options.outside);
        let (group, aside, criu) = (Group::at(options.group), Group::at(options.aside), process.pid);
        let mut first = 0;
        let mut act = |point, pid: Option<u32>| match point {
            Point::PreRestore => {
                owner::become_owner(criu, options.owner).map_err(at("become the machine's owner"))
            }
            Point::SetupNamespaces => {
                first =
                    pid.ok_or(io::ErrorKind::InvalidData.into()).map_err(at("learn the first process"))?;
                if options.owner != 0 {
                    let back = group.processes().and_then(|processes| owner::become_root(&processes));
                    back.map_err(at("become root again"))?;
                }
                wire(first).map_err(at("connect the network"))
            }
            Point::PreResume => {
                let settled = settle(first)
                    .map_err(at("settle the machine"))
                    // CRIU is in the machine's cgroup, and must not freeze with it.
                    .and_then(|()| aside.take_in(criu).map_err(at("move CRIU aside")))
                    .and_then(|()| group.freeze().map_err(at("freeze the processes")));
                if settled.is_err() {
                    // CRIU would let them run all the same.
                    group.kill().map_err(at("kill what was restored so far"))?;
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
        let patience = Patience { progress: &progress, idle_max: RESTORE_IDLE_MAX };
        let conversation = Conversation { socket, process: process.pidfd(), operation };
        let outcome = conversation.run(&request, Some(&patience), &mut act);
        if let Err(CriuError::Timeout { .. } | CriuError::Step { .. }) = outcome {
            // All that it made is here, itself included: it hangs, or may not have ended because of a step of ours.
            let killed = group.kill().and_then(|()| aside.kill());
            killed.map_err(at("kill what was restored so far"))?;
        }
        let pid = end(process, outcome, options.work, RESTORE_LOG);
        // CRIU has taken them away; but as long as the machine has not gone on, the restore may have to be repeated.
        let named = links::give_again(&links, options.root).map_err(at("name deleted files"));
        let (pid, named) = (pid?, named?);
        let pid =
            pid.ok_or_else(|| CriuError::Talk { operation, source: io::ErrorKind::InvalidData.into() })?;
        finish(&group, &locks, pid, introduce)?;
        Ok(Restored { pid, named })
    }
}

/// Puts a machine right whose dump was cut short because this process, or an earlier one, was killed: CRIU itself then
/// gives up and lets go of it, but it is still frozen, and its first process open. Does no harm to one that was not, but
/// that its first process is closed afterwards. CRIU must have ended.
pub(crate) fn recover(group: &Path, stays_frozen: bool, adjust: &Adjust<'_>) -> io::Result<()> {
    closed::close(&Group::at(group), Opened::ALL, stays_frozen, adjust)
}

/// Names the process and the descriptor that CRIU knows by a number of its own.
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

/// Freezes a machine at a moment at which nothing is in the way of a dump, and answers since when it stands still. A
/// refusal leaves it as it was. One that `was_frozen` runs for moments if what is in the way goes away only so.
fn stand_still(group: &Group, was_frozen: bool) -> Result<Instant, CriuError> {
    let at = |step| move |source| CriuError::Step { operation: Operation::Dump, step, source };
    for attempt in 1..=PASSING_ATTEMPTS {
        let since = Instant::now();
        let looked = look_frozen(group);
        if matches!(&looked, Ok(found) if found.is_empty()) {
            return Ok(since);
        }
        let give_up = attempt == PASSING_ATTEMPTS
            || looked.as_ref().map_or(true, |found| found.iter().any(|obstacle| !obstacle.reason.passes()));
        if !(give_up && was_frozen) {
            group.thaw().map_err(at("let the processes go on"))?;
        }
        let found = looked.map_err(at("look at the frozen processes"))?;
        if give_up {
            return Err(CriuError::Obstacles { obstacles: found });
        }
        thread::sleep(PASSING_PAUSE);
    }
    unreachable!("the last attempt returns")
}

/// What is in the way, at a moment at which nothing moves.
fn look_frozen(group: &Group) -> io::Result<Vec<Obstacle>> {
    group.freeze()?;
    group.await_frozen()?;
    let mut found = inspect::in_group(group)?;
    found.extend(inspect::passing(group)?);
    Ok(found)
}

/// What is left to do in a group that freezes: sets the locks that CRIU lost, and lets the first process run alone for a
/// while. When it returns, all are frozen.
fn finish(
    group: &Group,
    locks: &[locks::Lock],
    first: u32,
    introduce: Option<&mut dyn FnMut(u32) -> io::Result<()>>,
) -> Result<(), CriuError> {
    let at = |step| move |source| CriuError::Finish { step, source };
    if locks.is_empty() && introduce.is_none() {
        return group.await_frozen().map_err(at("freeze the processes"));
    }
    let mut held = Held::take(group, IfWeDie::ItDies).map_err(at("take hold"))?;
    // Dropped before `held`: what is let go of unfinished must not run.
    let mut unfinished = Unfinished(Some(group));
    held.set_locks(locks).map_err(at("set the locks"))?;
    if let Some(introduce) = introduce {
        held.let_go_of_first();
        introduce(first).map_err(at("tell the first process who it is"))?;
    }
    group.freeze().map_err(at("freeze the processes"))?;
    unfinished.0 = None;
    held.let_go_frozen(group).map_err(at("freeze the processes"))
}

/// Processes that are held and not frozen, and are killed when this is dropped: by an error, or a panic.
struct Unfinished<'a>(Option<&'a Group>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The caller kills them once more, and says so if that fails.
            let _ = group.kill();
        }
    }
}

/// Waits for CRIU's end, and explains a failure.
fn end(
    process: Process,
    outcome: Result<rpc::Answer, CriuError>,
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
            match read_log(logs, log) {
                Some(reason) => Err(CriuError::Died { operation, reason: format!("{reason} ({status})") }),
                None if source.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(CriuError::Died { operation, reason: status.to_string() })
                }
                None => Err(CriuError::Talk { operation, source }),
            }
        }
        Err(CriuError::Refused { operation, reason }) => {
            process.end()?;
            let reason = if reason.is_empty() { read_log(logs, log).unwrap_or_default() } else { reason };
            Err(CriuError::Refused { operation, reason })
        }
        Err(other) => {
            process.end()?;
            Err(other)
        }
    }
}

/// Whether a dump has TCP connections.
pub(crate) fn has_connections(images: BorrowedFd<'_>) -> io::Result<bool> {
    for entry in Dir::read_from(images)? {
        if entry?.file_name().to_bytes().starts_with(CONNECTIONS) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// That a dump is there: whatever was said of it, processes are not ended over nothing.
fn written(images: BorrowedFd<'_>) -> Result<(), CriuError> {
    match statat(images, INVENTORY, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if found.st_size > 0 => Ok(()),
        _ => Err(CriuError::Died { operation: Operation::Dump, reason: "it wrote nothing".to_owned() }),
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

fn read_log(directory: BorrowedFd<'_>, name: &str) -> Option<String> {
    let file =
        openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut file = File::from(file);
    let length = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(reason::LOG_BYTES_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(reason::LOG_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    reason::first_error(&String::from_utf8_lossy(&bytes))
}
