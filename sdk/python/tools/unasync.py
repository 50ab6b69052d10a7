"""Converts a module of `burrow_sandbox/_async` to its synchronous counterpart in `burrow_sandbox/_sync`, docstrings included."""

from __future__ import annotations

import re

HEADER = "# Generated from {source} by `tools/generate.py`. Do not edit: edit the source and run the generator.\n"

# Order matters: a longer word before its prefix.
WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"\basync_(owner|called|in_thread)\b", r"\1"),
    (r"\bAwaitable\[([\w.]+)\]", r"\1"),
    (r"\bAsync(Iterator|Iterable)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\ba(iter_bytes|iter_raw|close|read)\b", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"\basync\b", "sync"),
]
COMPILED = [(re.compile(pattern, re.MULTILINE), replacement) for pattern, replacement in WORDS]


def unasync(text: str, source: str) -> str:
    """The synchronous counterpart of a module's source."""
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    return HEADER.format(source=source) + text
