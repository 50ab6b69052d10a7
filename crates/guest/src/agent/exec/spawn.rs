//! Starts a process for the host: validation, user, environment, descriptors, fork, result.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Exec;
use super::child::{self, ForkedChild, Plan, Stdio, Step};
use super::log::{Log, Stream};
use super::pump::{Pump, Source};
use super::stdin::Stdin;
use super::timeout::Timeout;
use crate::agent::failure::{describe, fail, invalid, refused};
use crate::agent::users::{self, User};
use crate::agent::watched_fd::{WatchedFd, watch};
use crate::agent::{Agent, clock, random};
use crate::protocol::{ErrorCode, ExecStart, ReadMode, RequestError, StdinMode, TerminalSize};

const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The number of directories of PATH that are tried.
const PATH_PARTS_MAX: usize = 256;

/// How long a child may take from `fork` to `execve`, which reads a program from the disk. It takes that long only if
/// a process inside stops it, or in an emulated machine on a host whose disk is busy for seconds. The host waits five
/// seconds longer.
const VERDICT_WAIT_MAX: Duration = Duration::from_secs(25);

/// Longest id: the host's are 23.
const ID_BYTES_MAX: usize = 64;

/// How much of a command line [`super::ExecInfo`] repeats, so that a list of execs fits an answer.
const ARGV_SHOWN_BYTES_MAX: usize = 512;

/// Starts the process, or returns the one that was started with this id before.
pub(in crate::agent) async fn start(agent: &Rc<Agent>, request: ExecStart) -> Result<Rc<Exec>, RequestError> {
    let join = agent.group.as_ref().map(|group| group.tasks().as_raw_fd());
    start_in(agent, request, join).await
}

async fn start_in(
    agent: &Rc<Agent>,
    request: ExecStart,
    join: Option<RawFd>,
) -> Result<Rc<Exec>, RequestError> {
    check(&request)?;
    if let Some(exec) = agent.execs.find(&request.exec) {
        return Ok(exec);
    }
    if agent.is_shutting_down() {
        return Err(fail(ErrorCode::Ended, "the sandbox is shutting down"));
    }
    agent.execs.admit(request.terminal.is_some())?;
    let user = users::resolve(request.user.as_deref())?;
    let plan = plan(agent, &request, &user, join)?;
    let ends = StreamEnds::open(&request, &user)?;
    let forked =
        child::fork(&plan, &ends.stdio()).map_err(|errno| refused("fork for", &request.argv[0], errno))?;
    // There is no await since the fork, so the reaper cannot have run in between.
    let (exec, verdict) = register(agent, &request, ends, forked)?;
    agent.meminfo.refresh();
    match read_verdict(verdict).await {
        Ok(()) => Ok(exec),
        Err(verdict) => {
            let _ = exec.signal(libc::SIGKILL, false);
            agent.execs.forget(&exec);
            Err(explain(verdict, &request))
        }
    }
}

/// Runs a program of the sandbox for the agent's own purposes, until it ends or `wait_max` has passed. The host does
/// not see the exec, and its outcome is ignored.
pub(in crate::agent) async fn run_quietly(agent: &Rc<Agent>, argv: &[&str], wait_max: Duration) {
    let request = ExecStart {
        exec: random::new_id(),
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: Some("/".to_owned()),
        user: None,
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: None,
        ring_bytes: 0,
        attach: None,
        hold: false,
        then_stop: false,
    };
    // Outside the control group of the other processes, which may be frozen.
    let Ok(exec) = start_in(agent, request, None).await else { return };
    agent.execs.forget(&exec);
    if tokio::time::timeout(wait_max, exec.wait_ended()).await.is_err() {
        // It may have ended already.
        let _ = exec.signal(libc::SIGKILL, true);
    }
}

