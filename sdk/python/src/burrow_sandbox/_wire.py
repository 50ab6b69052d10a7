"""Encodes requests: paths, queries, durations, bodies."""

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
    """The path `/v1/...` with each part percent-encoded."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def given(**values: Any) -> dict[str, Any]:
    """The arguments that are not `None`."""
    return {key: value for key, value in values.items() if value is not None}


def query(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Query parameters. A list repeats its key; `None` and `False` are omitted."""
    out: list[tuple[str, str]] = []
    for key, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if one is None or one is False:
                continue
            out.append((key, "true" if one is True else str(one)))
    return tuple(out)


def seconds(duration: Duration | None) -> int | None:
    """A duration in whole seconds: at least one, unless it is zero."""
    if duration is None:
        return None
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    return max(1, round(value)) if value > 0 else 0


def milliseconds(duration: Duration | None) -> int | None:
    """A duration in whole milliseconds, at least one."""
    if duration is None:
        return None
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    return max(1, round(value * 1000))


def tests_of_labels(labels: Mapping[str, str] | None) -> list[str]:
    """Labels as `key=value`, the form of list filters."""
    return [f"{key}={value}" for key, value in (labels or {}).items()]


def dump(value: Any) -> bytes:
    """Encodes a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def new_key() -> str:
    """A new, unique `Idempotency-Key`."""
    return uuid.uuid4().hex
