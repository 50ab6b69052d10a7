"""One daemon for the whole run, and connections to it by the official client."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# The daemon is started as the Python SDK's suite starts it.
sys.path.insert(0, str(Path(__file__).parents[3] / "sdk" / "python" / "tests"))

from daemon import Daemon

# Seconds; an answer that takes longer is taken for lost.
PATIENCE = 180.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    try:
        daemon.start()
        yield daemon
    finally:
        with contextlib.suppress(httpx2.HTTPError), httpx2.Client(headers={"X-API-Key": daemon.key}) as http:
            for sandbox in http.get(f"{daemon.url}/v1/sandboxes?limit=1000").json()["items"]:
                http.delete(f"{daemon.url}/v1/sandboxes/{sandbox['id']}?snapshots=true", timeout=PATIENCE)
        daemon.remove()


@dataclass
class Said:
    """What a tool answered."""

    told: str
    verbatim: str
    failed: bool

    @property
    def all(self) -> str:
        return f"{self.told}\n{self.verbatim}"


class Model:
    """What a model would do with a connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tries(self, tool: str, /, **arguments: Any) -> Said:
        result = await self.client.call_tool(tool, arguments)
        blocks = [block.text for block in result.content]
        return Said(blocks[0] if blocks else "", "\n".join(blocks[1:]), bool(result.is_error))

    async def does(self, tool: str, /, **arguments: Any) -> Said:
        said = await self.tries(tool, **arguments)
        assert not said.failed, f"{tool} {arguments}: {said.all}"
        return said

    async def fails(self, tool: str, /, **arguments: Any) -> str:
        said = await self.tries(tool, **arguments)
        assert said.failed, f"{tool} {arguments} succeeded: {said.all}"
        return said.told


Connect = Callable[..., AbstractAsyncContextManager[Model]]

# Both transports, in the protocol's newest version and with the handshake of the earlier ones.
WAYS = ["stdio", "stdio-legacy", "http", "http-legacy"]


@pytest.fixture
def connect(daemon: Daemon) -> Connect:
    """Opens a connection: `connect("stdio", sandbox="one")`."""

    @asynccontextmanager
    async def open_one(way: str, sandbox: str | None = None, key: str | None = None) -> AsyncIterator[Model]:
        mode = "legacy" if way.endswith("legacy") else "auto"
        key = key or daemon.key
        async with contextlib.AsyncExitStack() as stack:
            server: Any
            if way.startswith("stdio"):
                named = ["--sandbox", sandbox] if sandbox else []
                env = {"BURROW_URL": daemon.url, "BURROW_API_KEY": key, "PATH": os.environ["PATH"]}
                server = StdioServerParameters(command=str(daemon.burrow), args=["mcp", *named], env=env)
            else:
                http = httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=PATIENCE)
                await stack.enter_async_context(http)
                server = streamable_http_client(f"{daemon.url}/mcp?sandbox={sandbox}", http_client=http)
            client = Client(server, mode=mode, read_timeout_seconds=PATIENCE)
            yield Model(await stack.enter_async_context(client))

    return open_one
