"""Functions that differ between the synchronous and the asynchronous interface; `tools/unasync.py` replaces their names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Program:
    """The owner of synchronous clients: the whole program."""


_PROGRAM = _Program()


def owner() -> Any:
    """The owner of connections. Clients with the same owner may share connections."""
    return _PROGRAM


def async_owner() -> Any:
    """The running event loop: a connection of one loop cannot be used in another."""
    return asyncio.get_running_loop()


def called(callback: Callable[[T], object], value: T) -> None:
    """Calls a callback."""
    callback(value)


async def async_called(callback: Callable[[T], object], value: T) -> None:
    """Calls a callback, which may be a coroutine function."""
    result = callback(value)
    if inspect.isawaitable(result):
        await result


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function that may block on disk I/O."""
    return function(*arguments)


async def async_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function that may block on disk I/O, in a thread."""
    return await asyncio.to_thread(function, *arguments)
