"""The command line of the MCP inspector, against both transports."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from conftest import TIMEOUT
from daemon import Daemon

INSPECTOR = os.environ.get("BURROW_TEST_INSPECTOR")

pytestmark = pytest.mark.skipif(not INSPECTOR, reason="the MCP inspector is not installed")


def inspect(daemon: Daemon, transport: str, *arguments: str, fails: bool = False) -> Any:
    assert INSPECTOR
    if transport == "stdio":
        environment = ["-e", f"BURROW_URL={daemon.url}", "-e", f"BURROW_API_KEY={daemon.key}"]
        target = [*environment, str(daemon.burrow), "mcp", "--sandbox", "inspected"]
    else:
        address = f"{daemon.url}/mcp?sandbox=inspected"
        target = [address, "--transport", "http", "--header", f"X-API-Key: {daemon.key}"]
    command = [INSPECTOR, "--cli", *target, *arguments]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL
    )
    assert (ran.returncode != 0) == fails, f"{arguments}: {ran.stdout}\n{ran.stderr}"
    return json.loads(ran.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_calls_and_reads(daemon: Daemon, transport: str) -> None:
    tools = inspect(daemon, transport, "--method", "tools/list")["tools"]
    assert {"sandbox_run", "sandbox_read_file", "sandbox_fork", "sandbox_merge", "memory_recall"} <= {
        tool["name"] for tool in tools
    }
    command = [
        "--method",
        "tools/call",
        "--tool-name",
        "sandbox_run",
        "--tool-arg",
        "command=echo $((6 * 7)) > /tmp/n; cat /tmp/n",
    ]
    content = inspect(daemon, transport, *command)["content"]
    assert "exit code 0" in content[0]["text"]
    assert content[1]["text"] == "42\n"
    read = inspect(daemon, transport, "--method", "resources/read", "--uri", "burrow://files/tmp/n")
    assert read["contents"][0]["text"] == "42\n"
    prompts = inspect(daemon, transport, "--method", "prompts/list")["prompts"]
    assert {prompt["name"] for prompt in prompts} == {"continue", "attempts", "wrap-up"}
