"""One scenario for every version of E2B's Python client, against a real daemon.

Prints one line per check, `ok NAME`, `absent NAME` (this version has no such call) or `FAILED NAME: why`; exits with 1 if a check
failed. It uses only calls of the client.

With `E2B_DOMAIN` set, the checks that depend on the address of the daemon are repeated by host name and over TLS.
"""

import asyncio
import datetime
import hashlib
import http.client
import inspect
import json
import os
import socket
import sys
import tempfile
import time
import traceback
import urllib.parse
import urllib.request

import e2b
from e2b import AsyncSandbox, CommandExitException, Sandbox, SandboxQuery, SandboxState, Template

try:
    from e2b import PtySize
except ImportError:  # pragma: no cover
    from e2b.sandbox.commands.command_handle import PtySize
from e2b.exceptions import (
    AuthenticationException,
    BuildException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)

try:
    from e2b import SandboxNotRunningException
except ImportError:
    SandboxNotRunningException = None

try:
    import calls
except ImportError:  # The oldest clients lack some of the classes that it imports.
    calls = None

FAILED = []
# Names of the checks to run; empty for all.
ONLY = [name for name in os.environ.get("E2B_ONLY", "").split(";") if name]
MIB = 1 << 20


class Absent(Exception):
    """This version of the client has no such call."""


