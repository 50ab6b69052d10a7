"""Memory for LangChain and LangGraph.

Agents of `langchain.agents.create_agent`, which are LangGraph graphs:

    agent = create_agent(model, tools, middleware=[MemoryMiddleware(sandbox)])

Nodes of your own graph, and chains:

    model = with_memory(model, sandbox)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, convert_to_openai_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from .._sync.agent_memory import BUDGET_TOKENS, AgentMemory
from .._sync.memory import Memory
from .._sync.sandbox import Sandbox

Answer: TypeAlias = "ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]"


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Recalls memory before each model call and stores the messages after it. The state of the agent is not changed.

    Works for `invoke` and `ainvoke`; the latter calls the memory in a thread.
    """

    def __init__(
        self,
        memory: Memory | Sandbox | AgentMemory,
        *,
        session: str | None = None,
        budget_tokens: int = BUDGET_TOKENS,
    ) -> None:
        super().__init__()
        self._memory = _agent_memory(memory, session, budget_tokens)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Answer:
        """Wraps one model call."""
        answer = handler(self._with_block(request))
        self._memory.after(_plain([*request.messages, *answer.result]))
        return answer

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Answer:
        """Wraps one asynchronous model call."""
        answer = await handler(await asyncio.to_thread(self._with_block, request))
        await asyncio.to_thread(self._memory.after, _plain([*request.messages, *answer.result]))
        return answer

    def _with_block(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        block = self._memory.block(_plain(request.messages))
        if not block:
            return request
        before = request.system_message.text + "\n\n" if request.system_message else ""
        return request.override(system_message=SystemMessage(before + block))


def with_memory(
    model: Runnable[LanguageModelInput, Any],
    memory: Memory | Sandbox | AgentMemory,
    *,
    session: str | None = None,
    budget_tokens: int = BUDGET_TOKENS,
) -> Runnable[LanguageModelInput, Any]:
    """A chat model that recalls memory before each call and stores the messages after it, for `invoke` and `ainvoke`."""
    kept = _agent_memory(memory, session, budget_tokens)

    def asked(messages: list[BaseMessage]) -> list[BaseMessage]:
        block = kept.block(_plain(messages))
        at = next((index for index, one in enumerate(messages) if not isinstance(one, SystemMessage)), 0)
        return [*messages[:at], *([SystemMessage(block)] if block else []), *messages[at:]]

    def call(given: LanguageModelInput, config: RunnableConfig) -> Any:
        messages = _messages(given)
        reply = model.invoke(asked(messages), config)
        kept.after(_plain([*messages, *_replies(reply)]))
        return reply

    async def acall(given: LanguageModelInput, config: RunnableConfig) -> Any:
        messages = _messages(given)
        reply = await model.ainvoke(await asyncio.to_thread(asked, messages), config)
        await asyncio.to_thread(kept.after, _plain([*messages, *_replies(reply)]))
        return reply

    return RunnableLambda(call, acall, name="with_memory")


def _agent_memory(memory: Memory | Sandbox | AgentMemory, session: str | None, budget_tokens: int) -> AgentMemory:
    if isinstance(memory, AgentMemory):
        return memory
    return AgentMemory(memory, session=session, budget_tokens=budget_tokens)


def _messages(given: LanguageModelInput) -> list[BaseMessage]:
    if isinstance(given, PromptValue):
        return given.to_messages()
    from langchain_core.messages import HumanMessage, convert_to_messages

    return [HumanMessage(given)] if isinstance(given, str) else convert_to_messages(given)


def _replies(reply: Any) -> list[BaseMessage]:
    return [reply] if isinstance(reply, BaseMessage) else []


def _plain(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    converted = convert_to_openai_messages(list(messages))
    return [dict(one) for one in ([converted] if isinstance(converted, dict) else converted)]


__all__ = ["MemoryMiddleware", "with_memory"]
