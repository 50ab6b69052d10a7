"""One daemon for the whole run, and connections to it with the official client."""

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

# The daemon is started as in the test suite of the Python SDK.
sys.path.insert(0, str(Path(__file__).parents[3] / "sdk" / "python" / "tests"))

from daemon import Daemon

# Seconds; an answer that takes longer counts as lost.
TIMEOUT = 180.0


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
                http.delete(f"{daemon.url}/v1/sandboxes/{sandbox['id']}?snapshots=true", timeout=TIMEOUT)
        daemon.remove()


@dataclass
class ToolResult:
    """The result of a tool call."""

    summary: str
    verbatim: str
    failed: bool

    @property
    def all(self) -> str:
        return f"{self.summary}\n{self.verbatim}"


class Model:
    """Calls tools over a connection, as a model would."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def try_call(self, tool: str, /, **arguments: Any) -> ToolResult:
        result = await self.client.call_tool(tool, arguments)
        blocks = [getattr(block, "text", block.type) for block in result.content]
        return ToolResult(blocks[0] if blocks else "", "\n".join(blocks[1:]), bool(result.is_error))

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        result = await self.try_call(tool, **arguments)
        assert not result.failed, f"{tool} {arguments}: {result.all}"
        return result

    async def call_failing(self, tool: str, /, **arguments: Any) -> str:
        result = await self.try_call(tool, **arguments)
        assert result.failed, f"{tool} {arguments} succeeded: {result.all}"
        return result.summary


Connect = Callable[..., AbstractAsyncContextManager[Model]]

# Both transports, with the newest version of the protocol and with the handshake of earlier versions.
TRANSPORTS = ["stdio", "stdio-legacy", "http", "http-legacy"]


@pytest.fixture
def connect(daemon: Daemon) -> Connect:
    """Opens a connection: `connect("stdio", sandbox="one")`."""

    @asynccontextmanager
    async def open_one(
        transport: str, sandbox: str | None = None, key: str | None = None, tools: str = "all", *, fence: bool = True
    ) -> AsyncIterator[Model]:
        mode = "legacy" if transport.endswith("legacy") else "auto"
        key = key or daemon.key
        async with contextlib.AsyncExitStack() as stack:
            server: Any
            if transport.startswith("stdio"):
                named = [*(["--sandbox", sandbox] if sandbox else []), *([] if fence else ["--all"]), "--tools", tools]
                env = {"BURROW_URL": daemon.url, "BURROW_API_KEY": key, "PATH": os.environ["PATH"]}
                server = StdioServerParameters(command=str(daemon.burrow), args=["mcp", *named], env=env)
            else:
                http = httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=TIMEOUT)
                await stack.enter_async_context(http)
                address = f"{daemon.url}/mcp?sandbox={sandbox}&tools={tools}{'' if fence else '&all=true'}"
                server = streamable_http_client(address, http_client=http)
            client = Client(server, mode=mode, read_timeout_seconds=TIMEOUT)
            yield Model(await stack.enter_async_context(client))

    return open_one