def until(what, look, seconds=60):
    """Calls `look` until it returns a result."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting for {what}")


def check(name, work, *args):
    if ONLY and name not in ONLY:
        return
    began = time.monotonic()
    try:
        work(*args)
    except Absent:
        print(f"absent {name}", flush=True)
    except Exception as error:  # noqa: BLE001
        FAILED.append(name)
        print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
        traceback.print_exc()
    else:
        took = int((time.monotonic() - began) * 1000)
        print(f"ok {name}" + (f" {took} ms" if os.environ.get("E2B_TIMES") else ""), flush=True)


def takes(function, argument):
    return argument in inspect.signature(function).parameters


def raised(work):
    try:
        work()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def refused(kind, work):
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def new(**options):
    return Sandbox.create(timeout=600, **options)


# === Sandboxes ===


def info(sandbox):
    found = sandbox.get_info()
    assert found.sandbox_id == sandbox.sandbox_id
    assert found.metadata == {"who": "scenario", "said": "ä = b & c%20"}, found.metadata
    assert found.state == "running" or found.state.value == "running"
    assert found.cpu_count >= 1 and found.memory_mb > 0
    left = (found.end_at - found.started_at).total_seconds()
    assert 500 < left < 700, left
    assert sandbox.is_running()


def listing(sandbox):
    def listed(**query):
        return [one.sandbox_id for one in Sandbox.list(query=SandboxQuery(**query)).next_items()]

    own = sandbox.sandbox_id
    assert listed(metadata={"said": "ä = b & c%20"}) == [own]
    assert listed(metadata={"said": "no"}) == []
    assert own in listed(state=[SandboxState.RUNNING]) and own not in listed(state=[SandboxState.PAUSED])
    assert own in listed(template="base") and listed(template="no-such-template") == []
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    assert own in listed(started_after=long_ago) and listed(started_after=soon) == []
    other = new()
    try:
        for order in ["asc", "desc"]:
            pages = Sandbox.list(limit=1, order=order)
            seen = []
            while pages.has_next:
                found = pages.next_items()
                assert len(found) <= 1, found
                seen += [one.sandbox_id for one in found]
            expected = [own, other.sandbox_id] if order == "asc" else [other.sandbox_id, own]
            assert seen == expected, (order, seen, expected)
    finally:
        other.kill()


def timeouts(sandbox):
    sandbox.set_timeout(1200)
    found = sandbox.get_info()
    left = found.end_at.timestamp() - time.time()
    assert 1100 < left < 1300, left
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.commands.run("echo here").stdout == "here\n"
    left = again.get_info().end_at.timestamp() - time.time()
    assert left > 1000, "connecting takes no time away"


def metrics(sandbox):
    found = until("figures", sandbox.get_metrics)
    one = found[-1]
    assert one.cpu_count >= 1 and one.mem_total > 0 and one.disk_total > 0
    assert 0 <= one.cpu_used_pct <= 100
    # The last sample is the present one; the others were taken since the first request.
    found = until("a history", lambda: (lambda seen: seen if len(seen) > 2 else None)(sandbox.get_metrics()))
    times = [one.timestamp for one in found]
    assert times == sorted(times) and (times[1] - times[0]).total_seconds() > 4, times
    first = sandbox.get_metrics(start=times[0], end=times[0])
    assert [one.timestamp for one in first] == times[:1], (first, times)
    long_ago = times[0] - datetime.timedelta(hours=2)
    assert sandbox.get_metrics(end=long_ago) == []
    refused(SandboxException, lambda: sandbox.get_metrics(start=times[0], end=long_ago))


def unknown_template():
    said = refused(SandboxException, lambda: Sandbox.create("no-such-template"))
    assert "no-such-template" in said, said


def bad_key():
    refused(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))


def network(sandbox):
    if not hasattr(sandbox, "update_network"):
        raise Absent
    sandbox.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["*.example.com"]})
    shown = sandbox.get_info()
    rules = getattr(shown, "network", None)
    if rules is not None:
        allowed = rules["allow_out"] if isinstance(rules, dict) else rules.allow_out
        assert list(allowed) == ["*.example.com"], allowed
    sandbox.update_network({"deny_out": ["192.0.2.0/24", "198.51.100.7"], "allow_out": ["192.0.2.8/30"]})
    rules = getattr(sandbox.get_info(), "network", None)
    if rules is not None:
        shown = (rules["deny_out"], rules["allow_out"]) if isinstance(rules, dict) else (rules.deny_out, rules.allow_out)
        assert shown == (["192.0.2.0/24", "198.51.100.7"], ["192.0.2.8/30"]), shown
    sandbox.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["*"]})
    said = refused(SandboxException, lambda: sandbox.update_network({"allow_out": ["example.com"]}))
    assert "0.0.0.0/0" in said, said
    refused(SandboxException, lambda: sandbox.update_network({"deny_out": ["example.com"]}))
    if hasattr(e2b, "SandboxNetworkRule"):
        headers_of_requests(sandbox)


# The end-to-end tests (`secret_headers`) check that hosts receive them.
def headers_of_requests(sandbox):
    def change(rules):
        sandbox.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": lambda ctx: list(ctx.rules), "rules": rules})
        return sandbox.get_info().network

    headers = {"Authorization": "Bearer value", "X-Team": "blue"}
    rules = {"api.example.com": [{"transform": {"headers": headers}}], "*.example.com": []}
    shown = change(rules)
    assert shown["rules"] == rules, shown
    assert sorted(shown["allow_out"]) == sorted(rules), shown
    for bad in ("*", "192.0.2.1"):
        refused(SandboxException, lambda: sandbox.update_network({"rules": {bad: []}}))
    placeholder = {"transform": lambda ctx: {"headers": {"Authorization": ctx.iam.tokens["aws"]}}}
    said = refused(SandboxException, lambda: sandbox.update_network({"rules": {"a.example.com": [placeholder]}}))
    assert "identity" in said, said
    assert "rules" not in change({}), "they are replaced as a whole"


# === Commands ===


def run(sandbox):
    done = sandbox.commands.run("echo out; echo err >&2; whoami; pwd")
    assert done.stdout == "out\nuser\n/home/user\n", done.stdout
    assert done.stderr == "err\n" and done.exit_code == 0
    lines = []
    sandbox.commands.run("printf 'ä€😀'; echo", on_stdout=lines.append)
    assert "".join(lines) == "ä€😀\n", lines
    error = None
    try:
        sandbox.commands.run("echo no >&2; exit 7")
    except CommandExitException as found:
        error = found
    assert error is not None and error.exit_code == 7 and error.stderr == "no\n"


def run_options(sandbox):
    done = sandbox.commands.run("echo $A $SET; pwd; whoami", envs={"A": "b c"}, cwd="/tmp", user="root")
    assert done.stdout == "b c by-create\n/tmp\nroot\n", done.stdout
    own = sandbox.sandbox_id
    told = sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID $(cat /run/e2b/.E2B_SANDBOX_ID)").stdout
    assert told == f"true {own} {own}\n", told
    said = refused(AuthenticationException, lambda: sandbox.commands.run("true", user="nobody-such"))
    assert "invalid username: 'nobody-such'" in said, said
    refused(SandboxException, lambda: sandbox.commands.run("true", cwd="/no/such"))


def background(sandbox):
    handle = sandbox.commands.run("sleep 1000", background=True)
    pids = [one.pid for one in sandbox.commands.list()]
    assert handle.pid in pids, pids
    assert sandbox.commands.kill(handle.pid)
    refused(CommandExitException, handle.wait)
    until("its end", lambda: handle.pid not in [one.pid for one in sandbox.commands.list()])
    assert not sandbox.commands.kill(handle.pid)


def reconnect(sandbox):
    handle = sandbox.commands.run("sleep 1; read line; echo got $line", background=True, stdin=True)
    pid = handle.pid
    handle.disconnect()
    again = sandbox.commands.connect(pid)
    sandbox.commands.send_stdin(pid, "word\n")
    assert again.wait().stdout == "got word\n"
    refused(SandboxException, lambda: sandbox.commands.connect(99999))


def handles(sandbox):
    """Calls of a handle that do not take the id of its process."""
    handle = sandbox.commands.run("read line; echo got $line; exec cat", background=True, stdin=True)
    if not hasattr(handle, "send_stdin"):
        handle.kill()
        raise Absent
    handle.send_stdin("word\n")
    handle.send_stdin("more\n")
    handle.close_stdin()
    assert handle.wait().stdout == "got word\nmore\n"
    handle = sandbox.commands.run("sleep 1000", background=True)
    assert handle.kill()
    until("its end", lambda: not handle.kill())


def standard_input(sandbox):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.send_stdin(handle.pid, "two\n")
    if not hasattr(sandbox.commands, "close_stdin"):
        sandbox.commands.kill(handle.pid)
        raise Absent
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\ntwo\n"


def streamed_input(sandbox):
    if not hasattr(sandbox.commands, "stream_input"):
        raise Absent
    handle = sandbox.commands.run("sha256sum", background=True, stdin=True)
    pieces = [bytes([index % 251]) * 65536 for index in range(16)]
    sandbox.commands.stream_input(handle.pid, iter(pieces))
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout.split()[0] == hashlib.sha256(b"".join(pieces)).hexdigest()


def command_timeout(sandbox):
    refused(TimeoutException, lambda: sandbox.commands.run("exec sleep 4242", timeout=1))
    look = lambda: sandbox.commands.run("pgrep -x -f 'sleep 4242' || echo none").stdout == "none\n"
    until("the end of what ran out of time", look)


def much_output(sandbox):
    size = 10 * MIB
    seen = hashlib.sha256()
    length = 0

    def take(text):
        nonlocal length
        seen.update(text.encode())
        length += len(text)

    line = "0123456789abcdef" * 4 + "\n"
    count = size // len(line)
    sandbox.commands.run(f"yes {line.strip()} | head -n {count}", on_stdout=take, timeout=300)
    assert length == count * len(line), length
    assert seen.hexdigest() == hashlib.sha256((line * count).encode()).hexdigest()


def terminal(sandbox):
    handle = sandbox.pty.create(PtySize(rows=30, cols=100), envs={"FROM": "scenario"})
    sandbox.pty.send_stdin(handle.pid, b"tty; stty size; echo $FROM\n")
    sandbox.pty.resize(handle.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit 3\n")
    text = b""

    def take(data):
        nonlocal text
        text += data

    try:
        handle.wait(on_pty=take)
    except CommandExitException as error:
        assert error.exit_code == 3, error
    assert b"/dev/pts/" in text and b"scenario" in text and b"40 120" in text, text


def terminal_again(sandbox):
    """A terminal that another handle attaches to, and one that is killed."""
    first = sandbox.pty.create(PtySize(rows=24, cols=80))
    first.disconnect()
    again = sandbox.pty.connect(first.pid)
    if hasattr(sandbox.pty, "stream_input"):
        sandbox.pty.stream_input(first.pid, iter([b"echo from-", b"$((1+1)); exit\n"]))
    else:
        sandbox.pty.send_stdin(first.pid, b"echo from-$((1+1)); exit\n")
    text = b""

    def take(data):
        nonlocal text
        text += data

    again.wait(on_pty=take)
    assert b"from-2" in text, text
    other = sandbox.pty.create(PtySize(rows=24, cols=80))
    assert sandbox.pty.kill(other.pid)
    until("its end", lambda: not sandbox.pty.kill(other.pid))


def repository(sandbox):
    """Git, with a second repository in the sandbox as the remote."""
    git = getattr(sandbox, "git", None)
    if git is None or not hasattr(git, "get_config"):
        raise Absent
    here, there = "/home/user/work", "/home/user/remote.git"
    git.init(there, bare=True, initial_branch="main")
    git.init(here, initial_branch="main")
    git.configure_user("A B", "a@example.com")
    assert git.get_config("user.email") == "a@example.com"
    git.set_config("core.abbrev", "12", scope="local", path=here)
    assert git.get_config("core.abbrev", scope="local", path=here) == "12"
    sandbox.files.write(f"{here}/one", "1")
    assert [one.name for one in git.status(here).file_status] == ["one"]
    git.add(here)
    git.commit(here, "first")
    git.create_branch(here, "side")
    git.checkout_branch(here, "main")
    assert git.branches(here).current_branch == "main" and set(git.branches(here).branches) == {"main", "side"}
    git.delete_branch(here, "side", force=True)
    git.remote_add(here, "origin", there)
    assert git.remote_get(here, "origin") == there
    git.push(here, remote="origin", branch="main")
    sandbox.commands.run(f"git clone -q {there} /home/user/other && cd /home/user/other && echo 2 > two && git add two && git commit -qm second && git push -q")
    git.pull(here, remote="origin", branch="main")
    assert sandbox.files.read(f"{here}/two") == "2\n"
    sandbox.files.write(f"{here}/one", "changed")
    git.add(here)
    git.reset(here, paths=["one"])
    git.restore(here, paths=["one"])
    assert sandbox.files.read(f"{here}/one") == "1"
    assert git.status(here).is_clean


# === Files ===


def files(sandbox):
    written = sandbox.files.write("notes/a b.txt", "häl\nlo")
    assert written.path == "/home/user/notes/a b.txt" and written.name == "a b.txt", written
    assert sandbox.files.read("notes/a b.txt") == "häl\nlo"
    raw = bytes(range(256)) * 5000
    sandbox.files.write("/tmp/raw", raw)
    assert bytes(sandbox.files.read("/tmp/raw", format="bytes")) == raw
    assert b"".join(sandbox.files.read("/tmp/raw", format="stream")) == raw
    owner = sandbox.commands.run("stat -c %U notes 'notes/a b.txt'").stdout
    assert owner == "user\nuser\n", owner
    sandbox.files.write("/root/mine", "x", user="root")
    assert sandbox.commands.run("stat -c %U /root/mine", user="root").stdout == "root\n"
    refused(NotFoundException, lambda: sandbox.files.read("/no/such"))


def many_files(sandbox):
    several = [{"path": f"/tmp/many/{index}", "data": f"number {index}"} for index in range(5)]
    written = sandbox.files.write_files(several)
    assert [one.path for one in written] == [one["path"] for one in several]
    for one in several:
        assert sandbox.files.read(one["path"]) == one["data"]


def large_file(sandbox):
    import io

    raw = os.urandom(MIB) * 24
    sandbox.files.write("/tmp/large", io.BytesIO(raw))
    found = sandbox.commands.run("sha256sum < /tmp/large").stdout.split()[0]
    assert found == hashlib.sha256(raw).hexdigest()
    if takes(sandbox.files.write, "gzip"):
        sandbox.files.write("/tmp/packed", "word " * 100_000, gzip=True)
        assert sandbox.files.read("/tmp/packed") == "word " * 100_000


def file_metadata(sandbox):
    if not takes(sandbox.files.write, "metadata"):
        raise Absent
    written = sandbox.files.write("/tmp/m", "x", metadata={"a": "b c", "Kind": "d"})
    assert written.metadata == {"a": "b c", "kind": "d"}, written
    assert sandbox.files.get_info("/tmp/m").metadata == {"a": "b c", "kind": "d"}
    assert sandbox.commands.run("getfattr -d /tmp/m || python3 -c 'import os; print(os.listxattr(\"/tmp/m\"))'").stdout.count("user.e2b.") == 2
    assert sandbox.files.rename("/tmp/m", "/tmp/n").metadata == {"a": "b c", "kind": "d"}
    assert [one.metadata for one in sandbox.files.list("/tmp") if one.name == "n"] == [{"a": "b c", "kind": "d"}]
    sandbox.files.write("/tmp/n", "y")
    assert not sandbox.files.get_info("/tmp/n").metadata, "an overwrite clears it"


def directories(sandbox):
    assert sandbox.files.make_dir("/tmp/d/e")
    assert not sandbox.files.make_dir("/tmp/d/e")
    sandbox.files.write("/tmp/d/f", "12345")
    sandbox.commands.run("ln -s f /tmp/d/link && chmod 640 /tmp/d/f")
    found = {one.name: one for one in sandbox.files.list("/tmp/d")}
    assert set(found) == {"e", "f", "link"}, found
    assert found["e"].type.value == "dir" and found["f"].type.value == "file"
    deep = [one.path for one in sandbox.files.list("/tmp", depth=3)]
    assert "/tmp/d/e" in deep, deep
    one = sandbox.files.get_info("/tmp/d/f")
    assert (one.size, one.permissions, one.owner) == (5, "-rw-r-----", "user"), one
    assert sandbox.files.get_info("/tmp/d/link").symlink_target == "/tmp/d/f"
    assert sandbox.files.get_info("/tmp/d/e").size > 0
    sandbox.commands.run("ln /tmp/d/f /tmp/d/hard && chmod 644 /tmp/d/f")
    sandbox.files.write("/tmp/d/f", "123456")
    assert sandbox.files.read("/tmp/d/hard") == "123456", "hard links stay"
    sandbox.commands.run("printf 12345 > /tmp/d/f; chmod 640 /tmp/d/f; rm /tmp/d/hard")
    moved = sandbox.files.rename("/tmp/d/f", "/tmp/d/new/g")
    assert moved.path == "/tmp/d/new/g"
    assert sandbox.files.exists("/tmp/d/new/g") and not sandbox.files.exists("/tmp/d/f")
    sandbox.files.remove("/tmp/d")
    assert not sandbox.files.exists("/tmp/d")
    refused(NotFoundException, lambda: sandbox.files.list("/tmp/d"))
    refused(NotFoundException, lambda: sandbox.files.get_info("/tmp/d"))


def watching(sandbox):
    sandbox.files.make_dir("/tmp/watched/below")
    watch = sandbox.files.watch_dir("/tmp/watched", recursive=True)
    sandbox.files.write("/tmp/watched/below/new", "x")
    seen = []

    def look():
        seen.extend(watch.get_new_events())
        return any(one.name == "below/later/file" for one in seen)

    sandbox.files.write("/tmp/watched/below/later/file", "x")
    until("a change", look)
    told = [(one.type.value, one.name) for one in seen]
    for name in ("below/new", "below/later/file"):
        assert told.count(("create", name)) == 1, told
    assert told.count(("write", "below/new")) == 1, told
    # The owner of a new file is set before its content.
    own = [kind for kind, name in told if name == "below/new"]
    assert own == ["create", "chmod", "write"], told
    assert not [name for _, name in told if "#" in name or "burrow" in name], told
    sandbox.commands.run("chmod 600 /tmp/watched/below/new")
    until("a chmod", lambda: any((one.type.value, one.name) == ("chmod", "below/new") for one in watch.get_new_events()))
    watch.stop()
    refused(SandboxException, lambda: sandbox.files.watch_dir("/tmp/watched/below/new"))
    refused(SandboxException, lambda: sandbox.files.watch_dir("/no/such"))


def fetch(url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def local(url):
    """Signed URLs use the client's own base address."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts)


