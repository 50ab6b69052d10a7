"""The few places where waiting and calling differ between the two faces; `tools/unasync.py` swaps the names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Everybody:
    """Who owns a synchronous client: the whole program."""


_EVERYBODY = _Everybody()


def owner() -> Any:
    """Whose connections may be shared."""
    return _EVERYBODY


def async_owner() -> Any:
    """The running loop: connections of one loop are of no use in another."""
    return asyncio.get_running_loop()


def called(callback: Callable[[T], object], value: T) -> None:
    """Calls somebody's function."""
    callback(value)


async def async_called(callback: Callable[[T], object], value: T) -> None:
    """Calls somebody's function, which may be a coroutine function."""
    result = callback(value)
    if inspect.isawaitable(result):
        await result


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Does what waits for a disk."""
    return function(*arguments)


async def async_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Does what waits for a disk, beside the loop."""
    return await asyncio.to_thread(function, *arguments)
