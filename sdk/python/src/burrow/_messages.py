"""Messages of agent loops, in the shapes that model APIs give and take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = dict[str, Any]

# Whose words are instructions of the program and not part of the conversation.
INSTRUCTIONS = ("system", "developer")
# What a block of memory begins with, and no message of anybody else does.
BLOCK_BEGIN = "<memory-"
BLOCK_SECOND_LINE = "Stored earlier."
# Of what was stored; more of a conversation than any other has in common with it.
FINGERPRINTS_KEPT = 64


def as_messages(reply: Any) -> list[Message]:
    """What a model answered, as messages: a text, a message, a list of them, or an answer of the usual clients."""
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
    """A message as a dictionary that JSON can hold."""
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
    """Whether it is a block of memory that was put in before."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(BLOCK_BEGIN) and BLOCK_SECOND_LINE in content[:100]


def conversation(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """What people, models and tools said, without instructions and blocks of memory."""
    return [plain(message) for message in messages if message.get("role") not in INSTRUCTIONS and not is_block(message)]


def with_block(messages: Sequence[Mapping[str, Any]], block: str, role: str) -> list[Message]:
    """The messages with a block of memory behind the instructions, in place of the one that was there."""
    rest = [dict(message) for message in messages if not is_block(message)]
    if not block:
        return rest
    at = 0
    while at < len(rest) and rest[at].get("role") in INSTRUCTIONS:
        at += 1
    return [*rest[:at], {"role": role, "content": block}, *rest[at:]]


def fingerprint(message: Mapping[str, Any]) -> str:
    """What tells a message from others."""
    return hashlib.sha256(json.dumps(message, sort_keys=True, default=str).encode()).hexdigest()


def unstored(messages: Sequence[Message], stored: Sequence[str]) -> list[Message]:
    """What came after what was stored, whose fingerprints are given; without any, the turn that the last question began.

    The place is where most of the end of what was stored is found again: words may repeat, and the beginning of a long
    conversation may have been cut off or summed up.
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
