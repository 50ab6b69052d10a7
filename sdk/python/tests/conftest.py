"""Fixtures: one daemon for the whole test run, and sandboxes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from daemon import Daemon

from burrow_sandbox import Client, NotFoundError, Sandbox

# The image for running code. `scripts/test-e2b.sh` builds it, because that takes minutes and more than a GiB.
INTERPRETER = "python-interpreter"


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A daemon shared by all tests."""
    daemon = Daemon()
    try:
        daemon.start()
        yield daemon
    finally:
        with Client(daemon.url, daemon.key) as client:
            for sandbox in Sandbox.list(client=client):
                sandbox.delete(snapshots=True)
        daemon.remove()


@pytest.fixture
def environment(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment variables that users set."""
    monkeypatch.setenv("BURROW_URL", daemon.url)
    monkeypatch.setenv("BURROW_API_KEY", daemon.key)


@pytest.fixture
def client(daemon: Daemon, environment: None) -> Iterator[Client]:
    with Client(daemon.url, daemon.key) as client:
        yield client


@pytest.fixture(scope="session")
def shared(daemon: Daemon) -> Iterator[Sandbox]:
    """A shared sandbox, for tests that do not depend on its state."""
    with Client(daemon.url, daemon.key) as client:
        yield Sandbox.create(name="shared", client=client)


@pytest.fixture
def sandbox(client: Client) -> Iterator[Sandbox]:
    """A sandbox for one test."""
    with Sandbox.create(client=client) as sandbox:
        yield sandbox


@pytest.fixture
def interpreter(client: Client) -> str:
    """The image for running code. Skips the test if it does not exist."""
    try:
        client.images.get(INTERPRETER)
    except NotFoundError:
        pytest.skip(f"running code: the daemon has no image `{INTERPRETER}`")
    return INTERPRETER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints skipped tests in the format that the summary of `scripts/test.sh` parses."""
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")]
    for reason in dict.fromkeys(reasons):
        terminalreporter.write_line(f"skipped: python sdk: {reason} ({reasons.count(reason)} tests)")
