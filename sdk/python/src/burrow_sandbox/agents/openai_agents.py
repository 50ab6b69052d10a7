"""Memory for the OpenAI Agents SDK.

    memory = RunMemory(sandbox)
    result = await Runner.run(agent, "…", hooks=memory, run_config=memory.run_config())

The run configuration recalls memory before each model call; the hooks store the messages after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents import Agent, ModelResponse, RunConfig, RunContextWrapper, RunHooks
from agents.run import CallModelData, ModelInputData

from .._async.agent_memory import AsyncAgentMemory
from .._async.memory import AsyncMemory
from .._async.sandbox import AsyncSandbox
from .._sync.agent_memory import BUDGET_TOKENS, AgentMemory
from .._sync.memory import Memory
from .._sync.sandbox import Sandbox


class RunMemory(RunHooks[Any]):
    """Recalls memory before each model call of a run and stores the messages after it. Takes a sandbox or a memory,
    synchronous or asynchronous.

    An instance belongs to one conversation: concurrent runs need one instance each.
    """

    def __init__(
        self,
        memory: Memory | Sandbox | AsyncMemory | AsyncSandbox,
        *,
        session: str | None = None,
        budget_tokens: int = BUDGET_TOKENS,
    ) -> None:
        super().__init__()
        self._memory: AgentMemory | AsyncAgentMemory
        if isinstance(memory, (AsyncMemory, AsyncSandbox)):
            self._memory = AsyncAgentMemory(memory, session=session, budget_tokens=budget_tokens)
        else:
            self._memory = AgentMemory(memory, session=session, budget_tokens=budget_tokens)
        self._asked: list[dict[str, Any]] = []

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """A run configuration that recalls memory, based on `config` if it is given."""
        return replace(config or RunConfig(), call_model_input_filter=self._recall)

    async def _recall(self, data: CallModelData[Any]) -> ModelInputData:
        given = data.model_data
        self._asked = _plain(given.input)
        if isinstance(self._memory, AsyncAgentMemory):
            block = await self._memory.block(self._asked)
        else:
            block = await asyncio.to_thread(self._memory.block, self._asked)
        if not block:
            return given
        instructions = f"{given.instructions}\n\n{block}" if given.instructions else block
        return ModelInputData(input=given.input, instructions=instructions)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Stores the messages since the last call."""
        messages = [*self._asked, *_plain(response.to_input_items())]
        if isinstance(self._memory, AsyncAgentMemory):
            await self._memory.after(messages)
        else:
            await asyncio.to_thread(self._memory.after, messages)


def _plain(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Converts items of the Responses API to messages: texts, tool calls and their results."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item.get("role", "user"), "content": _text(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _text(item["output"])})
    return messages


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))


__all__ = ["RunMemory"]
