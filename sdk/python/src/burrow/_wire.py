"""How requests are written: paths, queries, times, bodies."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Union
from urllib.parse import quote

Duration = Union[float, int, timedelta]
"""Seconds, or a `timedelta`."""


def path(*parts: object) -> str:
    """`/v1/...`, with what callers chose made harmless."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def given(**values: Any) -> dict[str, Any]:
    """What was given, without what was not."""
    return {key: value for key, value in values.items() if value is not None}


def query(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Values of a query; lists repeat their key, and what is `None` or false is left out."""
    out: list[tuple[str, str]] = []
    for key, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if one is None or one is False:
                continue
            out.append((key, "true" if one is True else str(one)))
    return tuple(out)


def seconds(duration: Duration | None) -> int | None:
    """Whole seconds, at least one of something that is not nothing."""
    if duration is None:
        return None
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    return max(1, round(value)) if value > 0 else 0


def milliseconds(duration: Duration | None) -> int | None:
    """Whole milliseconds, at least one."""
    if duration is None:
        return None
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    return max(1, round(value * 1000))


def tests_of_labels(labels: Mapping[str, str] | None) -> list[str]:
    """`key=value`, as lists are filtered."""
    return [f"{key}={value}" for key, value in (labels or {}).items()]


def dump(value: Any) -> bytes:
    """JSON, compact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def new_key() -> str:
    """An `Idempotency-Key` that never meets another's."""
    return uuid.uuid4().hex
