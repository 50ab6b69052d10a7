//! Making namespaces, and stepping into them without staying.
//!
//! A user namespace can only be made by a new process: a thread of a process with others may not leave its own. The
//! process made here shares this one's address space, as `vfork` does, so its cost does not grow with the daemon's
//! RAM; it does nothing but wait until its namespaces have been opened.
//!
//! A network namespace can be entered by a single thread. [`Traveller`] is how: it cannot leave its thread, and it is
//! back home after every visit. A thread that stayed would pin the namespace it is in, and would make whatever it does
//! next happen there.
#![expect(unsafe_code, reason = "clone, unshare and the signal mask have no safe wrapper")]

use std::ffi::c_void;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::netlink::SlotError;

/// Files of root inside belong to this uid on disk, and to the gid alike. This is the same for all sandboxes, so that
/// images can be shared between them. Which ids its processes have on the host, see [`super::ids`].
pub const UID_BASE: u32 = 100_000;
/// How many uids and gids exist inside, from 0 on.
pub const UID_COUNT: u32 = 65_536;

/// Whose the user namespaces are: of a uid each, which nobody else on the host has.
///
/// The kernel counts inotify instances, pending signals and the like for the users of a namespace and again for whoever
/// made it, with the host's own limits. Made by root for all sandboxes alike, the first to take its 128 inotify
/// instances left none to the others, nor to the host's own services. Two sandboxes that happen to share an owner share
/// its counts, and nothing else.
const OWNER_BASE: u32 = 0x4000_0000;
const OWNER_COUNT: u32 = 0x2000_0000;

/// Twice the pages the one function on it could touch, with room for a signal frame that never comes.
const STACK_BYTES: usize = 32 * 1024;

/// A user namespace, and a network namespace that belongs to it.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) user: OwnedFd,
    pub(super) net: OwnedFd,
}