def signed(sandbox):
    sandbox.files.write("/tmp/signed", "for whoever has the address")
    url = sandbox.download_url("/tmp/signed")
    assert fetch(local(url)) == (200, b"for whoever has the address"), fetch(local(url))
    assert fetch(local(url.replace("signed", "other")))[0] == 401
    short = sandbox.download_url("/tmp/signed", user="user", use_signature_expiration=600)
    assert fetch(local(short))[0] == 200
    late = sandbox.download_url("/tmp/signed", user="user", use_signature_expiration=-10)
    assert fetch(local(late))[0] == 401
    url = sandbox.upload_url("/tmp/uploaded")
    body = b'--B\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nby form\r\n--B--\r\n'
    status, said = fetch(local(url), body, {"Content-Type": "multipart/form-data; boundary=B"})
    assert status == 200, said
    assert sandbox.files.read("/tmp/uploaded") == "by form"


def serve(sandbox):
    sandbox.files.write("/tmp/web/index.html", "served")
    sandbox.commands.run("cd /tmp/web && exec python3 -m http.server 8000", background=True, timeout=0)


def asked(sandbox, **headers):
    """Returns the status of a request to the server inside, by the host name that the client returns, once it answers."""

    def look():
        status, body = request(sandbox, 8000, headers, "/index.html")
        assert status != 200 or body == b"served"
        return status if status in (200, 403) else None

    return until("an answer from inside", look)


