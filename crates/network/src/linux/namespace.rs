//! Creates namespaces, and enters them temporarily.
//!
//! Only a new process can create a user namespace: a thread of a process with several threads cannot leave its own. The
//! process that is created here shares the address space of this one, as with `vfork`, so its cost does not grow with
//! the daemon's RAM. It only waits until its namespaces have been opened.
//!
//! A single thread can enter a network namespace. [`NamespaceVisitor`] does this: it cannot leave its thread, and returns
//! after every visit. A thread that stayed would keep the namespace alive, and its next operations would take
//! effect there.
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

/// Files of root inside belong to this uid on disk, and to the same gid. It is the same for all sandboxes, so that they
/// can share images. For the ids that a sandbox's processes have on the host, see [`super::ids`].
pub const UID_BASE: u32 = 100_000;
/// Number of uids and gids inside, from 0 on.
pub const UID_COUNT: u32 = 65_536;

/// The owners of the user namespaces: one uid each, which nothing else on the host uses.
///
/// The kernel counts inotify instances, pending signals and similar resources for the users of a namespace and again
/// for its creator, with the host's own limits. If root created the namespaces of all sandboxes, the first sandbox to
/// use its 128 inotify instances would leave none to the others, nor to the host's own services. Two sandboxes that
/// happen to have the same owner share its counts, and nothing else.
const OWNER_BASE: u32 = 0x4000_0000;
const OWNER_COUNT: u32 = 0x2000_0000;

/// Twice the pages that the one function on it could touch, with room for a signal frame that never occurs.
const STACK_BYTES: usize = 32 * 1024;

/// A user namespace, and a network namespace that belongs to it.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) user: OwnedFd,
    pub(super) net: OwnedFd,
}