/// Makes both namespaces, whose ids from 0 on are those of the host from `base` on. Nothing runs in them, and they are
/// gone when the descriptors are closed.
pub(super) fn make_pair(base: u32) -> Result<Pair, SlotError> {
    let child = Child::start(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        .map_err(at("make a user and a network namespace"))?;
    child.map_ids(&format!("0 {base} {UID_COUNT}"))?;
    Ok(Pair { user: child.open("ns/user")?, net: child.open("ns/net")? })
}

/// Makes a user namespace with these lines as its maps.
pub(super) fn make_user(map: &str) -> Result<OwnedFd, SlotError> {
    let child = Child::start(libc::CLONE_NEWUSER).map_err(at("make a user namespace"))?;
    child.map_ids(map)?;
    child.open("ns/user")
}

/// A user namespace in which the files of a sandbox, as they are on disk, have the owners that they have inside. Blocks
/// for a millisecond.
pub fn user_namespace() -> io::Result<OwnedFd> {
    make_user(&format!("0 {UID_BASE} {UID_COUNT}")).map_err(|error| {
        io::Error::new(error.source.kind(), format!("could not {}: {}", error.step, error.source))
    })
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> SlotError {
    move |source| SlotError { step, source }
}

/// A process in new namespaces, of which one is a user namespace. It ends when this is dropped, or when our process dies.
struct Child {
    pid: libc::pid_t,
    /// Writing to it, or its end, lets the child go.
    wait_end: OwnedFd,
    /// The child runs on it, so it must outlive the child.
    _stack: Vec<MaybeUninit<u8>>,
    /// The child reads this, so it must outlive the child too, at an address that stays.
    _ends: Box<Ends>,
}

/// What the child is told: it owns a copy of every descriptor, and must close the one whose end it waits for.
struct Ends {
    read: i32,
    write: i32,
}

impl Child {
    /// `namespaces` are flags of `clone`.
    fn start(namespaces: libc::c_int) -> io::Result<Self> {
        let (read_end, wait_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let ends = Box::new(Ends { read: read_end.as_raw_fd(), write: wait_end.as_raw_fd() });
        let mut stack = vec![MaybeUninit::<u8>::uninit(); STACK_BYTES];
        let top = stack.as_mut_ptr_range().end;
        // The ABI wants the stack aligned to 16 bytes.
        let top = top.wrapping_sub(top.addr() % 16);
        // No signal to the parent at its end: the daemon's other children are not confused with it.
        let flags = libc::CLONE_VM | namespaces;
        let argument = ptr::from_ref::<Ends>(&ends).cast_mut().cast::<c_void>();
        let make = || {
            // SAFETY: `hold` is given a stack of its own and an argument, both of which `Child` keeps until `Drop` has
            // seen the process end. It shares our memory, so it may not touch any of it: it makes raw system calls
            // only. Its signals are blocked, hence no handler of ours ever runs in it.
            match unsafe { libc::clone(hold, top.cast(), flags, argument) } {
                -1 => Err(io::Error::last_os_error()),
                pid => Ok(pid),
            }
        };
        let pid = with_signals_blocked(|| as_owner(random_owner(), make))?;
        Ok(Self { pid, wait_end, _stack: stack, _ends: ends })
    }

    /// Written from outside by root, so `setgroups` stays allowed inside and `sudo` and package managers work.
    fn map_ids(&self, map: &str) -> Result<(), SlotError> {
        fs::write(self.file("uid_map"), map).map_err(at("map the uids of a user namespace"))?;
        fs::write(self.file("gid_map"), map).map_err(at("map the gids of a user namespace"))
    }

    fn open(&self, name: &str) -> Result<OwnedFd, SlotError> {
        File::open(self.file(name)).map(OwnedFd::from).map_err(at("open the namespaces"))
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A byte rather than the pipe's end: a sibling made at the same moment may hold a copy of it.
        if let Err(error) = rustix::io::write(&self.wait_end, &[0]) {
            tracing::error!(%error, pid = self.pid, "could not let a namespace's first process go");
        }
        loop {
            // SAFETY: waits for our own child, which nobody else waits for, and asks for nothing to be written.
            let answer = unsafe { libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL) };
            if answer != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
}

/// All the child ever does. It must neither allocate nor panic, nor call what keeps state in thread-local storage: it
/// runs in our memory, on the storage of the thread that made it.
extern "C" fn hold(argument: *mut c_void) -> i32 {
    let mut byte = 0u8;
    // SAFETY: `argument` is the `Ends` that `Child` keeps alive; the descriptors are the child's own copies, and the
    // byte is on its own stack. `exit`, unlike the C library's, runs no handlers of ours.
    unsafe {
        let ends = &*argument.cast::<Ends>();
        libc::syscall(libc::SYS_close, ends.write);
        libc::syscall(libc::SYS_read, ends.read, ptr::from_mut(&mut byte), 1);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// Runs `act` with another effective uid, and all powers kept: hosts may forbid user namespaces to those without.
fn as_owner<T>(owner: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let bits = securebits(None)?;
    securebits(Some(bits | libc::SECBIT_NO_SETUID_FIXUP))?;
    let outcome = effective_uid(owner).and_then(|()| {
        let outcome = act();
        effective_uid(0).expect("the real uid is root's, so the way back is open");
        outcome
    });
    securebits(Some(bits)).expect("what was so before may be so again");
    outcome
}

/// Of this thread alone: the C library's function would change all of them.
fn effective_uid(uid: u32) -> io::Result<()> {
    // SAFETY: takes three numbers; only this thread's identity changes.
    match unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads this thread's securebits, or sets them; answers what they are.
fn securebits(set: Option<i32>) -> io::Result<i32> {
    // SAFETY: takes numbers only, and concerns this thread only.
    let answer = unsafe {
        match set {
            Some(bits) => libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0),
            None => libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0),
        }
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(set.unwrap_or(answer)) }
}

/// A uid for the owner of a new user namespace; see [`OWNER_BASE`].
pub fn random_owner() -> u32 {
    OWNER_BASE + random_below(OWNER_COUNT)
}

pub(super) fn random_below(bound: u32) -> u32 {
    // The standard library seeds its hash maps with random numbers; nothing here must be secret.
    let random = RandomState::new().build_hasher().finish();
    u32::try_from(random % u64::from(bound)).expect("the rest is less than the divisor")
}

/// Runs `act` with every signal of this thread held back, and so also in a process it makes.
fn with_signals_blocked<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills `all`, the second reads it and fills `before`.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    let outcome = act();
    // SAFETY: the mask was filled by the call above, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    outcome
}

/// A thread that may visit network namespaces. Make one only on a thread of ours, never on one of the async runtime.
#[derive(Debug)]
pub(super) struct Traveller {
    home: OwnedFd,
    /// The namespace belongs to the thread, so this may not move to another.
    _bound_to_this_thread: PhantomData<*const ()>,
}

impl Traveller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { home: current()?, _bound_to_this_thread: PhantomData })
    }

    /// Runs `act` inside `namespace`.
    pub(super) fn visit<T>(
        &self,
        namespace: BorrowedFd<'_>,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let _return = Return(&self.home);
        enter(namespace)?;
        act()
    }

    /// Makes a network namespace, runs `act` inside it, and hands out the namespace with what `act` made.
    pub(super) fn visit_new<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<(OwnedFd, T)> {
        let _return = Return(&self.home);
        // SAFETY: only the network namespace changes, and no code of ours assumes which one a thread is in.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok((current()?, act()?))
    }
}

/// Brings the thread home, also when what it did failed or panicked.
struct Return<'a>(&'a OwnedFd);