def request(sandbox, port, headers, path="/", method="GET", data=None):
    """A request to a port, by the host name that the client returns."""
    base = urllib.parse.urlsplit(os.environ["E2B_API_URL"])
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=30)
    connection.request(method, path, body=data, headers={"Host": sandbox.get_host(port), **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def ports(sandbox):
    serve(sandbox)
    assert asked(sandbox) == 403, "without a token"
    assert asked(sandbox, **{"e2b-traffic-access-token": sandbox.traffic_access_token}) == 200
    assert asked(sandbox, **{"e2b-traffic-access-token": "bst_nonsense"}) == 403
    assert asked(sandbox, **{"X-API-Key": os.environ["E2B_API_KEY"]}) == 200


def public_ports(sandbox):
    other = new(network={"allow_public_traffic": True})
    try:
        serve(other)
        assert asked(other) == 200
        token = {"e2b-traffic-access-token": sandbox.traffic_access_token}
        assert asked(other, **token) == 200, "what is public needs no token"
        status, body = fetch(os.environ["E2B_API_URL"], headers={"Host": other.get_host(8001)})
        assert status == 502 and b"The sandbox is running but port is not open" in body, (status, body)
    finally:
        other.kill()
    if "https_ports" in getattr(getattr(e2b, "SandboxNetworkOpts", None), "__annotations__", {}):
        https_port()


# As the servers of Python's standard library do, it ends a response by closing the connection without a TLS alert.
HTTPS_SERVER = """
import http.server, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"by TLS")
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/server.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def https_port():
    other = new(network={"allow_public_traffic": True, "https_ports": [8443]})
    try:
        options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        other.commands.run(f"openssl req {options} -keyout /tmp/server.pem -out /tmp/server.crt && cat /tmp/server.crt >> /tmp/server.pem")
        other.files.write("/tmp/server.py", HTTPS_SERVER)
        other.commands.run("python3 /tmp/server.py", background=True)
        ask = lambda: fetch(os.environ["E2B_API_URL"], headers={"Host": other.get_host(8443)})
        until("the server inside", lambda: ask() == (200, b"by TLS"))
        assert other.get_info().network["https_ports"] == [8443]
    finally:
        other.kill()


def foreign(sandbox):
    """A token of one sandbox is not accepted for another."""
    other = new()
    try:
        base = os.environ["E2B_SANDBOX_URL"]
        tokens = [one._envd_access_token if hasattr(one, "_envd_access_token") else None for one in (sandbox, other)]
        if not all(tokens):
            raise Absent

        def status(of, token):
            headers = {"e2b-sandbox-id": of.sandbox_id, "e2b-sandbox-port": "49983"}
            if token:
                headers["X-Access-Token"] = token
            return fetch(f"{base}/health", headers=headers)[0]

        assert status(sandbox, tokens[0]) == 204
        assert status(sandbox, tokens[1]) == 401
        assert status(sandbox, None) == 401
    finally:
        other.kill()


# === Sleep, branches ===


def pausing(sandbox):
    handle = sandbox.commands.run("sleep 30001", background=True, timeout=0)
    sandbox.files.write("/tmp/kept", "yes")
    sandbox.pause()
    found = Sandbox.get_info(sandbox.sandbox_id)
    assert str(getattr(found.state, "value", found.state)) == "paused"
    assert not sandbox.is_running()
    found = Sandbox.get_info(sandbox.sandbox_id)
    assert str(getattr(found.state, "value", found.state)) == "paused", "that did not wake it"
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    assert again.is_running()
    assert again.files.read("/tmp/kept") == "yes"
    assert handle.pid in [one.pid for one in again.commands.list()], "its processes came back"
    assert again.commands.kill(handle.pid)


def pausing_files(sandbox):
    """Files are kept, processes are not."""
    handle = sandbox.commands.run("sleep 30002", background=True, timeout=0)
    sandbox.files.write("/home/user/kept", "yes")
    boot = "/proc/sys/kernel/random/boot_id"
    before = sandbox.commands.run(f"cat {boot}").stdout
    sandbox.pause(keep_memory=False)
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in paused]
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    assert again.files.read("/home/user/kept") == "yes"
    assert handle.pid not in [one.pid for one in again.commands.list()], "nothing of it runs on"
    assert again.commands.run(f"cat {boot}").stdout != before, "it was booted anew"


def waking_by_use(sandbox):
    sandbox.pause()
    assert sandbox.commands.run("echo awake").stdout == "awake\n"


def auto_pause(_):
    if not takes(Sandbox.create, "lifecycle"):
        raise Absent
    sandbox = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause"})
    sandbox.files.write("/tmp/kept", "yes")

    def look():
        state = Sandbox.get_info(sandbox.sandbox_id).state
        return str(getattr(state, "value", state)) == "paused"

    until("its pause", look)
    refused(Exception, lambda: sandbox.commands.run("true"))
    refused(Exception, lambda: sandbox.files.read("/tmp/kept"))
    assert request(sandbox, 8000, {"e2b-traffic-access-token": sandbox.traffic_access_token})[0] == 502
    assert fetch(local(sandbox.download_url("/tmp/kept")))[0] == 502
    assert look(), "without auto-resume only `connect` wakes it"
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.files.read("/tmp/kept") == "yes"
    again.kill()


def auto_resume(_):
    if not takes(Sandbox.create, "lifecycle"):
        raise Absent
    sandbox = Sandbox.create(timeout=20, lifecycle={"on_timeout": "pause", "auto_resume": True})
    shown = getattr(sandbox.get_info(), "lifecycle", None)
    assert shown is None or shown["auto_resume"] is True, shown
    serve(sandbox)
    token = {"e2b-traffic-access-token": sandbox.traffic_access_token}
    assert asked(sandbox, **token) == 200
    sandbox.pause()
    assert not sandbox.is_running()
    assert asked(sandbox, **token) == 200, "traffic wakes it"
    sandbox.pause()
    assert sandbox.commands.run("echo awake").stdout == "awake\n", "and so does a call"
    sandbox.kill()


IN_FLIGHT = "killed or reached its end of life"


def ended(error, text):
    """Checks that a call to a killed sandbox raises the client's error class for it. Older clients have no such class."""
    assert "RAM" not in str(error), error
    if SandboxNotRunningException is not None:
        assert isinstance(error, SandboxNotRunningException), (type(error), error)
        assert text in str(error), error


def killed_during_a_call():
    """The error reports that the sandbox was killed, and not that it is out of memory."""
    sandbox = new()
    handle = sandbox.commands.run("sleep 30003; true", background=True, timeout=0)
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    watch = sandbox.files.watch_dir("/tmp")
    sandbox.commands.run("truncate -s 4G /tmp/sparse")
    stream = iter(sandbox.files.read("/tmp/sparse", format="stream"))
    assert next(stream)
    Sandbox.kill(sandbox.sandbox_id)
    for call in (handle.wait, terminal.wait):
        ended(raised(call), IN_FLIGHT)
    # The rest of the file is missing: the client raises the error of its transport.
    assert "RAM" not in str(raised(lambda: sum(map(len, stream))))
    for call in (
        watch.get_new_events,
        lambda: sandbox.files.read("/etc/hostname"),
        lambda: sandbox.commands.run("true"),
        lambda: sandbox.commands.send_stdin(handle.pid, "x"),
        lambda: sandbox.files.write("/tmp/x", "x"),
    ):
        ended(raised(call), "was not found")


async def async_killed_during_a_call():
    """The async client watches through a stream, which reports its end."""
    sandbox = await AsyncSandbox.create(timeout=600)
    handle = await sandbox.commands.run("sleep 30004; true", background=True, timeout=0)
    over = asyncio.get_running_loop().create_future()
    await sandbox.files.watch_dir("/tmp", on_event=lambda event: None, on_exit=over.set_result, timeout=0)
    await AsyncSandbox.kill(sandbox.sandbox_id)
    ended(await asyncio.wait_for(over, 60), IN_FLIGHT)
    try:
        await handle.wait()
    except Exception as error:  # noqa: BLE001
        ended(error, IN_FLIGHT)
    else:
        raise AssertionError("its command did not fail")


def timeout_kills(_):
    sandbox = Sandbox.create(timeout=1)
    until("its end", lambda: not sandbox.is_running())
    refused(NotFoundException, sandbox.get_info)


def snapshots(sandbox):
    sandbox.files.write("/tmp/in-snapshot", "then")
    taken = sandbox.create_snapshot()
    sandbox.files.write("/tmp/in-snapshot", "now")
    listed = sandbox.list_snapshots().next_items()
    assert taken.snapshot_id in [one.snapshot_id for one in listed]
    child = Sandbox.create(taken.snapshot_id, timeout=60, metadata={"from": "snapshot"}, envs={"SET": "anew"})
    assert child.files.read("/tmp/in-snapshot") == "then"
    assert child.get_info().metadata == {"from": "snapshot"}
    assert child.commands.run("echo $SET").stdout == "anew\n"
    child.kill()
    assert Sandbox.delete_snapshot(taken.snapshot_id)
    assert not Sandbox.delete_snapshot(taken.snapshot_id)
    if takes(sandbox.create_snapshot, "name"):
        name = f"my_snap-{os.getpid()}"
        named = sandbox.create_snapshot(name=name)
        child = Sandbox.create(name, timeout=60)
        assert child.files.read("/tmp/in-snapshot") == "now"
        child.kill()
        assert Sandbox.delete_snapshot(named.snapshot_id)


def forking(sandbox):
    sandbox.files.write("/tmp/forked", "common")
    children = sandbox.fork(count=2, timeout=60)
    assert len(children) == 2
    for child in children:
        assert not isinstance(child, Exception), child
        assert child.files.read("/tmp/forked") == "common"
        assert child.sandbox_id != sandbox.sandbox_id
        assert child.kill()


def kill(sandbox):
    assert sandbox.kill()
    assert not sandbox.is_running()
    assert not Sandbox.kill(sandbox.sandbox_id)
    refused(SandboxException, lambda: sandbox.commands.run("true"))
    refused(NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))


# === Templates ===


def templates(_):
    name = f"scenario-{os.getpid()}"
    lines = []
    steps = Template().from_template("base").set_envs({"BUILT": "yes"}).set_workdir("/srv/app")
    steps = steps.run_cmd("echo made by $(whoami) in $(pwd) > /srv/made && echo a line", user="root")
    Template.build(steps, name, tags=["v1"], on_build_logs=lambda entry: lines.append(str(entry.message)))
    assert any("a line" in line for line in lines), lines
    assert Template.exists(name) and not Template.exists("no-such-template")
    for template in [name, f"{name}:v1"]:
        built = Sandbox.create(template, timeout=60)
        assert built.files.read("/srv/made") == "made by root in /srv/app\n"
        assert built.commands.run("echo $BUILT").stdout == "yes\n"
        built.kill()
    Template.assign_tags(f"{name}:v1", ["stable", "next"])
    assert {one.tag for one in Template.get_tags(name)} == {"default", "v1", "stable", "next"}
    Sandbox.create(f"{name}:stable", timeout=60).kill()
    Template.remove_tags(name, ["stable", "next"])
    refused(SandboxException, lambda: Sandbox.create(f"{name}:stable", timeout=60))
    image = Template().from_base_image().run_cmd("true")
    begun = Template.build_in_background(image, f"{name}-2")
    until("the build", lambda: Template.get_build_status(begun).status.value == "ready")
    fetch_as_owner("DELETE", f"/templates/{name}-2")
    fetch_as_owner("DELETE", f"/templates/{name}")
    assert [one.tag for one in Template.get_tags(name)] == ["v1"], "a name may have tags only"
    fetch_as_owner("DELETE", f"/templates/{name}:v1")
    refused(Exception, lambda: Template.get_tags(name))


def copying_builds(_):
    name = f"copies-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/app/below")
        for path, text in [("one", "1"), ("app/two", "2"), ("app/below/three", "3")]:
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
        steps = Template(file_context_path=folder).from_template("base").copy("one", "/srv/", mode=0o600, user="user")
        steps = steps.set_workdir("/srv/work").copy("app", "code").run_cmd("cat /srv/one code/two code/below/three > all")
        Template.build(steps, name)
    built = Sandbox.create(name, timeout=60)
    assert built.files.read("/srv/work/all") == "123"
    assert built.commands.run("stat -c '%U %a' /srv/one").stdout == "user 600\n"
    built.kill()
    fetch_as_owner("DELETE", f"/templates/{name}")


