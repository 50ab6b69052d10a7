"""Starts a daemon with its own state, pool, cgroup and port, and removes all of them afterwards.

`scripts/test-sdk-python.sh` sets these environment variables: BURROW_TEST_BURROW, BURROW_TEST_GUEST, BURROW_TEST_POOL and
BURROW_CRIU.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[3]

# The longest wait before a test fails.
PATIENCE = 180.0
POLL = 0.02


def eventually(what: str, look: Callable[[], T | None]) -> T:
    """Polls until `look` returns a value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {PATIENCE} s in vain for {what}"
        time.sleep(POLL)


def free_port() -> int:
    """A port below the ephemeral range, so that it is still free when the daemon is restarted."""
    while True:
        port = random.randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _prepared(name: str) -> Path:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: run scripts/test-sdk-python.sh, which prepares it")
    return Path(value)


class Daemon:
    """A daemon under test."""

    def __init__(self, extra: str = "", listen: str | None = None) -> None:
        """`extra` contains further lines of configuration."""
        self.extra = extra
        self.listen = listen or f"127.0.0.1:{free_port()}"
        self.burrow = _prepared("BURROW_TEST_BURROW")
        shared = _prepared("BURROW_TEST_POOL")
        self.folder = Path(tempfile.mkdtemp(prefix="burrow-sdk-"))
        self.name = self.folder.name
        self.pool = shared / "daemons" / self.name
        self.run_dir = self.folder / "run"
        self.process: subprocess.Popen[bytes] | None = None
        for part in ("images", "staged", "sandboxes"):
            (self.pool / part).mkdir(parents=True)
        for image in (shared / "code" / "images").iterdir():
            copy = ["btrfs", "-q", "subvolume", "snapshot", "-r", str(image), str(self.pool / "images" / image.name)]
            subprocess.run(copy, check=True, stdout=subprocess.DEVNULL)
        (self.folder / "state").mkdir()
        for file in (shared / "code").glob("catalog.db*"):
            shutil.copy(file, self.folder / "state")
        self._configure()

    def _configure(self) -> None:
        criu = os.environ.get("BURROW_CRIU")
        lines = [
            f'listen = "{self.listen}"',
            f'state_dir = "{self.folder}/state"',
            f'run_dir = "{self.run_dir}"',
            f'admin_key_file = "{self.folder}/admin.key"',
            f'sdk_dir = "{REPOSITORY}/target/sdk"',
            self.extra,
            "[pool]",
            f'path = "{self.pool}"',
            "ready = 0",
            "[runtime]",
            f'guest = "{_prepared("BURROW_TEST_GUEST")}"',
            f'cgroup = "{self.name}"',
            *([f'criu = "{criu}"'] if criu else []),
        ]
        (self.folder / "config.toml").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Starts the daemon and waits until it responds."""
        address = self.run_dir / "address"
        address.unlink(missing_ok=True)
        with open(self.folder / "log", "ab") as log:
            command = [str(self.burrow), "serve", "--config", str(self.folder / "config.toml")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def up() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the daemon ended instead of starting:\n{self.log()}"
            return address.exists() and bool(address.read_text().strip())

        eventually("the daemon's address", up)

    @property
    def url(self) -> str:
        return f"http://{self.listen}"

    @property
    def key(self) -> str:
        return (self.folder / "admin.key").read_text().strip()

    def log(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-60:])

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stops the daemon with SIGTERM, or with SIGKILL like a crash. Sandboxes outlive both."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def remove(self) -> None:
        """Removes everything that the daemon created on the host."""
        self.end()
        for folder in self._cgroups():
            for members in folder.rglob("cgroup.procs"):
                for pid in members.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

        def cgroups_gone() -> bool:
            for folder in self._cgroups():
                for inner, _, _ in os.walk(folder, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(inner)
            return not self._cgroups()

        eventually("its control groups to go", cgroups_gone)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        for part in ("sandboxes", "staged", "snapshots", "replacing", "images", "volumes", "volume-snapshots"):
            for volume in (self.pool / part).glob("*"):
                quiet = ["btrfs", "-q"]
                subprocess.run(
                    [*quiet, "property", "set", "-f", str(volume), "ro", "false"], check=False, capture_output=True
                )
                subprocess.run([*quiet, "subvolume", "delete", str(volume)], check=False, capture_output=True)
        shutil.rmtree(self.pool, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _cgroups(self) -> list[Path]:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        trees = [Path(fields[1]) / self.name for fields in mounts if fields[2] in ("cgroup", "cgroup2")]
        return [tree for tree in trees if tree.is_dir()]
