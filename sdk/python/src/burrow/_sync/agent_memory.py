# Generated from _async/agent_memory.py by `tools/generate.py`: change that, and generate again.
"""Memory for an agent loop, in two lines: recall before each turn, store after it."""

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

# The end of a conversation says what it is about; the rest of a long one only costs time.
RECALL_MESSAGES = 16
BUDGET_TOKENS = 1000


class AgentMemory:
    """Recalls before and stores after each turn of a plain list of messages.

    >>> memory = AgentMemory(sandbox)
    >>> messages = [{"role": "user", "content": "my editor is Helix"}]
    >>> asked = memory.before(messages)                   # what to send to the model
    >>> stored = memory.after(messages, "I will remember")   # what it answered

    In another conversation, days later:

    >>> asked = AgentMemory(sandbox).before([{"role": "user", "content": "which editor do I use?"}])
    >>> "Helix" in asked[0]["content"]
    True

    Or in one line, around whatever calls the model: `call = memory.wrap(call)`.
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
        """`role` is whose message the block is. `on_error` is told of a memory that cannot be reached, and the loop goes on
        without; unless it is given such errors are raised.
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
        """What is known about this conversation, for APIs that take instructions apart from messages."""
        said = conversation(messages)[-RECALL_MESSAGES:]
        if not said:
            return ""
        try:
            found = self.memory.recall(said, budget_tokens=self._budget, session=self._session)
        except BurrowError as error:
            self._failed(error)
            return ""
        return found.text if found.ids else ""

    def before(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The messages with what is known about them behind the instructions. The list itself stays as it is."""
        return with_block(messages, self.block(messages), self._role)

    def after(self, messages: Sequence[Mapping[str, Any]], reply: Any = None) -> types.StoredTurn | None:
        """Stores what was said since the last time, and the model's reply.

        `reply` is a text, a message, several, or an answer as the clients of OpenAI and Anthropic give it.
        """
        said = conversation([*messages, *as_messages(reply)])
        fresh = unstored(said, self._stored)
        if not fresh:
            return None
        try:
            stored = self.memory.store_turn(fresh, session=self._session, user=self._user, agent=self._agent)
        except BurrowError as error:
            self._failed(error)
            return None
        self._stored = [*self._stored, *map(fingerprint, fresh)][-FINGERPRINTS_KEPT:]
        return stored

    def wrap(self, call: Callable[..., R]) -> Callable[..., R]:
        """Around a function that takes messages and answers a reply.

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

    def _failed(self, error: BurrowError) -> None:
        if self._on_error is None:
            raise error
        called(self._on_error, error)
