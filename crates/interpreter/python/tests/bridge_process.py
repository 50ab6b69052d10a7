"""A bridge process for tests, and requests to its port."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

BRIDGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bridge.py")
# Far longer than any step takes, so that a hanging test fails with a message.
SECONDS_MAX = 60


class Bridge:
    """A bridge in its own directory."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="burrow-bridge-")
        self.home = self.folder.name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = open(os.path.join(self.home, "log"), "wb")
        self.process = subprocess.Popen(
            [sys.executable, "-u", BRIDGE, "--port", str(self.port), "--user-cwd", self.home],
            stderr=self.log,
            stdout=self.log,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "IPYTHONDIR": self.home, "TMPDIR": self.home},
        )
        until("the bridge", self.answers)

    def answers(self):
        with contextlib.suppress(OSError):
            return self.call("GET", "/health")[0] == 200

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SECONDS_MAX)
        self.log.close()
        self.folder.cleanup()

    def logged(self):
        with open(os.path.join(self.home, "log"), encoding="utf-8") as file:
            return file.read()

    def call(self, method, path, body=None, headers=None):
        """The status and JSON of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else None

    def run(self, code, **fields):
        """Runs code to its end."""
        with Stream(self, code, **fields) as stream:
            return Ran(list(stream))

    def children(self, pid=None):
        """The pids of the child processes."""
        with open(f"/proc/{pid or self.process.pid}/task/{pid or self.process.pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]


class Stream:
    """A run whose lines are read one by one."""

    def __init__(self, bridge, code, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", bridge.port, timeout=SECONDS_MAX)
        self.connection.request("POST", "/execute", json.dumps({"code": code, **fields}), {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, (self.answer.status, self.answer.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return (json.loads(line) for line in self.answer)

    def read_until(self, kind):
        """The next line of a kind."""
        for line in self.answer:
            event = json.loads(line)
            if event["type"] == kind:
                return event
        raise AssertionError(f"no {kind} came")

    def read_line(self, kind="stdout"):
        """The next line of output, which may arrive in several events."""
        text = ""
        while not text.endswith("\n"):
            text += self.read_until(kind)["text"]
        return text

    def close(self):
        # The response also holds the socket.
        self.answer.close()
        self.connection.close()


class Ran:
    """The result of a run."""

    def __init__(self, events):
        self.events = events
        self.end = events[-1]
        assert self.end["type"] == "end_of_execution", events
        self.status = self.end["status"]
        self.stdout = self.text("stdout")
        self.stderr = self.text("stderr")
        self.results = [event for event in events if event["type"] == "result"]
        self.errors = [event for event in events if event["type"] == "error"]

    def text(self, kind):
        return "".join(event["text"] for event in self.events if event["type"] == kind)

    @property
    def main(self):
        """The value of the last line."""
        (one,) = [result for result in self.results if result["is_main_result"]]
        return one

    @property
    def shown(self):
        """The single displayed result."""
        (one,) = [result for result in self.results if not result["is_main_result"]]
        return one

    @property
    def error(self):
        (one,) = self.errors
        return one

    def __repr__(self):
        return repr(self.events)[:2000]


def until(what, look):
    """Repeats the check until it succeeds."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def beside(work):
    """Runs work in a thread; returns a function that waits for the result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()

    def finish():
        thread.join(SECONDS_MAX)
        assert results, "it did not finish"
        return results[0]

    return finish