fn check(request: &ExecStart) -> Result<(), RequestError> {
    let id = &request.exec;
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(invalid(format_args!("`{id}` is not a valid exec id")));
    }
    match request.argv.first() {
        None => return Err(invalid("the command is empty")),
        Some(program) if program.is_empty() => return Err(invalid("the program's name is empty")),
        Some(_) => {}
    }
    for name in request.env.keys() {
        if name.is_empty() || name.contains('=') {
            return Err(invalid(format_args!("`{name}` is not a valid name of an environment variable")));
        }
    }
    if request.cwd.as_ref().is_some_and(|cwd| !cwd.starts_with('/')) {
        return Err(invalid("the working directory is not an absolute path"));
    }
    Ok(())
}

fn plan(agent: &Agent, request: &ExecStart, user: &User, join: Option<RawFd>) -> Result<Plan, RequestError> {
    let env = environment(request, user);
    let path = env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
    let argv = request.argv.iter().map(|argument| c_string(argument)).collect::<Result<_, _>>()?;
    let candidates = candidates(&request.argv[0], path)?;
    let env =
        env.iter().map(|(name, value)| c_string(&format!("{name}={value}"))).collect::<Result<_, _>>()?;
    Ok(Plan {
        candidates,
        argv,
        env,
        uid: user.uid,
        gid: user.gid,
        groups: user.groups.clone(),
        cwd: working_directory(request, user)?,
        terminal: request.terminal.is_some(),
        open_files: agent.boot.open_files,
        join,
    })
}

fn environment(request: &ExecStart, user: &User) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = [
        ("PATH", PATH_DEFAULT),
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", &user.shell),
        ("LANG", "C.UTF-8"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    if request.terminal.is_some() {
        env.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    env.extend(request.env.clone());
    env
}

fn candidates(program: &str, path: &str) -> Result<Vec<CString>, RequestError> {
    if program.contains('/') {
        return Ok(vec![c_string(program)?]);
    }
    path.split(':')
        .take(PATH_PARTS_MAX)
        .map(|part| c_string(&format!("{}/{program}", if part.is_empty() { "." } else { part })))
        .collect()
}

/// Opens the directory the process starts in.
///
/// Magic links are refused: `/proc/self/fd/N` would be resolved as the agent, and would give the process one of the
/// agent's descriptors (in runc, this allowed the escape CVE-2024-21626).
fn working_directory(request: &ExecStart, user: &User) -> Result<OwnedFd, RequestError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &str| rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    let Some(cwd) = request.cwd.as_deref() else {
        let home = open(&user.home).or_else(|_| open("/"));
        return home.map_err(|errno| refused("open the working directory", "/", errno));
    };
    let directory = open(&c_string(cwd)?.to_string_lossy())
        .map_err(|errno| refused("open the working directory", cwd, errno))?;
    if is_descriptor_directory(&directory) {
        return Err(invalid(format_args!(
            "`{cwd}` cannot be a working directory: it is a directory of file descriptors"
        )));
    }
    Ok(directory)
}

/// Whether this is a directory of file descriptors, which expose the agent's.
fn is_descriptor_directory(directory: &OwnedFd) -> bool {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let Ok(path) = rustix::fs::readlink(link, Vec::new()) else { return false };
    let path = path.to_string_lossy();
    path.starts_with("/proc/") && path.split('/').any(|part| matches!(part, "fd" | "fdinfo" | "map_files"))
}

fn c_string(text: &str) -> Result<CString, RequestError> {
    CString::new(text).map_err(|_| invalid(format_args!("`{text}` contains a NUL byte")))
}

/// Both ends of a new process's standard streams.
struct StreamEnds {
    child_stdin: OwnedFd,
    child_stdout: OwnedFd,
    child_stderr: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    terminal: bool,
}

impl StreamEnds {
    fn open(request: &ExecStart, user: &User) -> Result<Self, RequestError> {
        let failed = |errno| refused("open the standard streams of", &request.argv[0], errno);
        match request.terminal {
            Some(size) => Self::terminal(request.stdin, size, user).map_err(failed),
            None => Self::pipes(request.stdin).map_err(failed),
        }
    }

    fn pipes(stdin: StdinMode) -> Result<Self, Errno> {
        let (child_stdin, stdin) = match stdin {
            StdinMode::Null => (null()?, None),
            StdinMode::Pipe => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&write, true)?;
                (read, Some(write))
            }
        };
        let (stdout, child_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only on the agent's ends: programs do not expect EAGAIN on theirs.
        rustix::io::ioctl_fionbio(&stdout, true)?;
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let child_stderr = Some(child_stderr);
        Ok(Self {
            child_stdin,
            child_stdout,
            child_stderr,
            stdin,
            stdout,
            stderr: Some(stderr),
            terminal: false,
        })
    }

    fn terminal(stdin: StdinMode, size: TerminalSize, user: &User) -> Result<Self, Errno> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size)?;
        // Makes the terminal erase all bytes of a UTF-8 character at once.
        let mut termios = rustix::termios::tcgetattr(&slave)?;
        termios.input_modes |= InputModes::IUTF8;
        rustix::termios::tcsetattr(&slave, OptionalActions::Now, &termios)?;
        // `sudo`, `mesg` and the like check the owner of the terminal. Some file systems refuse to change it; the
        // terminal still works.
        let _ = rustix::fs::fchown(&slave, Some(rustix::fs::Uid::from_raw(user.uid)), None);
        rustix::io::ioctl_fionbio(&master, true)?;
        let child_stdin = match stdin {
            StdinMode::Null => null()?,
            StdinMode::Pipe => slave.try_clone().map_err(|_| Errno::MFILE)?,
        };
        Ok(Self {
            child_stdin,
            child_stdout: slave,
            child_stderr: None,
            stdin: None,
            stdout: master,
            stderr: None,
            terminal: true,
        })
    }

    fn stdio(&self) -> Stdio<'_> {
        Stdio {
            stdin: self.child_stdin.as_fd(),
            stdout: self.child_stdout.as_fd(),
            stderr: self.child_stderr.as_ref().map_or(self.child_stdout.as_fd(), AsFd::as_fd),
        }
    }
}

