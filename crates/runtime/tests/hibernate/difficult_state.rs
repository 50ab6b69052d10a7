//! State of real programs that is hard to dump: each kind either survives a dump and a restore, or is refused before
//! the dump with the process and the descriptor named. None is ever lost silently.

use std::os::fd::AsRawFd as _;

use burrow_network::Attachment;
use burrow_runtime::{Runtime as _, RuntimeError};

use super::programs::Distribution;
use super::support::{Host, in_network, options, poll};
use super::{LIMITS, dump, plainly, restore, try_dump};

/// The expected result for a program with such state.
enum Outcome {
    Kept,
    /// Refused; the message contains this.
    Named(&'static str),
}
use Outcome::{Kept, Named};

/// Runs before every case: `check` is called after the restore and must not raise.
const FRAME: &str = r#"
import array, ctypes, mmap, os, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def note(name, text):
    open(name + ".new", "w").write(text)
    os.rename(name + ".new", name)
def tcp():
    l = socket.create_server(("127.0.0.1", 0)); a = socket.create_connection(l.getsockname())
    return l, a, l.accept()[0]
def fill(one):
    one.setblocking(False); sent = 0
    try:
        while True: sent += one.send(b"x" * 1000)
    except BlockingIOError: one.setblocking(True)
    return sent
def run(check):
    note("/ready", "1")
    while not os.path.exists("/go"): time.sleep(.01)
    try: check(); note("/after", "ok")
    except BaseException as error: note("/after", repr(error))
    while True: time.sleep(1)
"#;

const CASES: [(&str, Outcome, &str); 29] = [
    (
        "a Unix stream with unread bytes",
        Kept,
        r#"
a, b = socket.socketpair()
a.send(b"x" * 100000)
def check(): assert b.recv(100000, socket.MSG_WAITALL) == b"x" * 100000; a.send(b"y"); assert b.recv(1) == b"y"
run(check)
"#,
    ),
    (
        "a full Unix stream, both ways",
        Kept,
        r#"
a, b = socket.socketpair()
sent = {}
for one in (a, b):
    one.setblocking(False); sent[one] = 0
    try:
        while True: sent[one] += one.send(b"x" * 1000)
    except BlockingIOError: one.setblocking(True)
def check():
    for one, other in ((a, b), (b, a)):
        left = sent[one]
        while left: left -= len(other.recv(left))
run(check)
"#,
    ),
    (
        "Unix datagrams that wait",
        Kept,
        r#"
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for n in range(5): a.send(b"%d" % n)
def check(): assert [b.recv(100) for _ in range(5)] == [b"%d" % n for n in range(5)]
run(check)
"#,
    ),
    (
        "Unix packets that wait",
        Kept,
        r#"
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for n in range(5): a.send(b"%d" % n)
def check(): assert [b.recv(100) for _ in range(5)] == [b"%d" % n for n in range(5)]
run(check)
"#,
    ),
    (
        "a Unix connection that was not accepted, with bytes",
        Named("has a Unix connection with data that its server has not accepted open as descriptor"),
        r#"
l = socket.socket(socket.AF_UNIX); l.bind("/listens"); l.listen()
a = socket.socket(socket.AF_UNIX); a.connect("/listens"); a.send(b"hello")
def check(): one, _ = l.accept(); assert one.recv(5) == b"hello"
run(check)
"#,
    ),
    (
        "a Unix connection that was not accepted, whose client socket is older than the listening one",
        Kept,
        r#"
a = socket.socket(socket.AF_UNIX)
l = socket.socket(socket.AF_UNIX); l.bind("/listens"); l.listen()
a.connect("/listens")
def check(): one, _ = l.accept(); a.send(b"hello"); assert one.recv(5) == b"hello"
run(check)
"#,
    ),
    (
        "Unix sockets whose files were renamed",
        Kept,
        r#"
a, b = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
a.bind("/a.1"); a.listen(); os.rename("/a.1", "/a")
b.bind("/b.1"); b.listen(); os.link("/b.1", "/b"); os.unlink("/b.1"); os.chmod("/b", 0o640)
def check():
    assert os.stat("/b").st_mode & 0o777 == 0o640 and not os.path.exists("/a.1") and not os.path.exists("/b.1")
    for listener, name in ((a, "/a"), (b, "/b")):
        client = socket.socket(socket.AF_UNIX); client.connect(name); client.send(b"hello")
        one, _ = listener.accept(); assert one.recv(5) == b"hello"
run(check)
"#,
    ),
    (
        "a Unix socket whose file was moved to another directory",
        Named("has a Unix socket whose file was moved to another directory open as descriptor"),
        r#"
l = socket.socket(socket.AF_UNIX); l.bind("/listens"); l.listen()
os.mkdir("/elsewhere"); os.link("/listens", "/elsewhere/listens"); os.unlink("/listens")
run(lambda: None)
"#,
    ),
    (
        "bytes of a peer that has closed",
        Kept,
        r#"
a, b = socket.socketpair()
a.send(b"hello"); a.close()
def check(): assert b.recv(5) == b"hello"; assert b.recv(5) == b""
run(check)
"#,
    ),
    (
        "a TCP connection that one end has shut",
        Kept,
        r#"
l, a, b = tcp()
a.send(b"asked"); a.shutdown(socket.SHUT_WR)
def check():
    assert b.recv(9, socket.MSG_WAITALL) == b"asked"
    b.send(b"answered"); b.close()
    assert a.recv(9, socket.MSG_WAITALL) == b"answered"
run(check)
"#,
    ),
    (
        "a TCP connection that both ends have shut, with bytes",
        Kept,
        r#"
l, a, b = tcp()
a.send(b"one"); b.send(b"two")
a.shutdown(socket.SHUT_WR); b.shutdown(socket.SHUT_WR)
def check(): assert (a.recv(9, socket.MSG_WAITALL), b.recv(9, socket.MSG_WAITALL)) == (b"two", b"one")
run(check)
"#,
    ),
    (
        "bytes of a TCP peer that has closed",
        Kept,
        r#"
l, a, b = tcp()
a.send(b"hello"); a.close()
def check(): assert b.recv(9, socket.MSG_WAITALL) == b"hello"
run(check)
"#,
    ),
    (
        "a full TCP connection, both ways",
        Kept,
        r#"
l, a, b = tcp()
sent = {a: fill(a), b: fill(b)}
def check():
    for one, other in ((a, b), (b, a)): assert len(other.recv(sent[one], socket.MSG_WAITALL)) == sent[one]
run(check)
"#,
    ),
    (
        "a full TCP connection that its writer has shut",
        Kept,
        r#"
l, a, b = tcp()
sent = fill(a); a.shutdown(socket.SHUT_WR)
def check(): assert len(b.recv(sent + 1, socket.MSG_WAITALL)) == sent
run(check)
"#,
    ),
    (
        "a full TCP connection that its writer has closed",
        Named(
            "has a TCP connection whose other end was closed before all of its data was read open as descriptor",
        ),
        r#"
l, a, b = tcp()
sent = fill(a); a.close()
def check(): assert len(b.recv(sent + 1, socket.MSG_WAITALL)) == sent
run(check)
"#,
    ),
    (
        "a TCP connection that was not accepted, with bytes",
        Named("has a TCP connection that its server has not accepted open as descriptor"),
        r#"
l = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(l.getsockname()); a.send(b"hello")
def check(): one, _ = l.accept(); assert one.recv(5) == b"hello"; one.send(b"x"); assert a.recv(1) == b"x"
run(check)
"#,
    ),
    (
        "a TCP connection that was not accepted and whose client has closed",
        Named("has a TCP connection that its server has not accepted open as descriptor"),
        r#"
l = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(l.getsockname()); a.send(b"hello"); a.close()
def check(): one, _ = l.accept(); assert one.recv(9, socket.MSG_WAITALL) == b"hello"
run(check)
"#,
    ),
    (
        "more TCP connections than the queue of their server takes",
        Named("has a TCP connection that its server has not accepted open as descriptor"),
        r#"
l = socket.create_server(("127.0.0.1", 0), backlog=1)
clients = [socket.socket() for _ in range(8)]
for one in clients:
    one.setblocking(False)
    try: one.connect(l.getsockname())
    except BlockingIOError: pass
def check(): l.accept()
run(check)
"#,
    ),
    (
        "a descriptor in flight",
        Kept,
        r#"
a, b = socket.socketpair()
r, w = os.pipe()
socket.send_fds(a, [b"x"], [w]); os.close(w)
def check():
    _, fds, _, _ = socket.recv_fds(b, 10, 1)
    os.write(fds[0], b"through"); assert os.read(r, 10) == b"through"
run(check)
"#,
    ),
    (
        "two thousand pipes",
        Named("has a pipe beyond the maximum of 1024 open as descriptor"),
        r#"
pipes = [os.pipe() for _ in range(2000)]
run(lambda: None)
"#,
    ),
    (
        "a thousand pipes with bytes",
        Kept,
        r#"
pipes = [os.pipe() for _ in range(1000)]
for n, (r, w) in enumerate(pipes): os.write(w, b"%d" % n)
def check():
    for n, (r, w) in enumerate(pipes): assert os.read(r, 10) == b"%d" % n
run(check)
"#,
    ),
    (
        "ten thousand descriptors of one file",
        Kept,
        r#"
fds = [os.open("/file", os.O_RDWR | os.O_CREAT) for _ in range(10000)]
def check():
    os.write(fds[0], b"x"); assert all(os.fstat(fd).st_size == 1 for fd in fds)
run(check)
"#,
    ),
    (
        "a pipe in packet mode",
        Named("has a pipe in packet mode open as descriptor"),
        r#"
r, w = os.pipe2(os.O_DIRECT)
os.write(w, b"one"); os.write(w, b"two")
def check(): assert [os.read(r, 100), os.read(r, 100)] == [b"one", b"two"]
run(check)
"#,
    ),
    (
        "a file below a path that is too long",
        Named("has a file whose path is longer than 4095 bytes open as descriptor"),
        r#"
for _ in range(30): os.mkdir("d" * 200); os.chdir("d" * 200)
f = open("deep", "w+")
os.chdir("/")
run(lambda: None)
"#,
    ),
    (
        "a working directory with a path that is too long",
        Named("works in a directory whose path is longer than 4095 bytes"),
        r#"
for _ in range(30): os.mkdir("d" * 200); os.chdir("d" * 200)
run(lambda: None)
"#,
    ),
    (
        "a file and a working directory below a long path",
        Kept,
        r#"
for _ in range(18): os.mkdir("d" * 200); os.chdir("d" * 200)
f = open("deep", "w+"); f.write("x"); f.flush()
def check(): assert open("deep").read() == "x"; f.seek(0); assert f.read() == "x"
run(check)
"#,
    ),
    (
        "a program in a memfd",
        Named("executes a program that has no file"),
        r#"
fd = os.memfd_create("program")
os.write(fd, open("/bin/sleep", "rb").read())
if not os.fork(): os.execve("/proc/self/fd/%d" % fd, ["program", "1000"], {})
time.sleep(.2)
run(lambda: None)
"#,
    ),
    (
        "a POSIX message queue",
        Named("the message queue `/q` open as descriptor"),
        r#"
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.mq_open(b"/q", os.O_RDWR | os.O_CREAT, 0o600, None)
assert fd >= 0, ctypes.get_errno()
run(lambda: None)
"#,
    ),
    (
        "a large file that was deleted",
        Named("the deleted file `/large"),
        r#"
f = open("/large", "w+b"); os.unlink("/large")
for _ in range(70): f.write(os.urandom(1 << 20))
f.flush()
run(lambda: None)
"#,
    ),
];

#[tokio::test]
async fn difficult_state_survives_a_dump_or_is_named_in_the_refusal() {
    let mut wrong = Vec::new();
    for (name, outcome, script) in &CASES {
        if let Err(reason) = live_through(outcome, script).await {
            wrong.push(format!("{name}: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn live_through(outcome: &Outcome, script: &str) -> Result<(), String> {
    let host = Host::keeping();
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(&format!("{FRAME}{script}"));
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let options = options(plot, LIMITS, &commands);
    if let Attachment::Namespaces { net, .. } = &options.attachment {
        let net = format!("/proc/{}/fd/{}", std::process::id(), net.as_raw_fd());
        in_network(&net, "ip link set lo up");
    }
    let machine = host.runtime.boot(&plot.id, options).await.unwrap();
    poll("the program to have this state", || {
        let log = distribution.read("log");
        assert_eq!(log, "");
        !distribution.read("ready").is_empty()
    });
    let result = match (outcome, try_dump(&host, plot, &machine, &host.images()).await) {
        (Kept, Ok(_)) => {
            host.runtime.resume(&plot.id).await.unwrap();
            let kept = dump(&host, plot, &machine).await;
            host.runtime.destroy(&plot.id).await.unwrap();
            restore(&host, plot, plainly(plot, &kept)).await;
            host.runtime.resume(&plot.id).await.unwrap();
            Ok(())
        }
        (Kept, Err(error)) => Err(format!("not dumped: {error}")),
        (Named(expected), Err(RuntimeError::Obstacles { obstacles, .. }))
            if obstacles.iter().any(|found| found.reason.contains(expected) && !found.process.is_empty()) =>
        {
            assert!(!host.is_frozen(&plot.id), "it still runs");
            Ok(())
        }
        (Named(_), Err(error)) => Err(format!("refused with another message: {error}")),
        (Named(_), Ok(_)) => Err("dumped".to_owned()),
    };
    if result.is_ok() {
        std::fs::write(plot.root.join("go"), "").unwrap();
        poll("the program to check it", || !distribution.read("after").is_empty());
    }
    let after = distribution.read("after");
    host.runtime.destroy(&plot.id).await.unwrap();
    result?;
    if after == "ok" { Ok(()) } else { Err(format!("after: {after}")) }
}
