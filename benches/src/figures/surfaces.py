"""Measures what people's own clients see: E2B's, ours and the official one of MCP, against one daemon.

Arguments: address, key, the program `burrow`, the daemon's pid, rounds, clients at once. Prints one line of JSON.
"""

import asyncio
import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse

url, key, burrow, daemon, rounds, clients = sys.argv[1:4] + [int(word) for word in sys.argv[4:7]]
os.environ |= {"BURROW_URL": url, "BURROW_API_KEY": key}
os.environ |= {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key}

import burrow_sandbox as ours  # noqa: E402
import e2b  # noqa: E402
import httpx2  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

WARM_UP = 10
MUCH = "seq -f 'line %.0f of much' 1 600000"
EXPECTED = b"".join(b"line %d of much\n" % number for number in range(1, 600_001))
DIGEST = hashlib.sha256(EXPECTED).hexdigest()
assert len(EXPECTED) > 10 << 20


def status(field):
    with open(f"/proc/{daemon}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def growth_mib(what, work):
    """What the daemon takes at most while this goes on, beyond what it had. The output must come whole."""
    work()
    with open(f"/proc/{daemon}/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS:")
    digest = work()
    if digest != DIGEST:
        raise SystemExit(f"output through {what} is not what was written")
    return (status("VmHWM:") - before) / 1024


def sha(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def plain_exec(connection, sandbox):
    body = json.dumps({"argv": ["true"], "wait": True})
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    connection.request("POST", f"/v1/sandboxes/{sandbox}/execs", body, headers)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    if answer.status not in (200, 201) or told["exec"]["outcome"]["exit_code"] != 0:
        raise SystemExit(f"an exec was answered {answer.status}: {told}")


def alternately(works):
    """Milliseconds of each, by turns."""
    took = [[] for _ in works]
    for round in range(WARM_UP + rounds):
        for work, times in zip(works, took):
            begin = time.perf_counter()
            work()
            if round >= WARM_UP:
                times.append((time.perf_counter() - begin) * 1e3)
    return took


def commands():
    """E2B's `commands.run`, our own and a bare POST, on one warm sandbox; and much output through the three of them."""
    theirs = e2b.Sandbox.create()
    mine = ours.Sandbox.connect(theirs.sandbox_id)
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    took = alternately([
        lambda: theirs.commands.run("true"),
        lambda: mine.run("true"),
        lambda: plain_exec(connection, theirs.sandbox_id),
    ])
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    line = [burrow, "exec", theirs.sandbox_id, "--", "sh", "-c", MUCH]
    growth = {
        "e2b": growth_mib("E2B", lambda: sha(theirs.commands.run(MUCH, timeout=120).stdout)),
        "sdk": growth_mib("our SDK", lambda: sha(mine.run(MUCH).stdout)),
        "cli": growth_mib("the CLI", lambda: sha(subprocess.run(line, check=True, env=env, stdout=subprocess.PIPE).stdout)),
    }
    theirs.kill()
    return dict(zip(["e2b", "sdk", "http"], took)), growth


def blocks(result):
    if result.is_error:
        raise SystemExit(f"MCP: {result.content}")
    texts = [block.text for block in result.content]
    return texts[0], "\n".join(texts[1:])


async def mcp_much(client):
    told, _ = blocks(await client.call_tool("run", {"command": MUCH}))
    process, digest, offset = re.search(r"process (exe\w+)", told)[1], hashlib.sha256(), 0
    while offset is not None:
        wanted = {"process": process, "offset": offset, "limit": 100_000}
        told, text = blocks(await client.call_tool("output", wanted))
        digest.update(text.encode())
        more = re.search(r"read on with `output`, process \w+, offset (\d+)", told)
        offset = int(more[1]) if more else None
    return digest.hexdigest()


async def mcp(server):
    async with Client(server, read_timeout_seconds=120) as client:
        took = []
        for round in range(WARM_UP + rounds):
            begin = time.perf_counter()
            blocks(await client.call_tool("run", {"command": "true"}))
            if round >= WARM_UP:
                took.append((time.perf_counter() - begin) * 1e3)
        await mcp_much(client)
        with open(f"/proc/{daemon}/clear_refs", "w") as file:
            file.write("5")
        before = status("VmRSS:")
        if await mcp_much(client) != DIGEST:
            raise SystemExit("output through MCP is not what was written")
        return took, (status("VmHWM:") - before) / 1024


async def both_mcp():
    env = {"BURROW_URL": url, "BURROW_API_KEY": key, "PATH": os.environ["PATH"]}
    stdio, _ = await mcp(StdioServerParameters(command=burrow, args=["mcp", "--sandbox", "by-stdio"], env=env))
    async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=120) as carrier:
        way = streamable_http_client(f"{url}/mcp?sandbox=by-http", http_client=carrier)
        over_http, growth = await mcp(way)
    return {"mcp_stdio": stdio, "mcp_http": over_http}, growth


async def one_of_many(number):
    async with ours.AsyncClient() as client:
        async with await ours.AsyncSandbox.create(client=client) as sandbox:
            await sandbox.files.write("/srv/number", f"{number}\n")
            told = await sandbox.run("cat /srv/number; hostname")
            if told.stdout.split()[0] != str(number):
                raise RuntimeError(f"sandbox {number} has the file of {told.stdout}")
            await sandbox.memory.store(f"I am number {number}")
            return told.stdout.split()[1]


async def many():
    """So many clients, each with a sandbox of its own, all at once."""
    begin = time.perf_counter()
    done = await asyncio.gather(*(one_of_many(number) for number in range(clients)), return_exceptions=True)
    took = time.perf_counter() - begin
    errors = [repr(each) for each in done if isinstance(each, BaseException)]
    names = {each for each in done if not isinstance(each, BaseException)}
    return {"errors": len(errors), "first": errors[:3], "seconds": took, "distinct": len(names)}


took, growth = commands()
by_mcp, growth["mcp"] = asyncio.run(both_mcp())
print(json.dumps({"took": took | by_mcp, "growth": growth, "many": asyncio.run(many())}))