fn null() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Registers the exec of a forked child, and starts its pump.
fn register(
    agent: &Rc<Agent>,
    request: &ExecStart,
    ends: StreamEnds,
    forked: ForkedChild,
) -> Result<(Rc<Exec>, WatchedFd), RequestError> {
    let pid = forked.pid;
    build(agent, request, ends, forked).map_err(|error| {
        // Its output could not be read, so the process is not kept. The reaper collects it.
        let _ = crate::agent::signals::send(pid, libc::SIGKILL);
        fail(
            ErrorCode::TooMany,
            format_args!("could not watch the streams of `{}`: {error}", request.argv[0]),
        )
    })
}

fn build(
    agent: &Rc<Agent>,
    request: &ExecStart,
    ends: StreamEnds,
    forked: ForkedChild,
) -> std::io::Result<(Rc<Exec>, WatchedFd)> {
    let interest = if ends.terminal { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    let stdout = Rc::new(watch(ends.stdout, interest)?);
    let stderr = ends.stderr.map(|fd| watch(fd, Interest::READABLE)).transpose()?.map(Rc::new);
    let stdin = ends.stdin.map(|fd| watch(fd, Interest::WRITABLE)).transpose()?;
    let terminal = ends.terminal.then(|| Rc::clone(&stdout));
    let stdin = match (stdin, &terminal, request.stdin) {
        (Some(pipe), _, _) => Some(Stdin::Pipe(pipe)),
        (None, Some(terminal), StdinMode::Pipe) => Some(Stdin::Terminal(Rc::clone(terminal))),
        (None, _, StdinMode::Pipe | StdinMode::Null) => None,
    };
    let verdict = watch(forked.verdict, Interest::READABLE)?;
    let exec = Rc::new(Exec {
        id: request.exec.clone(),
        argv: shown(&request.argv),
        pid: forked.pid,
        started_ms: clock::unix_ms(),
        started_boot_us: clock::boot_us(),
        terminal,
        stdin: tokio::sync::Mutex::new(stdin),
        log: RefCell::new(Log::new(request.ring_bytes)),
        held: Cell::new(None),
        reaped: Cell::new(None),
        outcome: RefCell::new(None),
        output_done: Cell::new(false),
        timed_out: Cell::new(false),
        killed_here: Cell::new(false),
        supervised: Cell::new(false),
        readers: Cell::new(0),
        active_ms: Cell::new(clock::awake_ms()),
        forgotten: Cell::new(false),
        changed: Notify::new(),
        room: Notify::new(),
        exited: Notify::new(),
    });
    if request.hold || request.attach == Some(ReadMode::Lossless) {
        exec.hold();
    }
    agent.execs.insert(&exec);
    let pump = Pump {
        agent: Rc::clone(agent),
        exec: Rc::clone(&exec),
        stdout: Some(Source { stream: Stream::Stdout, fd: stdout }),
        stderr: stderr.map(|fd| Source { stream: Stream::Stderr, fd }),
        timeout: request.timeout_ms.map(|ms| Timeout::starting_at(Instant::now(), Duration::from_millis(ms))),
        then_stop: request.then_stop,
    };
    // Ends when the output is read, or with the agent.
    drop(tokio::task::spawn_local(pump.run()));
    Ok((exec, verdict))
}

/// The part of the command line that is shown.
fn shown(argv: &[String]) -> Vec<String> {
    let mut room = ARGV_SHOWN_BYTES_MAX;
    let mut shown = Vec::new();
    for argument in argv {
        let cut: String = argument.chars().take(room).collect();
        let whole = cut.len() == argument.len();
        room = room.saturating_sub(cut.len() + 1);
        shown.push(if whole { cut } else { format!("{cut}…") });
        if room == 0 {
            break;
        }
    }
    shown
}

/// Why a child does not run the program.
enum Verdict {
    Failed(Step, Errno),
    TooSlow,
}

async fn read_verdict(verdict: WatchedFd) -> Result<(), Verdict> {
    let read = async {
        let mut bytes = [0u8; 8];
        loop {
            let mut ready = verdict.readable().await.map_err(|_| Verdict::TooSlow)?;
            match rustix::io::read(verdict.get_ref(), &mut bytes) {
                Ok(8) => {
                    let (step, errno) = child::parse_verdict(bytes);
                    return Err(Verdict::Failed(step, errno));
                }
                // Closed by `execve`, or because the child died, which the reaper reports.
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Verdict::Failed(Step::Prepare, errno)),
            }
        }
    };
    tokio::time::timeout(VERDICT_WAIT_MAX, read).await.unwrap_or(Err(Verdict::TooSlow))
}