def template_helpers(_):
    """Steps that the client translates to commands, and the text formats of a template."""
    name = f"helpers-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        for path in ("one", "two"):
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(path)
        steps = Template(file_context_path=folder).skip_cache().from_template("base").set_user("root")
        steps = steps.make_dir(["/srv/a", "/srv/b"], mode=0o750).copy_items([{"src": "one", "dest": "/srv/a/"}, {"src": "two", "dest": "/srv/a/"}])
        steps = steps.rename("/srv/a/one", "/srv/a/first").make_symlink("/srv/a/first", "/srv/b/link").remove("/srv/a/two")
        steps = steps.set_user("user").skip_cache().run_cmd("id -un > /tmp/who")
        assert '"base"' in Template.to_json(steps)
        Template.build(steps, name)
    built = Sandbox.create(name, timeout=60)
    try:
        assert built.commands.run("cat /srv/b/link; ls /srv/a; stat -c %a /srv/b", user="root").stdout == "onefirst\n750\n"
        assert built.files.read("/tmp/who") == "user\n"
    finally:
        built.kill()
    if hasattr(Template, "alias_exists"):
        assert Template.alias_exists(name)
    text = Template.to_dockerfile(Template().from_image("debian:12").run_cmd("true"))
    assert text.startswith("FROM debian:12"), text
    fetch_as_owner("DELETE", f"/templates/{name}")


