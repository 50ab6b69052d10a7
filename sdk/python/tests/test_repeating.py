"""Which requests are retried when connections break, against a server that breaks them on purpose."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from burrow_sandbox import APIError, BrokenError, BusyError, Client, ConnectError, NotFoundError, Sandbox
from burrow_sandbox._sync import transport

SANDBOX = {
    "id": "sbx1",
    "created_ms": 1,
    "driver": "container",
    "env": {},
    "ephemeral": False,
    "image": "debian",
    "image_id": "img1",
    "labels": {},
    "limits": {"cpu_millis": 1, "disk_mib": 1, "pids": 1, "ram_mib": 1},
    "services": [],
    "state": "running",
}
HANG_UP = object()
Script = list[Any]


class Server:
    """Answers each request with the next item of its script, and records the requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def close(self) -> None:
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                self._answer(stream)

    def _answer(self, stream: Any) -> None:
        line = stream.readline().decode().strip()
        headers = {}
        while header := stream.readline().decode().strip():
            key, _, value = header.partition(": ")
            headers[key.lower()] = value
        body = stream.read(int(headers.get("content-length", 0)))
        self.requests.append((line, headers, body))
        answer = self.script.pop(0)
        if answer is HANG_UP:
            return
        status, value = answer
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nx-request-id: r{len(self.requests)}\r\nconnection: close\r\n"
        stream.write(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
        stream.flush()


def refusal(code: str, message: str = "no", hint: str | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint}}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Script], tuple[Server, Client]]]:
    monkeypatch.setattr(transport, "RETRY_PAUSE", 0.001)
    servers: list[Server] = []

    def start(script: Script) -> tuple[Server, Client]:
        server = Server(script)
        servers.append(server)
        return server, Client(server.url, "a-key")

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Script], tuple[Server, Client]]


def test_a_create_is_sent_again_with_the_same_key(serve: Serve) -> None:
    server, client = serve([HANG_UP, (409, refusal("idempotency_in_flight")), (201, SANDBOX)])
    assert Sandbox.create(client=client).id == "sbx1"
    keys = {headers["idempotency-key"] for _, headers, _ in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert {headers["x-api-key"] for _, headers, _ in server.requests} == {"a-key"}


def test_two_creates_have_two_keys(serve: Serve) -> None:
    server, client = serve([(201, SANDBOX), (201, SANDBOX)])
    for _ in range(2):
        Sandbox.create(client=client)
    assert len({headers["idempotency-key"] for _, headers, _ in server.requests}) == 2


def test_a_read_is_sent_again_a_bounded_number_of_times(serve: Serve) -> None:
    server, client = serve([HANG_UP] * 50)
    with pytest.raises(BrokenError, match="the connection broke during GET `/v1/version`"):
        client.version()
    assert len(server.requests) == transport.RETRIES_MAX + 1


def test_a_change_that_counts_twice_is_sent_once(serve: Serve) -> None:
    server, client = serve([HANG_UP])
    with pytest.raises(BrokenError):
        client.memory("m").kv.increment("counter")
    assert len(server.requests) == 1


def test_storing_a_memory_is_sent_again_since_it_has_a_key(serve: Serve) -> None:
    added = {"entries": [{"id": "mem1", "existed": False, "seq": 1}]}
    server, client = serve([HANG_UP, (201, added)])
    assert client.memory("m").store("x") == "mem1"
    keys = {json.loads(body)["key"] for _, _, body in server.requests}
    assert len(server.requests) == 2
    assert len(keys) == 1


def test_a_delete_whose_answer_was_lost_has_happened(serve: Serve) -> None:
    _, client = serve([HANG_UP, (404, refusal("not_found")), (404, refusal("not_found"))])
    client.snapshots.delete("snp1")
    with pytest.raises(NotFoundError):
        client.snapshots.delete("snp2")


def test_a_busy_daemon_is_asked_again(serve: Serve) -> None:
    version = {"version": "1", "guest_generation": 1}
    server, client = serve([(503, refusal("busy")), (502, b"<html>bad gateway</html>"), (200, version)])
    assert client.version().version == "1"
    assert len(server.requests) == 3
    server, client = serve([(503, refusal("busy", "full", "later"))])
    with pytest.raises(BusyError, match="full\nhint: later"):
        client.memory("m").kv.increment("counter")


def test_what_is_no_daemon_is_told(serve: Serve) -> None:
    _, client = serve([(404, b"<h1>nginx</h1>")])
    with pytest.raises(APIError, match="not from a Burrow daemon") as caught:
        client.version()
    assert caught.value.hint is not None
    assert caught.value.request_id == "r1"


def test_a_daemon_that_was_never_there_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A delay would mean an attempt that must not be made.
    monkeypatch.setattr("burrow_sandbox._sync.transport.time.sleep", lambda _: pytest.fail("it waited"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match=r"burrow up"):
        Client(f"http://127.0.0.1:{port}", "k").version()


def test_pages_are_read_to_their_end(serve: Serve) -> None:
    pages = [(200, {"items": [SANDBOX], "next_cursor": "c1"}), (200, {"items": [SANDBOX], "next_cursor": None})]
    server, client = serve(list(pages))
    assert len(Sandbox.list(client=client, labels={"a": "b c"}, state="running")) == 2
    assert "label=a%3Db+c&state=running" in server.requests[0][0].replace("%20", "+")
    assert "cursor=c1" in server.requests[1][0]


def test_an_answer_of_a_newer_daemon_is_understood(serve: Serve) -> None:
    newer = {**SANDBOX, "state": "dreaming", "invented": {"later": True}}
    _, client = serve([(200, newer)])
    assert str(Sandbox.connect("x", client=client).info.state) == "dreaming"
