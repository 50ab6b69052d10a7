"""Parts that need no daemon: errors, configuration, frames, types; and whether generated files are up to date."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import subprocess
import sys
import threading
import typing
from datetime import timedelta
from pathlib import Path

import pytest

import burrow_sandbox
from burrow_sandbox import BurrowError, NotFoundError, _decode, types
from burrow_sandbox._config import find_key, find_url, is_loopback
from burrow_sandbox._decode import decode, decode_union
from burrow_sandbox._websocket import BINARY, PING, TEXT, Frames, accept_of, frame
from burrow_sandbox._wire import milliseconds, path, query, seconds
from burrow_sandbox.errors import _CLASSES, api_error

SDK = Path(__file__).parent.parent


def test_what_is_generated_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SDK / "tools" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_installed_has_its_types_and_needs_no_framework() -> None:
    assert (Path(burrow_sandbox.__file__).parent / "py.typed").exists()
    blocked = ("langchain", "langchain_core", "agents", "openai")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import burrow_sandbox.agents"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_code_of_the_daemon_has_a_class() -> None:
    assert set(_CLASSES) == set(typing.get_args(types.ErrorCode))
    for name in {kind.__name__ for kind in _CLASSES.values()}:
        assert name in burrow_sandbox.__all__


def test_an_error_carries_all_that_is_known() -> None:
    error = api_error({"code": "not_found", "message": "gone", "hint": "look"}, status=404, request_id="r1")
    assert isinstance(error, NotFoundError)
    assert (error.code, error.message, error.hint, error.status, error.request_id) == (
        "not_found",
        "gone",
        "look",
        404,
        "r1",
    )
    assert str(error) == "gone\nhint: look"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.request_id) == (NotFoundError, "not_found", "r1")
    assert type(api_error({"code": "of_the_future", "message": "?"})) is burrow_sandbox.APIError
    assert "BURROW_API_KEY" in str(api_error({"code": "unauthorized", "message": "who?"}))


def test_where_the_daemon_is_and_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BURROW_URL", raising=False)
    monkeypatch.delenv("BURROW_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("burrow_sandbox._config.ADMIN_KEY", tmp_path / "admin.key")
    assert find_url(None) == "http://127.0.0.1:7700"
    assert find_url("https://box.example/prefix/") == "https://box.example/prefix"
    for bad in ("box.example", "ftp://box.example", "http://"):
        with pytest.raises(BurrowError, match="not an http or https address"):
            find_url(bad)
    assert find_key(None, "http://127.0.0.1:7700") is None
    (tmp_path / "admin.key").write_text("admin\n")
    assert find_key(None, "http://127.0.0.1:7700") == "admin"
    # The admin key of this host is never sent to another host.
    assert find_key(None, "http://box.example") is None
    (tmp_path / "burrow").mkdir()
    (tmp_path / "burrow" / "key").write_text("mine\n")
    assert find_key(None, "http://box.example") == "mine"
    monkeypatch.setenv("BURROW_API_KEY", " set ")
    assert find_key(None, "http://box.example") == "set"
    assert find_key("given", "http://box.example") == "given"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:7700", True),
        ("http://[::1]:7700", True),
        ("http://127.9.9.9", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
    ],
)
def test_which_addresses_are_this_host(url: str, local: bool) -> None:
    assert is_loopback(url) is local


def test_paths_queries_and_times() -> None:
    assert path("memory", "a b", "kv", "x/y?z") == "/v1/memory/a%20b/kv/x%2Fy%3Fz"
    asked = {"a": None, "b": False, "c": True, "d": 0, "e": ["x", "y"]}
    assert query(asked) == (("c", "true"), ("d", "0"), ("e", "x"), ("e", "y"))
    assert (seconds(0.2), seconds(0), seconds(timedelta(hours=1)), seconds(None)) == (1, 0, 3600, None)
    assert (milliseconds(0.25), milliseconds(0), milliseconds(None)) == (250, 1, None)


def _served(kind: int, data: bytes, final: bool = True) -> bytes:
    """A frame of a server, which is not masked."""
    first = (0x80 if final else 0) | kind
    if len(data) < 126:
        return struct.pack("!BB", first, len(data)) + data
    if len(data) < 1 << 16:
        return struct.pack("!BBH", first, 126, len(data)) + data
    return struct.pack("!BBQ", first, 127, len(data)) + data


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_frames_of_every_length_are_put_together(size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    wire = _served(BINARY, data) + _served(TEXT, b"next")
    frames = Frames()
    messages = []
    for start in range(0, len(wire), 997):
        frames.feed(wire[start : start + 997])
        while message := frames.next():
            messages.append((message.kind, message.data))
    assert messages == [(BINARY, data), (TEXT, b"next")]


def test_messages_in_parts_with_a_ping_between() -> None:
    frames = Frames()
    frames.feed(_served(TEXT, b"one ", final=False) + _served(PING, b"?") + _served(0, b"two"))
    first, second = frames.next(), frames.next()
    assert first is not None
    assert second is not None
    assert (first.kind, first.data) == (PING, b"?")
    assert (second.kind, second.data) == (TEXT, b"one two")


@pytest.mark.parametrize(
    "wire",
    [b"\xf1\x00", b"\x81\x80\x00\x00\x00\x00", b"\x80\x00", b"\x82\x7f" + (1 << 40).to_bytes(8, "big")],
    ids=["reserved bits", "masked", "goes on without a beginning", "too large"],
)
def test_what_is_no_websocket_is_refused(wire: bytes) -> None:
    frames = Frames()
    frames.feed(wire)
    with pytest.raises(ValueError, match=r"."):
        frames.next()


@pytest.mark.parametrize("size", [0, 5, 126, 70_000])
def test_frames_we_send_are_masked(size: int) -> None:
    data = bytes(size)
    sent = frame(BINARY, data)
    assert sent[0] == 0x80 | BINARY
    assert sent[1] & 0x80
    head = {126: 4, 127: 10}.get(sent[1] & 0x7F, 2)
    mask, masked = sent[head : head + 4], sent[head + 4 :]
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked)) == data


def test_the_handshake_of_the_protocols_own_example() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_answers_become_dataclasses() -> None:
    chunk = decode_union("OutputChunk", {"kind": "gap", "from": 3, "to": 9})
    assert isinstance(chunk, types.OutputChunkGap)
    assert (chunk.from_, chunk.to) == (3, 9)
    assert decode_union("OutputChunk", {"kind": "of-the-future"}) is None
    changes = decode(types.Changes, {"paths": [{"kind": "added", "path": "/a"}], "total": 1})
    assert changes.paths == [types.Change(kind="added", path="/a")]
    assert (changes.since, changes.more) == (None, None)
    assert copy.copy(changes) == changes
    with pytest.raises(ValueError, match="`total` is missing in Changes"):
        decode(types.Changes, {"paths": []})


def test_a_type_is_read_by_two_threads_at_once_for_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reader_of, halfway, go_on = _decode._reader, threading.Event(), threading.Event()
    changes = {"paths": [], "total": 1}

    def slow(kind: typing.Any) -> typing.Any:
        if threading.current_thread() is first and typing.get_origin(kind) is list:
            halfway.set()
            go_on.wait(20)
        return reader_of(kind)

    found: list[types.Changes] = []
    first = threading.Thread(target=lambda: found.append(decode(types.Changes, changes)))
    monkeypatch.setattr(_decode, "_READERS", {})
    monkeypatch.setattr(_decode, "_reader", slow)
    first.start()
    assert halfway.wait(20)
    second = decode(types.Changes, changes)
    go_on.set()
    first.join()
    assert found == [second]


def test_every_type_of_the_document_can_be_read() -> None:
    document = json.loads((SDK.parent.parent / "docs" / "openapi.json").read_text(encoding="utf-8"))
    for name in document["components"]["schemas"]:
        kind = getattr(types, name, None)
        if isinstance(kind, type):
            with pytest.raises(ValueError, match="expected an object"):
                decode(kind, "no object")