def dockerfile_builds(_):
    """A Dockerfile with COPY of patterns and to relative paths, USER, WORKDIR, and a start command."""
    name = f"dockerfile-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/src/deep")
        for path, text in [("one", "1"), ("a.txt", "a"), ("b.txt", "b"), ("src/x.py", "x"), ("src/deep/y.py", "y")]:
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
        steps = Template(file_context_path=folder).from_dockerfile(
            "FROM e2bdev/base\nENV GREETING=hello PATH=/opt/own:$PATH\nWORKDIR /srv/app\nCOPY one .\nCOPY *.txt texts/\n"
            "COPY src/**/*.py code\nRUN mkdir kept && [[ -d kept ]] && echo $PATH > path\nCOPY one kept\nUSER daemon\n"
            "CMD echo $E2B_TEMPLATE_ID > /tmp/template; echo $GREETING $(id -un) $(pwd) $$ > /tmp/started; exec sleep 1000\n"
        )
        # Its default ready command waits for 20 seconds, which this test does not need.
        steps = steps.set_ready_cmd("test -s /tmp/started && test -s /run/e2b/.E2B_SANDBOX_ID && test $E2B_SANDBOX = true")
        lines = []
        log = {"on_build_logs": lambda entry: lines.append(str(entry.message))}
        Template.build(steps, name, cpu_count=1, memory_mb=256, **log)
    # If another client of the same run has built these steps, they are "CACHED".
    assert any(line.removeprefix("CACHED ").startswith("[builder ") and "COPY one ." in line for line in lines), lines
    built = Sandbox.create(name, timeout=60)
    try:
        assert name in built.files.read("/tmp/template"), "a start command knows its template"
        marked = built.commands.run("cat /run/e2b/.E2B_SANDBOX_ID").stdout
        assert marked == built.sandbox_id, "a sandbox of the template has its own id"
        greeting, pid = built.files.read("/tmp/started").rsplit(" ", 1)
        assert greeting == "hello daemon /srv/app", greeting
        assert built.commands.run("id -un; pwd").stdout == "daemon\n/srv/app\n", "the last USER and WORKDIR stay"
        assert built.commands.run(f"cat /proc/{int(pid)}/comm").stdout == "sleep\n", "its command runs"
        found = built.commands.run("cat one texts/a.txt texts/b.txt code/x.py code/deep/y.py kept/one; cut -d: -f1 path").stdout
        assert found == "1abxy1/opt/own\n", found
        info = built.get_info()
        assert (info.cpu_count, info.memory_mb) == (1, 256), info
    finally:
        built.kill()
    usual = Template(file_context_path=os.path.dirname(__file__)).from_template("base").copy("scenario.py", ".")
    Template.build(usual.run_cmd("id -un > who; pwd >> who"), f"{name}-2")
    built = Sandbox.create(f"{name}-2", timeout=60)
    try:
        assert built.files.read("who") == "user\n/home/user\n"
        assert built.commands.run("stat -c %U scenario.py").stdout == "user\n"
    finally:
        built.kill()
    for suffix in ["", "-2"]:
        fetch_as_owner("DELETE", f"/templates/{name}{suffix}")


def failing_builds(_):
    said = refused(BuildException, lambda: Template.build(Template().from_template("base").run_cmd("exit 3"), "fails"))
    assert "3" in said, said
    said = refused(Exception, lambda: Template.build(Template().from_template("no-such-template"), "fails"))
    assert "no-such-template" in said, said
    unknown = Template().from_template("base").run_cmd("true", user="nobody-knows")
    said = refused(BuildException, lambda: Template.build(unknown, "fails"))
    assert "invalid username: 'nobody-knows'" in said, said
    # The client adds the line that called the method of the step at fault to the traceback.
    steps = Template().from_template("base").run_cmd("true")
    steps = steps.set_user("; exit 1")
    error = raised(lambda: Template.build(steps, "fails"))
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    assert isinstance(error, BuildException) and any(".set_user(" in line for line in lines), (error, lines)
    # One line of 400 MiB, kept in RAM: the steps of a build have the RAM that it asks for.
    # The step is unique to this run, because a step that succeeded is cached, whatever RAM it had.
    command = f"head -c 400M /dev/zero | tail | wc -c > /tmp/size-{os.getpid()} && test $(cat /tmp/size-{os.getpid()}) -gt 400000000"
    large = Template().from_template("base").run_cmd(command)
    said = refused(BuildException, lambda: Template.build(large, "fails", memory_mb=256))
    assert not Template.exists("fails"), said
    name = f"large-{os.getpid()}"
    Template.build(large, name, memory_mb=1024)
    fetch_as_owner("DELETE", f"/templates/{name}")
    started = Template().from_template("base").set_start_cmd("exit 7", "false")
    said = refused(BuildException, lambda: Template.build(started, "fails"))
    assert "exit status 7" in said and not Template.exists("fails"), said


def fetch_as_owner(method, path):
    url = os.environ["E2B_API_URL"] + path
    request = urllib.request.Request(url, method=method, headers={"X-API-Key": os.environ["E2B_API_KEY"]})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status in (200, 204), answer.status


