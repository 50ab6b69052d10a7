//! A stand-in for the guest agent: a PID 1 that executes the commands of its boot document and records the results.
//!
//! Compiled by the tests, statically, with only the standard library. The document has one command per line; the
//! answers are written to `/out`, one line each, in order. Afterwards it reports, and then counts in `/count` forever,
//! from a number that exists only in its RAM.

use std::fs;
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn dup2(from: i32, to: i32) -> i32;
    fn prctl(option: i32, ...) -> i32;
    fn poll(descriptors: *mut PollDescriptor, count: u64, milliseconds: i32) -> i32;
}

#[repr(C)]
struct PollDescriptor {
    descriptor: i32,
    events: i16,
    returned: i16,
}

const WNOHANG: i32 = 1;
const SIGKILL: i32 = 9;

fn main() {
    let mut document = String::new();
    std::io::stdin().read_to_string(&mut document).unwrap();
    let mut out = String::new();
    let mut report = r#"{"kind":"ready"}"#;
    for line in document.lines() {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["fail"] => report = r#"{"kind":"failed","step":"follow the document","message":"failed on request"}"#,
            ["die"] => std::process::exit(3),
            ["hang"] => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            _ => {
                out.push_str(&answer(&words).replace('\n', "\\n"));
                out.push('\n');
            }
        }
    }
    if !out.is_empty() {
        fs::write("/out", out).unwrap();
    }
    unsafe { dup2(0, 100) };
    let null = fs::OpenOptions::new().read(true).open("/dev/null").unwrap();
    unsafe { dup2(null.as_raw_fd(), 0) };
    drop(null);
    // By descriptor: the socket cannot be opened by its name in /proc.
    unsafe { syscall(SYS_WRITE, 100i64, report.as_ptr(), report.len()) };
    unsafe { syscall(SYS_CLOSE, 100i64) };
    count("/count");
}