impl Drop for Return<'_> {
    fn drop(&mut self) {
        enter(self.0.as_fd()).expect("a thread may always return to the namespace it came from");
    }
}

fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

fn current() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use super::*;

    fn inode(namespace: &OwnedFd) -> u64 {
        File::from(namespace.try_clone().unwrap()).metadata().unwrap().st_ino()
    }

    fn own_inode() -> u64 {
        inode(&current().unwrap())
    }

    #[test]
    fn a_visit_ends_at_home_even_when_it_fails() {
        let traveller = Traveller::new().unwrap();
        let home = own_inode();
        let (namespace, inside) = traveller.visit_new(|| Ok(own_inode())).unwrap();
        assert_eq!((inside, own_inode()), (inode(&namespace), home));
        assert_ne!(inside, home);
        assert_eq!(traveller.visit(namespace.as_fd(), || Ok(own_inode())).unwrap(), inside);
        let failed: io::Result<()> = traveller.visit(namespace.as_fd(), || Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        assert_eq!(own_inode(), home);
    }

    #[test]
    fn a_pair_is_new_maps_the_uids_and_leaves_no_process() {
        let pair = make_pair(UID_BASE).unwrap();
        assert_ne!(inode(&pair.net), own_inode());
        assert_ne!(inode(&pair.user), fs::metadata("/proc/self/ns/user").unwrap().st_ino());
        let children = fs::read_to_string("/proc/thread-self/children").unwrap();
        assert_eq!(children, "", "the process that held the namespaces has ended and was reaped");
    }

    /// Or one sandbox could use up what the kernel grants to all namespaces of one owner together.
    #[test]
    fn every_user_namespace_has_an_owner_of_its_own_and_the_thread_stays_root() {
        const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
        let owner = |pair: &Pair| {
            let mut uid = 0_u32;
            // SAFETY: the kernel writes one uid to where it is told to.
            let answer =
                unsafe { libc::ioctl(pair.user.as_raw_fd(), NS_GET_OWNER_UID, ptr::from_mut(&mut uid)) };
            assert_eq!(answer, 0, "{}", io::Error::last_os_error());
            uid
        };
        let (one, other) = (owner(&make_pair(UID_BASE).unwrap()), owner(&make_pair(UID_BASE).unwrap()));
        assert!(one >= OWNER_BASE && other >= OWNER_BASE, "{one} {other}");
        assert_ne!(one, other);
        assert_eq!(rustix::process::geteuid().as_raw(), 0);
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let set =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!(set("CapEff:"), set("CapPrm:"));
    }

    #[test]
    fn pairs_made_by_many_threads_at_once_all_arrive() {
        let makers: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..8).map(|_| make_pair(UID_BASE).unwrap()).collect::<Vec<_>>()))
            .collect();
        let pairs: Vec<Pair> = makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect();
        let mut inodes: Vec<u64> = pairs.iter().map(|pair| inode(&pair.net)).collect();
        inodes.sort_unstable();
        inodes.dedup();
        assert_eq!(inodes.len(), 64);
    }
}