def volumes(_):
    """Files that outlive sandboxes: one sandbox writes, others read, and so do clients with the volume's token."""
    try:
        from e2b import Volume
    except ImportError:
        raise Absent
    if not takes(Sandbox.create, "volume_mounts"):
        raise Absent
    name = f"scenario-{os.urandom(4).hex()}"
    volume = Volume.create(name)
    try:
        assert [one.volume_id for one in Volume.list() if one.name == name] == [volume.volume_id]
        if hasattr(volume, "get_info"):
            found = volume.get_info("/") if takes(volume.get_info, "path") else Volume.get_info(volume.volume_id)
            assert found is not None
        volume.make_dir("/notes/deep", force=True, mode=0o755)
        entry = volume.write_file("/notes/deep/a.txt", "one", uid=1000, mode=0o640)
        assert (entry.size, entry.uid, entry.mode) == (3, 1000, 0o640), entry
        volume.write_file("/notes/deep/a.txt", b"first")
        refused(Exception, lambda: volume.write_file("/notes/deep/a.txt", b"second", force=False))
        assert volume.read_file("/notes/deep/a.txt") == "first"
        assert b"".join(volume.read_file("/notes/deep/a.txt", format="stream")) == b"first"
        assert [one.path for one in volume.list("/", depth=3)] == ["/notes", "/notes/deep", "/notes/deep/a.txt"]
        assert volume.update_metadata("/notes/deep/a.txt", mode=0o600).mode == 0o600
        assert volume.exists("/notes") and not volume.exists("/none")
        refused(NotFoundException, lambda: volume.read_file("/none"))
        big = os.urandom(3 * MIB)
        volume.write_file("/big", big)
        assert volume.read_file("/big", format="bytes") == big
        writer = new(volume_mounts={"/data": volume})
        try:
            assert writer.commands.run("cat /data/notes/deep/a.txt", user="root").stdout == "first"
            writer.commands.run("echo written > /data/by-the-sandbox")
            assert [(one["name"], one["path"]) for one in writer.get_info().volume_mounts] == [(name, "/data")]
            said = refused(SandboxException, lambda: new(volume_mounts={"/data": volume}))
            assert "already mounted for writing" in said, said
            reader = new(volume_mounts={"/data": f"{name}:ro"})
            try:
                assert reader.commands.run("cat /data/by-the-sandbox").stdout == "written\n"
                refused(CommandExitException, lambda: reader.commands.run("echo no > /data/by-the-sandbox"))
            finally:
                reader.kill()
        finally:
            writer.kill()
        connected = Volume.connect(volume.volume_id)
        assert connected.read_file("/by-the-sandbox") == "written\n"
        connected.remove("/notes")
        assert not connected.exists("/notes/deep/a.txt")
    finally:
        assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)


def absent(_):
    """Unsupported calls are refused with a message."""
    template = Template().from_template("mcp-gateway")
    if not hasattr(template, "add_mcp_server"):
        raise Absent
    template = template.add_mcp_server("time")
    said = refused(Exception, lambda: Template.build(template, f"servers-{os.getpid()}"))
    assert "mcp-gateway" in said, said


# === By host name, over TLS ===


def by_name(_):
    sandbox = new(network={"allow_public_traffic": True})
    try:
        domain = os.environ["E2B_DOMAIN"]
        assert sandbox.get_host(8000) == f"8000-{sandbox.sandbox_id}.{domain}"
        assert sandbox.commands.run("echo by name").stdout == "by name\n"
        sandbox.files.write("/tmp/a", "b" * MIB)
        assert sandbox.files.read("/tmp/a") == "b" * MIB
        assert fetch(sandbox.download_url("/tmp/a")) == (200, b"b" * MIB)
        serve(sandbox)
        address = f"https://{sandbox.get_host(8000)}/index.html"
        until("the server inside", lambda: fetch(address) == (200, b"served"))
        assert Sandbox.get_info(sandbox.sandbox_id).sandbox_id == sandbox.sandbox_id
    finally:
        assert sandbox.kill()
    assert not sandbox.is_running()


def ask_mcp(sandbox, token, method, params):
    """Sends one message to the address of `get_mcp_url()` and returns the response."""
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    status, body = fetch(sandbox.get_mcp_url(), message, headers)
    lines = [line.removeprefix("data:") for line in body.decode().splitlines()]
    found = [line for line in lines if '"jsonrpc"' in line]
    return status, json.loads(found[-1]).get("result") if status == 200 else body


def mcp_address(_):
    """The `mcp` option: an MCP client reaches Burrow's tools for that sandbox, with its token and no other."""
    if not hasattr(Sandbox, "get_mcp_url"):
        raise Absent
    sandbox = new(mcp={"time": {}})
    other = new(mcp={})
    try:
        domain = os.environ["E2B_DOMAIN"]
        assert sandbox.get_mcp_url() == f"https://50005-{sandbox.sandbox_id}.{domain}/mcp"
        token = sandbox.get_mcp_token()
        begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "scenario", "version": "1"}}
        run = {"name": "sandbox_run", "arguments": {"command": "hostname > /tmp/by-mcp; echo from $((40 + 2))"}}

        def works(sandbox, token):
            status, said = ask_mcp(sandbox, token, "initialize", begin)
            assert status == 200 and said["serverInfo"]["name"] == "burrow", (status, said)
            status, said = ask_mcp(sandbox, token, "tools/list", {})
            assert status == 200 and "sandbox_run" in [tool["name"] for tool in said["tools"]], (status, said)
            status, said = ask_mcp(sandbox, token, "tools/call", run)
            assert status == 200 and not said["isError"] and "from 42" in json.dumps(said), (status, said)
            assert sandbox.files.exists("/tmp/by-mcp")

        works(sandbox, token)
        for wrong in (None, "nonsense", other.get_mcp_token(), token[:-1], token + "x", sandbox.traffic_access_token):
            status, said = ask_mcp(sandbox, wrong, "tools/list", {})
            assert status == 401, (wrong, status, said)
        # The token gives access to this sandbox only, and cannot change its boundaries.
        for tool, arguments in [("sandbox_status", {"sandbox": other.sandbox_id}), ("sandbox_fork", {})]:
            status, said = ask_mcp(sandbox, token, "tools/call", {"name": tool, "arguments": arguments})
            assert status == 200 and said["isError"], said
        assert sandbox.commands.run("stat -c '%U %a' /etc/mcp-gateway/.token", user="root").stdout == "root 600\n"
        sandbox.pause()
        assert ask_mcp(sandbox, "x" * 36, "tools/list", {})[0] == 401
        state = Sandbox.get_info(sandbox.sandbox_id).state
        assert str(getattr(state, "value", state)) == "paused", "a wrong token wakes nothing"
        again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
        assert again.get_mcp_token() == token, "a later client reads it inside"
        works(again, token)
    finally:
        sandbox.kill()
        other.kill()
    assert ask_mcp(sandbox, token, "tools/list", {})[0] != 200