fn explain(verdict: Verdict, request: &ExecStart) -> RequestError {
    let program = &request.argv[0];
    match verdict {
        Verdict::Failed(Step::Execute, errno) if errno == Errno::TOOBIG => {
            fail(ErrorCode::TooLarge, format_args!("could not execute `{program}`: {}", describe(errno)))
        }
        Verdict::Failed(Step::Execute, errno) if errno == Errno::NOENT => {
            fail(ErrorCode::NoProgram, format_args!("could not execute `{program}`: {}", describe(errno)))
        }
        Verdict::Failed(Step::Execute, errno) => {
            fail(ErrorCode::CannotExecute, format_args!("could not execute `{program}`: {}", describe(errno)))
        }
        Verdict::Failed(Step::Directory, errno) => {
            refused("enter the working directory", request.cwd.as_deref().unwrap_or("/"), errno)
        }
        Verdict::Failed(Step::User, errno) => {
            refused("switch to the user", request.user.as_deref().unwrap_or("root"), errno)
        }
        Verdict::Failed(Step::Terminal, errno) => refused("set the controlling terminal for", program, errno),
        Verdict::Failed(Step::Prepare, errno) => refused("prepare", program, errno),
        Verdict::TooSlow => {
            fail(ErrorCode::Internal, format_args!("`{program}` was stopped before it could start"))
        }
    }
}
