"""An agent of the OpenAI Agents SDK with a sandbox and a memory.

pip install 'burrow-sandbox[openai-agents] @ http://localhost:7700/sdk/python'
export OPENAI_API_KEY=...
python openai_agents_sdk.py "how much free disk is there?"
"""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled

from burrow_sandbox import AsyncSandbox
from burrow_sandbox.agents.openai_agents import RunMemory

MODEL = os.environ.get("MODEL", "gpt-5-mini")
SHOWN = 10_000


async def ask(question: str) -> str:
    """Runs the agent once. The sandbox and the conversation persist."""
    sandbox = await AsyncSandbox.get_or_create("openai-agent")

    @function_tool
    async def run(command: str) -> str:
        """Runs a shell command on a Linux machine of your own."""
        result = await sandbox.run(command, timeout=300)
        return f"exit code {result.exit_code}\n{result.stdout[-SHOWN:]}{result.stderr[-SHOWN:]}"

    agent = Agent(name="helper", instructions="Answer in a line or two.", tools=[run], model=MODEL)
    memory = RunMemory(sandbox)
    done = await Runner.run(agent, question, hooks=memory, run_config=memory.run_config())
    return str(done.final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)
    print(asyncio.run(ask(" ".join(sys.argv[1:]) or "which Linux is this?")))
