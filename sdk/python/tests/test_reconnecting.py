"""Restarts of the daemon while clients are connected: nothing is lost or delivered twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from daemon import PATIENCE, Daemon, eventually

from burrow_sandbox import Client, Sandbox, SandboxAsleepError


@pytest.fixture(scope="module")
def mortal() -> Iterator[Daemon]:
    """A daemon that tests may kill."""
    daemon = Daemon()
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.remove()


@pytest.fixture
def client(mortal: Daemon) -> Iterator[Client]:
    with Client(mortal.url, mortal.key) as client:
        yield client


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_command_goes_on_and_every_line_comes_once(mortal: Daemon, client: Client, how: signal.Signals) -> None:
    with Sandbox.create(client=client) as sandbox:
        heard: list[str] = []

        def restart(text: str) -> None:
            heard.append(text)
            if len(heard) == 1:
                mortal.end(how)
                # Written while no client is connected.
                mortal.start()
                sandbox.files.write("/tmp/restarted", "")

        script = "i=0; while [ ! -e /tmp/restarted ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo end"
        result = sandbox.run(script, on_stdout=restart, timeout=120)
        lines = result.stdout.split()
        assert lines[-1] == "end"
        assert lines[:-1] == [str(number) for number in range(1, len(lines))]
        assert result.ok
        assert not result.truncated


def test_a_silent_connection_is_kept_alive(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burrow_sandbox._sync.process.HEARTBEAT_SECONDS", 0.01)
    with Sandbox.create(client=client) as sandbox:
        assert sandbox.run("sleep 0.5; echo done").stdout == "done\n"


def test_watches_and_calls_go_on(mortal: Daemon, client: Client) -> None:
    with Sandbox.create(client=client) as sandbox:
        with sandbox.memory.kv.watch() as keys, sandbox.files.watch("/srv") as files:
            sandbox.memory.kv.set("before", 1)
            event = next(keys)
            assert event.kind == "set"
            mortal.end()
            mortal.start()
            # The first call finds its connections broken and opens new ones.
            sandbox.memory.kv.set("after", 2)
            event = next(keys)
            assert event.kind == "set"
            assert (event.item.key, event.item.value) == ("after", 2)
            # A watch cannot know which changes it missed, so it reports `overflow`.
            assert next(files).kind == "overflow"
        events = [event.kind for event in client.events(sandbox=sandbox.id)]
        assert events


def test_a_call_made_while_the_daemon_is_away_waits_for_it(
    mortal: Daemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time that a daemon may take to start on a busy machine.
    monkeypatch.setattr("burrow_sandbox._sync.transport.RETRIES_MAX", int(PATIENCE))
    with Sandbox.create(client=client) as sandbox:
        mortal.end()
        answers: list[str] = []
        caller = threading.Thread(target=lambda: answers.append(sandbox.refresh().state))
        caller.start()
        mortal.start()
        caller.join(PATIENCE)
        assert answers == ["running"]


def test_a_stream_ends_with_a_word_when_its_sandbox_is_put_to_sleep(client: Client) -> None:
    with Sandbox.create(client=client) as sandbox:
        process = sandbox.spawn("echo up; sleep 1000")
        stream = process.output()
        assert next(stream).text == "up\n"
        sandbox.sleep()
        with pytest.raises(SandboxAsleepError, match="hint: "):
            next(stream)
        assert sandbox.refresh().state == "hibernated", "nobody woke it"
        assert eventually("the process", lambda: process.refresh().state) == "running"