async def asynchronous_by_name():
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        assert (await sandbox.commands.run("echo by name")).stdout == "by name\n"
    finally:
        assert await sandbox.kill()


def names_lead_here():
    """Not every resolver resolves names below `localhost` to this machine."""
    usual = socket.getaddrinfo

    def resolve(host, *args, **options):
        local = isinstance(host, str) and host.endswith(".localhost")
        return usual("127.0.0.1" if local else host, *args, **options)

    socket.getaddrinfo = resolve


# === The same with the async client ===


async def async_commands():
    sandbox = await AsyncSandbox.create(timeout=600, envs={"SET": "by-create"})
    try:
        done = await sandbox.commands.run("echo $SET; echo err >&2")
        assert (done.stdout, done.stderr) == ("by-create\n", "err\n")
        several = await asyncio.gather(*[sandbox.commands.run(f"echo {index}") for index in range(10)])
        assert [one.stdout for one in several] == [f"{index}\n" for index in range(10)]
        handle = await sandbox.commands.run("cat; exit 7", background=True, stdin=True)
        await sandbox.commands.send_stdin(handle.pid, "word\n")
        await sandbox.commands.close_stdin(handle.pid)
        try:
            await handle.wait()
        except CommandExitException as error:
            assert (error.exit_code, error.stdout) == (7, "word\n"), error
        else:
            raise AssertionError("its exit code was lost")
        handle = await sandbox.commands.run("sleep 1000", background=True)
        again = await sandbox.commands.connect(handle.pid)
        assert await again.kill()
        text = b""

        async def take(data):
            nonlocal text
            text += data

        handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=take)
        await sandbox.pty.send_stdin(handle.pid, b"echo from-$((1+1)); exit\n")
        await handle.wait()
        assert b"from-2" in text, text
    finally:
        assert await sandbox.kill()
    assert not await sandbox.is_running()


async def async_files():
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        several = [{"path": f"/tmp/many/{index}", "data": f"number {index}"} for index in range(3)]
        await sandbox.files.write_files(several)
        for one in several:
            assert await sandbox.files.read(one["path"]) == one["data"]
        assert len(await sandbox.files.list("/tmp/many")) == 3
        await sandbox.files.rename("/tmp/many/0", "/tmp/many/9")
        await sandbox.files.remove("/tmp/many/1")
        assert not await sandbox.files.exists("/tmp/many/0")
        seen = asyncio.Event()
        watch = await sandbox.files.watch_dir("/tmp", on_event=lambda event: seen.set())
        await sandbox.files.write("/tmp/changed", "x")
        await asyncio.wait_for(seen.wait(), 60)
        await watch.stop()
    finally:
        assert await sandbox.kill()


async def async_life():
    sandbox = await AsyncSandbox.create(timeout=600, metadata={"who": "async"})
    try:
        found = await AsyncSandbox.list(query=SandboxQuery(metadata={"who": "async"})).next_items()
        assert [one.sandbox_id for one in found] == [sandbox.sandbox_id]
        await sandbox.set_timeout(900)
        await sandbox.files.write("/tmp/kept", "yes")
        await sandbox.pause()
        sandbox = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=600)
        taken = await sandbox.create_snapshot()
        children = [await AsyncSandbox.create(taken.snapshot_id, timeout=60), *(await sandbox.fork(timeout=60))]
        for child in children:
            assert await child.files.read("/tmp/kept") == "yes"
            assert await child.kill()
        assert await AsyncSandbox.delete_snapshot(taken.snapshot_id)
        assert await sandbox.get_metrics()
    finally:
        assert await sandbox.kill()


def leave():
    """Exits without interpreter shutdown: the native part of some versions sometimes aborts during the shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if FAILED else 0)


def every_method():
    """The public methods of the newest tested client are all used."""
    if SandboxNotRunningException is None:
        raise Absent
    faults = calls.faults()
    assert not faults, "; ".join(faults)


def main():
    if SandboxNotRunningException is not None and not os.environ.get("E2B_DOMAIN"):
        calls.record()
    if os.environ.get("E2B_DOMAIN"):
        names_lead_here()
        check("domain mode, TLS", by_name, None)
        check("domain mode, TLS: mcp", mcp_address, None)
        check("domain mode, TLS: async client", lambda: asyncio.run(asynchronous_by_name()))
        leave()
    sandbox = new(metadata={"who": "scenario", "said": "ä = b & c%20"}, envs={"SET": "by-create"})
    for name, work in [
        ("info", info),
        ("list, filters, pages", listing),
        ("timeout, connect", timeouts),
        ("metrics", metrics),
        ("commands: run", run),
        ("commands: envs, cwd, user", run_options),
        ("commands: background, list, kill", background),
        ("commands: disconnect, connect", reconnect),
        ("commands: handles", handles),
        ("commands: stdin", standard_input),
        ("commands: streamed stdin", streamed_input),
        ("commands: timeout", command_timeout),
        ("commands: 10 MiB of output", much_output),
        ("pty", terminal),
        ("pty: connect, kill", terminal_again),
        ("git", repository),
        ("files: read, write", files),
        ("files: several at once", many_files),
        ("files: large, gzip", large_file),
        ("files: metadata", file_metadata),
        ("files: directories", directories),
        ("files: watch", watching),
        ("files: signed addresses", signed),
        ("ports: get_host, by token", ports),
        ("ports: get_host, public", public_ports),
        ("one token, one sandbox", foreign),
        ("pause, resume", pausing),
        ("pause without memory", pausing_files),
        ("auto-resume", waking_by_use),
        ("snapshots", snapshots),
        ("fork", forking),
        ("network", network),
        ("kill", kill),
        ("auto-pause", auto_pause),
        ("auto-pause, auto-resume", auto_resume),
        ("timeout kills", timeout_kills),
        ("killed during a call", lambda _: killed_during_a_call()),
        ("templates: builds, aliases, tags", templates),
        ("templates: builds with files", copying_builds),
        ("templates: helpers", template_helpers),
        ("templates: Dockerfiles, start commands", dockerfile_builds),
        ("templates: builds that fail", failing_builds),
        ("volumes", volumes),
        ("what there is not is refused", absent),
    ]:
        check(name, work, sandbox)
    check("unknown template", unknown_template)
    check("unknown key", bad_key)
    check("async: commands, pty", lambda: asyncio.run(async_commands()))
    check("async: files, watch", lambda: asyncio.run(async_files()))
    check("async: killed during a call", lambda: asyncio.run(async_killed_during_a_call()))
    check("async: life, snapshots, fork", lambda: asyncio.run(async_life()))
    if not ONLY:
        check("every method is called, or is listed with a reason", every_method)
    leave()


main()
