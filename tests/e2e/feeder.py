"""Feeds servers with work over connections it never closes, and notices when anything of it is lost.

Run inside a sandbox with a port and the names of the servers that run beside it; asked over HTTP."""
import http.server, json, random, socket, subprocess, sys, threading, time, urllib.request

NONCE = "%016x" % random.getrandbits(64)


class Redis:
    """Increments over one connection."""

    def __init__(self):
        self.server = socket.create_connection(("127.0.0.1", 6379))
        self.replies = self.server.makefile("rb")

    def increment(self):
        self.server.sendall(b"INCR n\r\n")
        return int(self.replies.readline()[1:])

    def look(self):
        """By another process, over a connection of its own, in what the server holds; then who the server is."""
        get = subprocess.run(["redis-cli", "--raw", "get", "n"], capture_output=True, text=True, check=True)
        info = subprocess.run(["redis-cli", "info", "server"], capture_output=True, text=True, check=True)
        run = [line for line in info.stdout.split() if line.startswith("run_id:")]
        return int(get.stdout), run[0]


PSQL = ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]


class Postgres:
    """Committed increments over one connection, each also a row of its own."""

    def __init__(self):
        self.client = subprocess.Popen(PSQL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.say("create table counter (n bigint); insert into counter values (0); create table log (n bigint primary key);")

    def say(self, line):
        self.client.stdin.write(line + "\n")
        self.client.stdin.flush()

    def increment(self):
        self.say("with next as (update counter set n = n + 1 returning n) insert into log select n from next returning n;")
        return int(self.client.stdout.readline())

    def look(self):
        query = "select n, (select count(*) from log), (select max(n) from log), pg_postmaster_start_time() from counter"
        said = subprocess.run(PSQL + ["-c", query], capture_output=True, text=True, check=True).stdout.strip()
        number, rows, last, started = said.split("|")
        if not number == rows == last:
            raise ValueError("the tables disagree: " + said)
        return int(number), started


class Fed:
    """A server, and a thread that feeds it."""

    def __init__(self, server):
        self.server, self.lock, self.acked, self.broken = server, threading.Lock(), 0, None
        threading.Thread(target=self.feed, daemon=True).start()

    def feed(self):
        while self.broken is None:
            with self.lock:
                try:
                    number = self.server.increment()
                    if number != self.acked + 1:
                        self.broken = "%d follows %d" % (number, self.acked)
                    self.acked = number
                except Exception as error:
                    self.broken = repr(error)
            time.sleep(0.002)

    def state(self):
        with self.lock:
            stored, who = self.server.look()
            return dict(count=self.acked, stored=stored, who=who, broken=self.broken)


class Chromium:
    """A page that counts, whose title tells how far and which page it is."""

    def state(self):
        with urllib.request.urlopen("http://127.0.0.1:9222/json/list", timeout=30) as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        who, count = pages[0]["title"].split()
        return dict(count=int(count), stored=int(count), who=who, broken=None)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            state, code = dict(nonce=NONCE, servers={name: server.state() for name, server in servers.items()}), 200
        except Exception as error:
            state, code = dict(error=repr(error)), 500
        body = json.dumps(state).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


KINDS = dict(redis=lambda: Fed(Redis()), postgres=lambda: Fed(Postgres()), chromium=Chromium)
servers = {name: KINDS[name]() for name in sys.argv[2:]}
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
