"""A small world that notices when anything of it is lost: run inside a sandbox, asked over HTTP."""
import fcntl, http.server, json, mmap, os, pty, random, select, socket, sqlite3, subprocess, sys, threading, time

NONCE = "%016x" % random.getrandbits(64)
DATABASE = "/root/survivor.db"
beats = 0
rows = 0
lock = threading.Lock()


def heart():
    """Time goes on, by a timer that is never late by much."""
    global beats
    while True:
        time.sleep(0.01)
        beats += 1


def writer():
    """A writer in WAL mode that never closes: its locks are on mapped memory."""
    global rows
    base = sqlite3.connect(DATABASE, isolation_level=None, check_same_thread=False)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=normal")
    base.execute("create table if not exists log (n integer primary key, nonce text)")
    rows = base.execute("select coalesce(max(n), 0) from log").fetchone()[0]
    while True:
        with lock:
            rows += 1
            base.execute("insert into log values (?, ?)", (rows, NONCE))
        time.sleep(0.005)


class Shell:
    """A shell on a terminal of its own, with a variable that only it knows."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv("/bin/sh", ["sh"])
        self.ask("stty -echo; SECRET=%s" % NONCE)

    def ask(self, line):
        os.write(self.fd, (line + "; echo do''ne\n").encode())
        seen = b""
        while b"done" not in seen:
            if not select.select([self.fd], [], [], 120)[0]:
                raise TimeoutError(seen)
            seen += os.read(self.fd, 4096)
        return seen.decode()


def pair():
    """A connection within, that must not break."""
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    return near, far


LOOK = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
print(base.execute("select coalesce(max(n), 0) from log where nonce = ?", (sys.argv[2],)).fetchone()[0])
print(base.execute("pragma integrity_check").fetchone()[0])
"""


def look(within):
    """A second connection: by another process, or within this one."""
    if not within:
        said = subprocess.run([sys.executable, "-c", LOOK, DATABASE, NONCE], capture_output=True, text=True, check=True)
        return said.stdout.split()
    second = sqlite3.connect(DATABASE)
    stored = second.execute("select coalesce(max(n), 0) from log where nonce = ?", (NONCE,)).fetchone()[0]
    whole = second.execute("pragma integrity_check").fetchone()[0]
    second.close()
    return str(stored), whole


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        near.sendall(b"x")
        through = far.recv(1) == b"x"
        with lock:
            stored, whole = look(self.path == "/within")
            state = dict(
                nonce=NONCE, pid=os.getpid(), beats=beats, rows=rows, stored=int(stored), whole=whole,
                shell=NONCE in shell.ask("echo $SECRET"), inside=through, held=held.tell(),
            )
        body = json.dumps(state).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


held = open("/root/held", "w+")
held.write("four")
held.flush()
os.unlink("/root/held")
locked = open("/root/locked", "w+b")
locked.truncate(4096)
mapped = mmap.mmap(locked.fileno(), 4096)
fcntl.lockf(locked, fcntl.LOCK_EX | fcntl.LOCK_NB, 16, 128)
near, far = pair()
shell = Shell()
for target in (heart, writer):
    threading.Thread(target=target, daemon=True).start()
while rows == 0:
    time.sleep(0.01)
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("up", flush=True)
server.serve_forever()
