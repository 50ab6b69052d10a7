"""A plain loop with the `anthropic` client: one tool, a persistent sandbox, and memory in two lines.

    pip install http://localhost:7700/sdk/python anthropic
    export ANTHROPIC_API_KEY=...
    python plain_loop.py "how many prime numbers are there below 10,000?"

The sandbox is called `plain-loop`. Its files, its packages and the conversations persist between runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from anthropic import Anthropic

from burrow_sandbox import Sandbox
from burrow_sandbox.agents import AgentMemory

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
INSTRUCTIONS = "You have a Linux machine of your own. Use it to find out what you do not know; answer in a line or two."
RUN = {
    "name": "run",
    "description": "Runs a shell command on your machine and answers with its exit code and output.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "A line for /bin/sh."}},
        "required": ["command"],
    },
}
# How many characters of an output the model receives, and the maximum number of turns.
SHOWN = 10_000
TURNS_MAX = 30


def run(sandbox: Sandbox, command: str) -> str:
    """The result of the tool. A command that fails is a result for the model, not an error of this program."""
    result = sandbox.run(command, timeout=300)
    return f"exit code {result.exit_code}\n{result.stdout[-SHOWN:]}{result.stderr[-SHOWN:]}"


def ask(question: str) -> str:
    """Answers one question in a loop of model calls and tool calls."""
    client, sandbox = Anthropic(), Sandbox.get_or_create("plain-loop")
    memory = AgentMemory(sandbox)
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(TURNS_MAX):
        known = memory.block(messages)  # the first line: recall related memory
        reply = client.messages.create(
            model=MODEL, max_tokens=4000, system=f"{INSTRUCTIONS}\n\n{known}", tools=[RUN], messages=messages
        )
        memory.after(messages, reply)  # the second line: store the messages
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": run(sandbox, block.input["command"])}
            for block in reply.content
            if block.type == "tool_use"
        ]
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": results})
    return "(gave up: too many turns)"


if __name__ == "__main__":
    print(ask(" ".join(sys.argv[1:]) or "which Linux is this?"))