/// A process that sleeps, without the boot socket: that leads out of the machine, and a process with it cannot be
/// dumped.
fn sleeper() -> i32 {
    let child = unsafe { fork() };
    if child == 0 {
        let null = fs::File::open("/dev/null").unwrap();
        unsafe { dup2(null.as_raw_fd(), 0) };
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    child
}

/// A child that runs `work` forever.
fn lone_child(work: impl FnOnce()) -> String {
    let child = unsafe { fork() };
    if child == 0 {
        let null = fs::File::open("/dev/null").unwrap();
        unsafe { dup2(null.as_raw_fd(), 0) };
        work();
    }
    child.to_string()
}

/// State that a dump and a restore must not disturb: a number in RAM, and a copy on disk.
fn count(path: &str) -> ! {
    let mut number: u64 = 0;
    let start = std::hint::black_box(0xb0_44_0e_77u64);
    loop {
        number += 1;
        let temporary = format!("{path}.new");
        fs::write(&temporary, format!("{number} {start:x}")).unwrap();
        fs::rename(&temporary, path).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn answer(words: &[&str]) -> String {
    match words {
        ["cat", path] => {
            fs::read(path).map_or_else(show, |content| String::from_utf8_lossy(&content).into_owned())
        }
        ["ls", path] => match fs::read_dir(path) {
            Ok(entries) => {
                let mut names: Vec<_> =
                    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
                names.sort();
                names.join(" ")
            }
            Err(error) => show(error),
        },
        ["stat", path] => fs::symlink_metadata(path)
            .map_or_else(show, |m| format!("{}:{} {:o} rdev {:x}", m.uid(), m.gid(), m.mode(), m.rdev())),
        ["write", path, text] => match fs::OpenOptions::new().write(true).open(path) {
            Ok(mut file) => file.write_all(text.as_bytes()).map_or_else(show, |()| "ok".to_owned()),
            Err(error) => show(error),
        },
        ["readlink", path] => fs::read_link(path).map_or_else(show, |target| target.display().to_string()),
        ["mknod", path, mode, device] => {
            let path = format!("{path}\0");
            let mode = i64::from_str_radix(mode, 8).unwrap();
            let device: i64 = device.parse().unwrap();
            result_of(unsafe { syscall(SYS_MKNODAT, -100i64, path.as_ptr(), mode, device) })
        }
        ["remove", path] => fs::remove_file(path).map_or_else(show, |()| "ok".to_owned()),
        ["rename", from, to] => fs::rename(from, to).map_or_else(show, |()| "ok".to_owned()),
        ["read", path, bytes] => {
            let mut buffer = vec![0; bytes.parse().unwrap()];
            match fs::File::open(path).and_then(|mut file| file.read(&mut buffer)) {
                Ok(read) => format!("{read}"),
                Err(error) => show(error),
            }
        }
        ["call", rest @ ..] => call(rest),
        ["calls", most] => calls(most.parse().unwrap()),
        ["trace-init"] => trace_init(),
        ["eat", mib] => in_child(|| {
            let mut pages = vec![0u8; mib.parse::<usize>().unwrap() << 20];
            for at in (0..pages.len()).step_by(4096) {
                pages[at] = 1;
            }
            std::hint::black_box(&pages);
        }),
        ["forks", most] => forks(most.parse().unwrap()),
        ["int80"] => int80(),
        ["in-flight", count] => in_flight(count.parse().unwrap()),
        ["send-limited", limit] => in_child_status(|| {
            limit_to(RLIMIT_NOFILE, limit);
            let (one, _other) = UnixStream::pair().unwrap();
            errno_of(send_descriptors(&one, 1))
        }),
        ["crowd", count] => {
            // Their parent changes its user first, so all of them count for the user when this returns.
            in_child(|| {
                become_user();
                for _ in 0..count.parse::<usize>().unwrap() {
                    lone_child(|| {
                        loop {
                            std::thread::sleep(Duration::from_secs(1));
                        }
                    });
                }
            })
        }
        ["fork-limited", limit] => in_child_status(|| {
            become_user();
            limit_to(RLIMIT_NPROC, limit);
            match unsafe { fork() } {
                0 => unsafe { _exit(0) },
                child => errno_of(child.into()),
            }
        }),
        ["queue", count] => {
            block_signals();
            result_of((0..count.parse::<usize>().unwrap()).map(|_| queue_signal()).min().unwrap())
        }
        ["queue-limited", limit] => in_child_status(|| {
            block_signals();
            limit_to(RLIMIT_SIGPENDING, limit);
            errno_of(queue_signal())
        }),
        ["message-queues", count] => {
            let opened = (0..count.parse::<usize>().unwrap()).map(|at| open_message_queue(&format!("held-{at}")));
            result_of(opened.min().unwrap().min(0))
        }
        ["message-queue-limited", limit] => in_child_status(|| {
            limit_to(RLIMIT_MSGQUEUE, limit);
            errno_of(open_message_queue("limited"))
        }),
        ["hold", port] => hold(port.parse().unwrap()),
        ["close"] => format!("{}", unsafe { prctl(4, 0i64, 0i64, 0i64, 0i64) }),
        ["keep", mib] => {
            // Without a pattern that a dump could leave out, and never freed.
            let bytes: Vec<u8> =
                (0..mib.parse::<usize>().unwrap() << 20).map(|at| (at % 251) as u8).collect();
            std::mem::forget(std::hint::black_box(bytes));
            "ok".to_owned()
        }
        ["second"] => lone_child(|| count("/second")),
        ["count-in", path] => lone_child(|| count(path)),
        ["hold-open", path] => lone_child(|| {
            let held = fs::File::create(path).unwrap();
            loop {
                std::thread::sleep(Duration::from_secs(1));
                std::hint::black_box(&held);
            }
        }),
        ["listen", path] => lone_child(|| {
            let listener = UnixListener::bind(path).unwrap();
            loop {
                std::thread::sleep(Duration::from_secs(1));
                std::hint::black_box(&listener);
            }
        }),
        ["sleeps", milliseconds, copies] => {
            let (milliseconds, copies) = (milliseconds.parse().unwrap(), copies.parse().unwrap());
            lone_child(|| sleeps(milliseconds, copies))
        }
        ["call-on", path, rest @ ..] => lone_child(|| {
            loop {
                let fresh = format!("{path}.new");
                fs::write(&fresh, call(rest)).unwrap();
                fs::rename(&fresh, path).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        }),
        ["traced"] => {
            let child = sleeper();
            // PTRACE_SEIZE
            result_of(unsafe { syscall(SYS_PTRACE, 0x4206i64, i64::from(child), 0i64, 0i64) })
        }
        ["deleted", mib] => {
            let file = fs::File::create("/large").unwrap();
            let bytes = mib.parse::<i64>().unwrap() << 20;
            let done = unsafe { syscall(SYS_FALLOCATE, file.as_raw_fd() as i64, 0i64, 0i64, bytes) };
            fs::remove_file("/large").unwrap();
            std::mem::forget(file);
            result_of(done)
        }
        ["spawn", program, rest @ ..] => {
            let log = fs::OpenOptions::new().append(true).create(true).open("/log").unwrap();
            let spawned = std::process::Command::new(program)
                .args(rest)
                .stdin(std::process::Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn();
            spawned.map_or_else(show, |child| child.id().to_string())
        }
        other => format!("no such command: {other:?}"),
    }
}

fn show(error: std::io::Error) -> String {
    format!("errno {}", error.raw_os_error().unwrap_or(-1))
}

fn result_of(value: i64) -> String {
    if value < 0 { show(std::io::Error::last_os_error()) } else { format!("{value}") }
}

fn errno_of(value: i64) -> i32 {
    if value < 0 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
}

/// Sends this many descriptors to itself, and never receives them.
fn in_flight(count: usize) -> String {
    let (one, other) = UnixStream::pair().unwrap();
    let mut sent = 0;
    while sent < count {
        let some = (count - sent).min(DESCRIPTORS_MAX);
        let done = send_descriptors(&one, some);
        if done < 0 {
            return result_of(done);
        }
        sent += some;
    }
    std::mem::forget((one, other));
    "ok".to_owned()
}

/// One message with this many copies of a descriptor.
fn send_descriptors(socket: &UnixStream, count: usize) -> i64 {
    // SOL_SOCKET and SCM_RIGHTS, in one word.
    let mut control = vec![16 + 4 * count as u64, 1 | 1 << 32];
    control.resize(2 + count.div_ceil(2), 0);
    let descriptor = socket.as_raw_fd();
    for at in 0..count {
        control[2 + at / 2] |= (descriptor as u64) << (32 * (at % 2));
    }
    let byte = [0u8];
    let part = [byte.as_ptr() as u64, 1];
    let message = [0, 0, part.as_ptr() as u64, 1, control.as_ptr() as u64, 16 + 4 * count as u64, 0];
    unsafe { syscall(SYS_SENDMSG, i64::from(descriptor), message.as_ptr(), 0i64) }
}

/// Waits in every way that has a timeout, several times, each in a separate thread and a bit longer than the one
/// before. Records the result, the elapsed milliseconds, and the requested ones.
fn sleeps(milliseconds: i64, copies: i64) {
    let waits: [(&'static str, fn([i64; 2]) -> i64); 9] = [
        ("nanosleep", |wanted| {
            let mut left = [0i64; 2];
            unsafe { syscall(SYS_NANOSLEEP, wanted.as_ptr(), left.as_mut_ptr()) }
        }),
        ("nanosleep-without-remainder", |wanted| unsafe { syscall(SYS_NANOSLEEP, wanted.as_ptr(), 0i64) }),
        ("nanosleep-in-place", |mut wanted| unsafe {
            syscall(SYS_NANOSLEEP, wanted.as_mut_ptr(), wanted.as_mut_ptr())
        }),
        ("realtime", |wanted| {
            let mut left = [0i64; 2];
            unsafe { syscall(SYS_CLOCK_NANOSLEEP, 0i64, 0i64, wanted.as_ptr(), left.as_mut_ptr()) }
        }),
        ("boottime", |wanted| unsafe { syscall(SYS_CLOCK_NANOSLEEP, 7i64, 0i64, wanted.as_ptr(), 0i64) }),
        ("absolute", |wanted| {
            let now = monotonic();
            let nanoseconds = now[1] + wanted[1];
            let until = [now[0] + wanted[0] + nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
            unsafe { syscall(SYS_CLOCK_NANOSLEEP, 1i64, 1i64, until.as_ptr(), 0i64) }
        }),
        ("poll", |wanted| unsafe { syscall(SYS_PPOLL, 0i64, 0i64, wanted.as_ptr(), 0i64, 8i64) }),
        ("endless-poll", |wanted| {
            let (one, other) = UnixStream::pair().unwrap();
            let milliseconds = wanted[0] * 1000 + wanted[1] / 1_000_000;
            let writer = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(milliseconds.unsigned_abs()));
                (&other).write_all(b"x").unwrap();
                other
            });
            // POLLIN
            let mut polled = PollDescriptor { descriptor: one.as_raw_fd(), events: 1, returned: 0 };
            let value = unsafe { poll(&raw mut polled, 1, -1) };
            // The end of the writer must not change `errno`.
            if value > 0 {
                drop(writer.join());
            }
            i64::from(value)
        }),
        ("futex", |wanted| {
            let word = 0u32;
            // FUTEX_WAIT_PRIVATE
            unsafe { syscall(SYS_FUTEX, &word, 128i64, 0i64, wanted.as_ptr()) }
        }),
    ];
    let mut threads = Vec::new();
    for copy in 0..copies {
        for (name, wait) in waits {
            let milliseconds = milliseconds + 61 * i64::try_from(threads.len()).unwrap();
            threads.push(std::thread::spawn(move || {
                let begin = monotonic();
                let errno = errno_of(wait([milliseconds / 1000, milliseconds % 1000 * 1_000_000]));
                let end = monotonic();
                let took = (end[0] - begin[0]) * 1000 + (end[1] - begin[1]) / 1_000_000;
                let path = format!("/slept-{name}-{copy}");
                let fresh = format!("{path}.new");
                fs::write(&fresh, format!("{errno} {took} {milliseconds}")).unwrap();
                fs::rename(&fresh, path).unwrap();
            }));
        }
    }
    fs::write("/sleeping", "").unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    unsafe { _exit(0) }
}

fn monotonic() -> [i64; 2] {
    let mut now = [0i64; 2];
    assert_eq!(unsafe { syscall(SYS_CLOCK_GETTIME, 1i64, now.as_mut_ptr()) }, 0);
    now
}

fn become_user() {
    unsafe {
        assert_eq!(syscall(SYS_SETRESGID, 1000i64, 1000i64, 1000i64), 0);
        assert_eq!(syscall(SYS_SETRESUID, 1000i64, 1000i64, 1000i64), 0);
    }
}

fn limit_to(kind: i64, limit: &str) {
    let limits = [limit.parse::<u64>().unwrap(); 2];
    assert_eq!(unsafe { syscall(SYS_PRLIMIT64, 0i64, kind, limits.as_ptr(), 0i64) }, 0);
}

fn block_signals() {
    let all = u64::MAX;
    assert_eq!(unsafe { syscall(SYS_RT_SIGPROCMASK, 0i64, &all, 0i64, 8i64) }, 0);
}

/// A real-time signal to itself, which is queued each time.
fn queue_signal() -> i64 {
    let mut about = [0i32; 32];
    // SI_QUEUE
    about[2] = -1;
    unsafe { syscall(SYS_RT_SIGQUEUEINFO, i64::from(std::process::id()), 40i64, about.as_ptr()) }
}

/// A new message queue with the largest attributes that the kernel allows by default, which count as about 82 KB.
fn open_message_queue(name: &str) -> i64 {
    let name = format!("{name}\0");
    // The flags, the most messages, the bytes of each, the present messages; the rest is reserved.
    let attributes = [0i64, 10, 8192, 0, 0, 0, 0, 0];
    // O_RDWR | O_CREAT | O_EXCL
    unsafe { syscall(SYS_MQ_OPEN, name.as_ptr(), 0o302i64, 0o600i64, attributes.as_ptr()) }
}

fn call(words: &[&str]) -> String {
    let mut arguments = [0i64; 7];
    for (slot, word) in arguments.iter_mut().zip(words) {
        *slot = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap() as i64,
            None => word.parse().unwrap(),
        };
    }
    let [number, a, b, c, d, e, f] = arguments;
    result_of(unsafe { syscall(number, a, b, c, d, e, f) })
}

/// The errno of every system call with invalid arguments, each tried in a separate process: `number:errno`, where 0 is
/// success or no return.
fn calls(most: i64) -> String {
    let mut found = Vec::new();
    for number in 0..=most {
        let child = unsafe { fork() };
        if child == 0 {
            unsafe {
                let value = syscall(number, -1i64, -1i64, -1i64, -1i64, -1i64, -1i64);
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                _exit(if value == -1 { errno.min(255) } else { 0 });
            }
        }
        let mut status = 0;
        let mut looks = 0;
        loop {
            if unsafe { waitpid(child, &mut status, WNOHANG) } == child {
                break;
            }
            looks += 1;
            if looks > 200 {
                unsafe {
                    kill(child, SIGKILL);
                    waitpid(child, &mut status, 0);
                }
                status = 0;
                break;
            }
            std::thread::sleep(Duration::from_micros(if looks < 50 { 50 } else { 500 }));
        }
        let errno = if status & 0x7f == 0 { status >> 8 & 0xff } else { 0 };
        found.push(format!("{number}:{errno}"));
    }
    found.join(" ")
}

/// Another process's attempt to attach to PID 1, once PID 1 has made itself undumpable.
fn trace_init() -> String {
    unsafe { prctl(4, 0i64, 0i64, 0i64, 0i64) };
    in_child_status(|| {
        // As another user inside, too, and not only as uid 0.
        let value = unsafe { syscall(SYS_PTRACE, 16i64, 1i64, 0i64, 0i64) };
        if value == -1 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
    })
}

fn in_child(work: impl FnOnce()) -> String {
    in_child_status(|| {
        work();
        0
    })
}

fn in_child_status(work: impl FnOnce() -> i32) -> String {
    let child = unsafe { fork() };
    if child == 0 {
        let status = work();
        unsafe { _exit(status) }
    }
    if child < 0 {
        return show(std::io::Error::last_os_error());
    }
    let mut status = 0;
    unsafe { waitpid(child, &mut status, 0) };
    if status & 0x7f == 0 { format!("exit {}", status >> 8) } else { format!("signal {}", status & 0x7f) }
}

/// Holds one of each kind of state that a dump must contain, and answers on a port whether all are unchanged.
fn hold(port: u16) -> String {
    let mut deleted =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open("/deleted").unwrap();
    deleted.write_all(b"still here").unwrap();
    fs::remove_file("/deleted").unwrap();
    // Also deleted, but with another name that no process here knows.
    let mut linked =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open("/linked").unwrap();
    linked.write_all(b"elsewhere").unwrap();
    fs::hard_link("/linked", "/run/other").unwrap();
    fs::remove_file("/linked").unwrap();
    fs::write("/dev/shm/shared", "in shared memory").unwrap();
    let _ = fs::remove_file("/run/held.sock");
    let unix = UnixListener::bind("/run/held.sock").unwrap();
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    // TIOCSPTLCK, then TIOCGPTPEER: the other side, by descriptor.
    let unlock = 0i32;
    unsafe { syscall(SYS_IOCTL, terminal.as_raw_fd() as i64, 0x4004_5431i64, &unlock) };
    let peer = unsafe { syscall(SYS_IOCTL, terminal.as_raw_fd() as i64, 0x5441i64, 0x102i64) };
    if peer < 0 {
        return show(std::io::Error::last_os_error());
    }
    let mut peer = unsafe { fs::File::from_raw_fd(peer as i32) };
    let child = sleeper();
    let timer = unsafe { syscall(SYS_TIMERFD_CREATE, 1i64, 0i64) };
    // A period of a millisecond, from now on.
    let setting = [0i64, 1_000_000, 0, 1];
    unsafe { syscall(SYS_TIMERFD_SETTIME, timer, 0i64, setting.as_ptr(), 0i64) };
    let mut timer = unsafe { fs::File::from_raw_fd(timer as i32) };
    let secret = std::hint::black_box(vec![0x5au8; 4 << 20]);
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    std::thread::spawn(move || {
        let mut terminal = terminal;
        for connection in listener.incoming() {
            let mut text = String::new();
            deleted.rewind().unwrap();
            deleted.read_to_string(&mut text).unwrap();
            linked.rewind().unwrap();
            linked.read_to_string(&mut text).unwrap();
            let mut held = vec![text];
            held.push(fs::read_to_string("/dev/shm/shared").unwrap());
            peer.write_all(b"line").unwrap();
            let mut bytes = [0; 4];
            terminal.read_exact(&mut bytes).unwrap();
            held.push(format!("terminal {}", String::from_utf8_lossy(&bytes)));
            let client = UnixStream::connect("/run/held.sock").unwrap();
            drop((client, unix.accept().unwrap()));
            held.push("socket".to_owned());
            held.push(format!("child {}", unsafe { kill(child, 0) }));
            for _ in 0..2 {
                timer.read_exact(&mut [0; 8]).unwrap();
            }
            held.push("timer".to_owned());
            held.push(format!("ram {}", secret.iter().all(|byte| *byte == 0x5a)));
            let _ = connection.unwrap().write_all(held.join(", ").as_bytes());
        }
    });
    "ok".to_owned()
}

/// How many children can be created at once, and the error for the next one.
fn forks(most: usize) -> String {
    let mut children = Vec::new();
    let mut stopped = "nothing".to_owned();
    for _ in 0..most {
        match unsafe { fork() } {
            0 => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            -1 => {
                stopped = show(std::io::Error::last_os_error());
                break;
            }
            child => children.push(child),
        }
    }
    for child in &children {
        let mut status = 0;
        unsafe {
            kill(*child, SIGKILL);
            waitpid(*child, &mut status, 0);
        }
    }
    format!("{} {stopped}", children.len())
}

/// The kernel's limit for one message.
const DESCRIPTORS_MAX: usize = 253;

const RLIMIT_NPROC: i64 = 6;
const RLIMIT_NOFILE: i64 = 7;
const RLIMIT_SIGPENDING: i64 = 11;
const RLIMIT_MSGQUEUE: i64 = 12;

#[cfg(target_arch = "x86_64")]
const SYS_RT_SIGPROCMASK: i64 = 14;
#[cfg(target_arch = "x86_64")]
const SYS_SENDMSG: i64 = 46;
#[cfg(target_arch = "x86_64")]
const SYS_SETRESUID: i64 = 117;
#[cfg(target_arch = "x86_64")]
const SYS_SETRESGID: i64 = 119;
#[cfg(target_arch = "x86_64")]
const SYS_RT_SIGQUEUEINFO: i64 = 129;
#[cfg(target_arch = "x86_64")]
const SYS_MQ_OPEN: i64 = 240;
#[cfg(target_arch = "x86_64")]
const SYS_PRLIMIT64: i64 = 302;
#[cfg(target_arch = "aarch64")]
const SYS_RT_SIGPROCMASK: i64 = 135;
#[cfg(target_arch = "aarch64")]
const SYS_SENDMSG: i64 = 211;
#[cfg(target_arch = "aarch64")]
const SYS_SETRESUID: i64 = 147;
#[cfg(target_arch = "aarch64")]
const SYS_SETRESGID: i64 = 149;
#[cfg(target_arch = "aarch64")]
const SYS_RT_SIGQUEUEINFO: i64 = 138;
#[cfg(target_arch = "aarch64")]
const SYS_MQ_OPEN: i64 = 180;
#[cfg(target_arch = "aarch64")]
const SYS_PRLIMIT64: i64 = 261;
#[cfg(target_arch = "x86_64")]
const SYS_NANOSLEEP: i64 = 35;
#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_NANOSLEEP: i64 = 230;
#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: i64 = 228;
#[cfg(target_arch = "x86_64")]
const SYS_PPOLL: i64 = 271;
#[cfg(target_arch = "x86_64")]
const SYS_FUTEX: i64 = 202;
#[cfg(target_arch = "x86_64")]
const SYS_WRITE: i64 = 1;
#[cfg(target_arch = "x86_64")]
const SYS_CLOSE: i64 = 3;
#[cfg(target_arch = "x86_64")]
const SYS_PTRACE: i64 = 101;
#[cfg(target_arch = "x86_64")]
const SYS_MKNODAT: i64 = 259;
#[cfg(target_arch = "x86_64")]
const SYS_IOCTL: i64 = 16;
#[cfg(target_arch = "x86_64")]
const SYS_FALLOCATE: i64 = 285;
#[cfg(target_arch = "x86_64")]
const SYS_TIMERFD_CREATE: i64 = 283;
#[cfg(target_arch = "x86_64")]
const SYS_TIMERFD_SETTIME: i64 = 286;
#[cfg(target_arch = "aarch64")]
const SYS_NANOSLEEP: i64 = 101;
#[cfg(target_arch = "aarch64")]
const SYS_CLOCK_NANOSLEEP: i64 = 115;
#[cfg(target_arch = "aarch64")]
const SYS_CLOCK_GETTIME: i64 = 113;
#[cfg(target_arch = "aarch64")]
const SYS_PPOLL: i64 = 73;
#[cfg(target_arch = "aarch64")]
const SYS_FUTEX: i64 = 98;
#[cfg(target_arch = "aarch64")]
const SYS_WRITE: i64 = 64;
#[cfg(target_arch = "aarch64")]
const SYS_CLOSE: i64 = 57;
#[cfg(target_arch = "aarch64")]
const SYS_PTRACE: i64 = 117;
#[cfg(target_arch = "aarch64")]
const SYS_MKNODAT: i64 = 33;
#[cfg(target_arch = "aarch64")]
const SYS_IOCTL: i64 = 29;
#[cfg(target_arch = "aarch64")]
const SYS_FALLOCATE: i64 = 47;
#[cfg(target_arch = "aarch64")]
const SYS_TIMERFD_CREATE: i64 = 85;
#[cfg(target_arch = "aarch64")]
const SYS_TIMERFD_SETTIME: i64 = 86;

/// `getpid` by the 32-bit entry.
#[cfg(target_arch = "x86_64")]
fn int80() -> String {
    in_child_status(|| {
        let value: i64;
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20i64 => value, options(nostack)) };
        (-(value as i32)).clamp(0, 255)
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn int80() -> String {
    "exit 1".to_owned()
}
