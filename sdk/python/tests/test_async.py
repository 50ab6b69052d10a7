"""Behaviour specific to the asynchronous interface: concurrency, cancellation, event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from daemon import Daemon

from burrow_sandbox import AsyncClient, AsyncSandbox, CommandError, NotFoundError


@pytest_asyncio.fixture
async def sandbox(daemon: Daemon) -> AsyncIterator[AsyncSandbox]:
    async with AsyncClient(daemon.url, daemon.key) as client, await AsyncSandbox.create(client=client) as sandbox:
        yield sandbox


async def test_many_commands_at_once(sandbox: AsyncSandbox) -> None:
    results = await asyncio.gather(*(sandbox.run(f"echo {number}") for number in range(24)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(24)]


async def test_callbacks_may_be_coroutines(sandbox: AsyncSandbox) -> None:
    heard: list[str] = []

    async def on_stdout(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)

    await sandbox.run("printf hello", on_stdout=on_stdout, on_stderr=heard.append)
    assert heard == ["hello"]


async def test_a_reader_that_gives_up_leaves_the_process_alone(sandbox: AsyncSandbox) -> None:
    process = await sandbox.spawn("echo first; cat; echo last", stdin=True)
    stream = process.output()
    assert (await stream.__anext__()).text == "first\n"
    waiting = asyncio.ensure_future(stream.__anext__())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stream.aclose()
    await process.close_stdin()
    assert (await process.wait()).stdout == "first\nlast\n"


async def test_a_command_can_be_waited_for_with_a_bound(sandbox: AsyncSandbox) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sandbox.run("sleep 1000"), 0.3)
    assert (await sandbox.run("echo still there")).stdout == "still there\n"


async def test_errors_files_and_memory_as_in_the_other_face(sandbox: AsyncSandbox) -> None:
    with pytest.raises(CommandError):
        await sandbox.run("false", check=True)
    with pytest.raises(NotFoundError):
        await sandbox.files.read("/no/such/file")
    await sandbox.files.write("/srv/large", b"x" * 700_000)
    pieces = [piece async for piece in sandbox.files.read_stream("/srv/large")]
    assert sum(map(len, pieces)) == 700_000
    async with await sandbox.memory.kv.watch() as changes:
        await sandbox.memory.kv.set("key", "value")
        event = await changes.__anext__()
        assert event.kind == "set"


def test_every_loop_has_connections_of_its_own(daemon: Daemon, environment: None) -> None:
    async def state() -> str:
        async with await AsyncSandbox.create() as sandbox:
            return (await sandbox.refresh()).state

    assert [asyncio.run(state()) for _ in range(2)] == ["running", "running"]
