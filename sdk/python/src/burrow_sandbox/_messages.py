"""Messages of agent loops, in the formats of model APIs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = dict[str, Any]

# Roles whose messages are instructions of the program, not part of the conversation.
INSTRUCTIONS = ("system", "developer")
# How a memory block begins. No other message is expected to begin this way.
BLOCK_BEGIN = "<memory-"
BLOCK_SECOND_LINE = "Stored earlier."
# Fingerprints of stored messages. Enough to find the stored part of a conversation unambiguously.
FINGERPRINTS_KEPT = 64


def as_messages(reply: Any) -> list[Message]:
    """The reply of a model as messages: from a text, a message, a list of messages, or a response of a common client library."""
    if reply is None:
        return []
    if isinstance(reply, str):
        return [{"role": "assistant", "content": reply}]
    if isinstance(reply, Mapping):
        return [plain(reply)]
    choices = getattr(reply, "choices", None)
    if choices:
        return [plain(choices[0].message)]
    if isinstance(reply, Iterable) and not hasattr(reply, "model_dump"):
        return [message for one in reply for message in as_messages(one)]
    return [plain(reply)]


def plain(message: Any) -> Message:
    """A message as a JSON-serializable dictionary."""
    if isinstance(message, Mapping):
        found: Any = dict(message)
    elif hasattr(message, "model_dump"):
        found = message.model_dump(mode="json", exclude_none=True)
    else:
        found = {"role": getattr(message, "role", "assistant"), "content": getattr(message, "content", None)}
    found.setdefault("role", "assistant")
    result: Message = json.loads(json.dumps(found, default=_plain_part))
    return result


def _plain_part(part: Any) -> Any:
    return part.model_dump(mode="json", exclude_none=True) if hasattr(part, "model_dump") else str(part)


def is_block(message: Mapping[str, Any]) -> bool:
    """Whether the message is a memory block that was inserted earlier."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(BLOCK_BEGIN) and BLOCK_SECOND_LINE in content[:100]


def conversation(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The messages of users, models and tools, without instructions and memory blocks."""
    return [plain(message) for message in messages if message.get("role") not in INSTRUCTIONS and not is_block(message)]


def with_block(messages: Sequence[Mapping[str, Any]], block: str, role: str) -> list[Message]:
    """The messages with a memory block after the instructions. Replaces an earlier memory block."""
    rest = [dict(message) for message in messages if not is_block(message)]
    if not block:
        return rest
    at = 0
    while at < len(rest) and rest[at].get("role") in INSTRUCTIONS:
        at += 1
    return [*rest[:at], {"role": role, "content": block}, *rest[at:]]


def fingerprint(message: Mapping[str, Any]) -> str:
    """A hash that identifies a message."""
    return hashlib.sha256(json.dumps(message, sort_keys=True, default=str).encode()).hexdigest()


def unstored(messages: Sequence[Message], stored: Sequence[str]) -> list[Message]:
    """The messages after those already stored, whose fingerprints are `stored`. Without a match, the last turn: the last
    user message and everything after it.

    The stored messages end at the position where the longest suffix of `stored` matches: messages may repeat, and the
    beginning of a long conversation may have been truncated or summarized.
    """
    prints = [fingerprint(message) for message in messages]
    end, most = 0, 0
    for index in range(len(prints)):
        length = 0
        while length < min(len(stored), index + 1) and stored[-1 - length] == prints[index - length]:
            length += 1
        if length > most:
            end, most = index + 1, length
    if most:
        return list(messages[end:])
    questions = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    return list(messages[questions[-1] :]) if questions else list(messages)
