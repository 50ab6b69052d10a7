# Generated from _async/agent_memory.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Memory for an agent loop: recall before each turn, store after it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .. import types
from .._messages import FINGERPRINTS_KEPT, Message, as_messages, conversation, fingerprint, unstored, with_block
from .._shims import called
from ..errors import BurrowError
from .memory import Memory
from .sandbox import Sandbox

R = TypeVar("R")

# Number of recent messages used as the query. Older ones add cost and little relevance.
RECALL_MESSAGES = 16
BUDGET_TOKENS = 1000


class AgentMemory:
    """Recalls memory before each turn and stores the messages after it, for a plain list of messages.

    >>> memory = AgentMemory(sandbox)
    >>> messages = [{"role": "user", "content": "my editor is Helix"}]
    >>> asked = memory.before(messages)                   # send these to the model
    >>> stored = memory.after(messages, "I will remember")   # the model's reply

    In another conversation, days later:

    >>> asked = AgentMemory(sandbox).before([{"role": "user", "content": "which editor do I use?"}])
    >>> "Helix" in asked[0]["content"]
    True

    Or wrap the function that calls the model: `call = memory.wrap(call)`.
    """

    def __init__(
        self,
        memory: Memory | Sandbox,
        *,
        session: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        budget_tokens: int = BUDGET_TOKENS,
        role: str = "system",
        on_error: Callable[[BurrowError], object] | None = None,
    ) -> None:
        """`role` is the role of the message with the memory block. `on_error` is called with each error of the memory, and the
        loop continues without memory; without it, errors are raised.
        """
        self.memory = memory.memory if isinstance(memory, Sandbox) else memory
        self._session = session
        self._user = user
        self._agent = agent
        self._budget = budget_tokens
        self._role = role
        self._on_error = on_error
        self._stored: list[str] = []

    def block(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The memory block for this conversation, for APIs that take instructions separately from messages."""
        recent = conversation(messages)[-RECALL_MESSAGES:]
        if not recent:
            return ""
        try:
            found = self.memory.recall(recent, budget_tokens=self._budget, session=self._session)
        except BurrowError as error:
            self._handle_error(error)
            return ""
        return found.text if found.ids else ""

    def before(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages with a memory block after the instructions. The list itself is not changed."""
        return with_block(messages, self.block(messages), self._role)

    def after(self, messages: Sequence[Mapping[str, Any]], reply: Any = None) -> types.StoredTurn | None:
        """Stores the messages since the last call, and the model's reply.

        `reply` is a text, a message, a list of messages, or a response of the OpenAI or Anthropic client.
        """
        spoken = conversation([*messages, *as_messages(reply)])
        fresh = unstored(spoken, self._stored)
        if not fresh:
            return None
        try:
            stored = self.memory.store_turn(fresh, session=self._session, user=self._user, agent=self._agent)
        except BurrowError as error:
            self._handle_error(error)
            return None
        self._stored = [*self._stored, *map(fingerprint, fresh)][-FINGERPRINTS_KEPT:]
        return stored

    def wrap(self, call: Callable[..., R]) -> Callable[..., R]:
        """Wraps a function that takes messages and returns a reply.

        >>> def model(messages):
        ...     return {"role": "assistant", "content": f"{len(messages)} messages"}
        >>> model = AgentMemory(sandbox).wrap(model)
        >>> reply = model([{"role": "user", "content": "hello there"}])
        >>> reply["role"]
        'assistant'
        """

        @functools.wraps(call)
        def turn(messages: Sequence[Mapping[str, Any]], *arguments: Any, **options: Any) -> R:
            reply = call(self.before(messages), *arguments, **options)
            self.after(messages, reply)
            return reply

        return turn

    def _handle_error(self, error: BurrowError) -> None:
        if self._on_error is None:
            raise error
        called(self._on_error, error)
