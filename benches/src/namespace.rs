//! Separate network namespaces, in which the egress of a sandbox is measured and compared with a direct connection.
//!
//! ```text
//! sandbox ──veth──► gateway ──┐
//!                             ├──► ours: the egress process, and an upstream at `UPSTREAM`
//! another ──veth, `DIRECT`────┘
//! ```

use std::fs::File;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::BenchError;
use crate::report::Figure;

/// The address of the upstream, for sandboxes.
pub(crate) const UPSTREAM: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// The address of the upstream, for a namespace that is connected to ours.
pub(crate) const DIRECT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 129);

/// Measures on a separate thread that moves to a new network namespace, together with everything it starts.
pub(crate) async fn measure_apart(
    measure: impl AsyncFnOnce() -> Result<Vec<Figure>, BenchError> + Send + 'static,
) -> Result<Vec<Figure>, BenchError> {
    let thread = thread::spawn(move || -> Result<Vec<Figure>, BenchError> {
        let world = Namespace::new()?;
        world.enter()?;
        run("ip link set lo up; ip addr add 198.51.100.10/32 dev lo")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(BenchError::io("start", "a runtime"))?.block_on(measure())
    });
    let waiting = tokio::task::spawn_blocking(move || thread.join());
    let outcome = waiting.await.expect("waiting does not panic");
    outcome.unwrap_or_else(|_| Err(wrong("the measuring thread panicked")))
}

/// Gives this thread, and processes that it starts from now on, a separate mount namespace.
pub(crate) fn leave_mounts() -> Result<(), BenchError> {
    #[expect(unsafe_code, reason = "a thread leaves what it shared with the others of its process")]
    // SAFETY: descriptors stay shared; only the root, the working directory and the mounts change, and no memory
    // depends on those.
    let left = unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) };
    left.map_err(|errno| BenchError::io("leave", "the host's mounts")(errno.into()))?;
    // Mounts from here on are not visible on the host.
    run("mount --make-rprivate /")
}

/// A network namespace, kept by a process that sleeps in it.
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: Child,
    file: File,
}

impl Namespace {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 3600"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = holder.map_err(BenchError::io("start", "unshare"))?;
        // Its first output shows that it is in its namespace.
        let said = holder.stdout.as_mut().map(|stdout| stdout.read_exact(&mut [0]));
        let path = format!("/proc/{}/ns/net", holder.id());
        let file = File::open(&path).map_err(BenchError::io("open", path));
        match (said, file) {
            (Some(Ok(())), Ok(file)) => Ok(Self { holder, file }),
            (_, file) => {
                end(&mut holder);
                file.and(Err(wrong("a namespace could not be made")))
            }
        }
    }

    fn enter(&self) -> Result<(), BenchError> {
        let entered = move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network));
        entered.map_err(|error| BenchError::io("enter", "a namespace")(error.into()))
    }

    /// A veth pair between this namespace and our current one.
    pub(crate) fn connect_to_us(&self) -> Result<(), BenchError> {
        run(&format!("ip link add direct0 type veth peer name direct1 netns {}", self.holder.id()))?;
        run("ip addr add 198.51.100.129/30 dev direct0; ip link set direct0 up")?;
        let there = "ip link set lo up; ip addr add 198.51.100.130/30 dev direct1; ip link set direct1 up";
        self.inside().run(|| run(there))
    }

    pub(crate) fn inside(&self) -> NamespaceHandle {
        NamespaceHandle(self.file.try_clone().expect("a descriptor can be copied").into())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        end(&mut self.holder);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A handle to a namespace.
#[derive(Debug)]
pub(crate) struct NamespaceHandle(OwnedFd);

impl NamespaceHandle {
    pub(crate) fn of(namespace: OwnedFd) -> Self {
        Self(namespace)
    }

    pub(crate) fn again(&self) -> Self {
        Self(self.0.try_clone().expect("a descriptor can be copied"))
    }

    /// Runs `act` there, on a thread that is not used for anything else.
    pub(crate) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let visit = || {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter a namespace of its own");
                act()
            };
            scope.spawn(visit).join().expect("the visitor does not panic")
        })
    }
}

pub(crate) fn run(line: &str) -> Result<(), BenchError> {
    let output = Command::new("sh").args(["-ec", line]).output().map_err(BenchError::io("run", line))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::Command { command: line.to_owned(), status: output.status, message })
}

pub(crate) fn resident_mib(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(BenchError::io("read", path))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<f64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| wrong("the process has no resident memory"))
}

fn wrong(what: &str) -> BenchError {
    BenchError::WrongAnswer { what: what.to_owned() }
}