/// Creates both namespaces. Their ids from 0 on map to the host's ids from `base` on. No process runs in them, and they
/// disappear when the descriptors are closed.
pub(super) fn make_pair(base: u32) -> Result<Pair, SlotError> {
    let child = Child::start(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        .map_err(at("create a user and a network namespace"))?;
    child.map_ids(&format!("0 {base} {UID_COUNT}"))?;
    Ok(Pair { user: child.open("ns/user")?, net: child.open("ns/net")? })
}

/// Creates a user namespace with these lines as its maps.
pub(super) fn make_user(map: &str) -> Result<OwnedFd, SlotError> {
    let child = Child::start(libc::CLONE_NEWUSER).map_err(at("create a user namespace"))?;
    child.map_ids(map)?;
    child.open("ns/user")
}

/// A user namespace in which the files of a sandbox, with their owners on disk, have the owners that they have inside.
/// Blocks for a millisecond.
pub fn user_namespace() -> io::Result<OwnedFd> {
    make_user(&format!("0 {UID_BASE} {UID_COUNT}")).map_err(|error| {
        io::Error::new(error.source.kind(), format!("could not {}: {}", error.step, error.source))
    })
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> SlotError {
    move |source| SlotError { step, source }
}

/// A process in new namespaces, one of which is a user namespace. It ends when this is dropped, or when our process
/// dies.
struct Child {
    pid: libc::pid_t,
    /// Writing to this end, or closing it, lets the child exit.
    wait_end: OwnedFd,
    /// The child's stack, so it must outlive the child.
    _stack: Vec<MaybeUninit<u8>>,
    /// The child reads this, so it must outlive the child too, at a stable address.
    _ends: Box<PipeEnds>,
}

/// The child's argument. The child owns a copy of every descriptor, and must close the one whose end it waits for.
struct PipeEnds {
    read: i32,
    write: i32,
}

impl Child {
    /// `namespaces` are flags of `clone`.
    fn start(namespaces: libc::c_int) -> io::Result<Self> {
        let (read_end, wait_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let ends = Box::new(PipeEnds { read: read_end.as_raw_fd(), write: wait_end.as_raw_fd() });
        let mut stack = vec![MaybeUninit::<u8>::uninit(); STACK_BYTES];
        let top = stack.as_mut_ptr_range().end;
        // The ABI requires the stack to be aligned to 16 bytes.
        let top = top.wrapping_sub(top.addr() % 16);
        // No signal to the parent at its exit, so it is not confused with the daemon's other children.
        let flags = libc::CLONE_VM | namespaces;
        let argument = ptr::from_ref::<PipeEnds>(&ends).cast_mut().cast::<c_void>();
        let make = || {
            // SAFETY: `hold` gets its own stack and an argument, both of which `Child` keeps until `Drop` has seen the
            // process end. It shares our memory, so it may not touch any of it: it only makes raw system calls. Its
            // signals are blocked, so no handler of ours ever runs in it.
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
        // Write a byte instead of closing the pipe: another child that is created at the same moment may hold a copy of
        // it.
        if let Err(error) = rustix::io::write(&self.wait_end, &[0]) {
            tracing::error!(%error, pid = self.pid, "could not release the first process of a namespace");
        }
        loop {
            // SAFETY: waits for our own child, which nothing else waits for, and passes no pointer to write to.
            let answer = unsafe { libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL) };
            if answer != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
}

/// Everything that the child does. It must not allocate, panic, or call anything that uses thread-local storage: it
/// runs in our memory, on the storage of the thread that created it.
extern "C" fn hold(argument: *mut c_void) -> i32 {
    let mut byte = 0u8;
    // SAFETY: `argument` is the `PipeEnds` that `Child` keeps alive; the descriptors are the child's own copies, and the
    // byte is on its own stack. `exit`, unlike the C library's, runs no handlers of ours.
    unsafe {
        let ends = &*argument.cast::<PipeEnds>();
        libc::syscall(libc::SYS_close, ends.write);
        libc::syscall(libc::SYS_read, ends.read, ptr::from_mut(&mut byte), 1);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// Runs `act` with another effective uid and all capabilities kept, because hosts may forbid user namespaces to
/// unprivileged users.
fn as_owner<T>(owner: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let bits = securebits(None)?;
    securebits(Some(bits | libc::SECBIT_NO_SETUID_FIXUP))?;
    let outcome = effective_uid(owner).and_then(|()| {
        let outcome = act();
        effective_uid(0).expect("the real uid is root's, so it can be set again");
        outcome
    });
    securebits(Some(bits)).expect("the earlier securebits are allowed");
    outcome
}

/// Changes this thread alone. The C library's function would change all threads.
fn effective_uid(uid: u32) -> io::Result<()> {
    // SAFETY: takes three numbers; only this thread's identity changes.
    match unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads this thread's securebits, or sets them. Returns the value.
fn securebits(set: Option<i32>) -> io::Result<i32> {
    // SAFETY: takes only numbers, and affects only this thread.
    let answer = unsafe {
        match set {
            Some(bits) => libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0),
            None => libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0),
        }
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(set.unwrap_or(answer)) }
}

/// A random uid for the owner of a new user namespace; see [`OWNER_BASE`].
pub fn random_owner() -> u32 {
    OWNER_BASE + random_below(OWNER_COUNT)
}

pub(super) fn random_below(bound: u32) -> u32 {
    // The standard library seeds its hash maps with random numbers. The result need not be secret.
    let random = RandomState::new().build_hasher().finish();
    u32::try_from(random % u64::from(bound)).expect("the rest is less than the divisor")
}

/// Runs `act` with all signals of this thread blocked, and therefore also blocked in a process that it creates.
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

/// A thread that may visit network namespaces. Create one only on our own thread, never on one of the async runtime.
#[derive(Debug)]
pub(super) struct NamespaceVisitor {
    home: OwnedFd,
    /// The namespace belongs to the thread, so this may not move to another.
    _bound_to_this_thread: PhantomData<*const ()>,
}

impl NamespaceVisitor {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { home: current()?, _bound_to_this_thread: PhantomData })
    }

    /// Runs `act` inside `namespace`.
    pub(super) fn visit<T>(
        &self,
        namespace: BorrowedFd<'_>,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let _return = ReturnGuard(&self.home);
        enter(namespace)?;
        act()
    }

    /// Creates a network namespace, runs `act` inside it, and returns the namespace and the result of `act`.
    pub(super) fn visit_new<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<(OwnedFd, T)> {
        let _return = ReturnGuard(&self.home);
        // SAFETY: only the network namespace changes, and none of our code assumes which one a thread is in.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok((current()?, act()?))
    }
}

/// Returns the thread to its own namespace, also when `act` failed or panicked.
struct ReturnGuard<'a>(&'a OwnedFd);

impl Drop for ReturnGuard<'_> {
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
    fn the_thread_returns_to_its_namespace_even_when_a_visit_fails() {
        let visitor = NamespaceVisitor::new().unwrap();
        let home = own_inode();
        let (namespace, inside) = visitor.visit_new(|| Ok(own_inode())).unwrap();
        assert_eq!((inside, own_inode()), (inode(&namespace), home));
        assert_ne!(inside, home);
        assert_eq!(visitor.visit(namespace.as_fd(), || Ok(own_inode())).unwrap(), inside);
        let failed: io::Result<()> = visitor.visit(namespace.as_fd(), || Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        assert_eq!(own_inode(), home);
    }

    #[test]
    fn a_new_pair_maps_the_uids_and_leaves_no_process() {
        let pair = make_pair(UID_BASE).unwrap();
        assert_ne!(inode(&pair.net), own_inode());
        assert_ne!(inode(&pair.user), fs::metadata("/proc/self/ns/user").unwrap().st_ino());
        let children = fs::read_to_string("/proc/thread-self/children").unwrap();
        assert_eq!(children, "", "the process that held the namespaces has ended and was reaped");
    }

    /// Otherwise one sandbox could use up the kernel's quota for all namespaces of one owner.
    #[test]
    fn every_user_namespace_has_its_own_owner_and_the_thread_stays_root() {
        const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
        let owner = |pair: &Pair| {
            let mut uid = 0_u32;
            // SAFETY: the kernel writes one uid to the given address.
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
    fn many_threads_create_pairs_at_once() {
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
