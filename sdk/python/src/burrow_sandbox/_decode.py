"""Decodes JSON into the dataclasses of `burrow_sandbox.types`.

Unknown fields are ignored and unknown enum values are passed through, so that upgrading the daemon breaks no client.
"""

from __future__ import annotations

import dataclasses
import keyword
import types as builtin_types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from . import types

T = TypeVar("T")
Reader = Callable[[Any], Any]


def decode(kind: type[T], value: Any) -> T:
    """Decodes a JSON value as `kind`, usually a dataclass of `burrow_sandbox.types`."""
    return typing.cast(T, _reader(kind)(value))


def decode_union(name: str, value: Any) -> Any:
    """Decodes a JSON value as the member of the union `burrow_sandbox.types.<name>` with its tag; `None` if the tag is unknown."""
    return _reader(getattr(types, name))(value)


_READERS: dict[Any, Reader] = {}


def _reader(kind: Any) -> Reader:
    reader = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = _new_reader(kind)
    return reader


def _new_reader(kind: Any) -> Reader:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(typing.cast(type, kind))
    if origin is list:
        (item,) = typing.get_args(kind)
        of_item = _reader(item)
        return lambda value: [of_item(one) for one in value] if isinstance(value, list) else []
    if origin is dict:
        of_value = _reader(typing.get_args(kind)[1])
        return lambda value: {key: of_value(one) for key, one in value.items()} if isinstance(value, dict) else {}
    if origin in (typing.Union, builtin_types.UnionType):
        return _union_reader(typing.get_args(kind))
    return lambda value: value


def _dataclass_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    # Built on first use, because a type may contain itself. Assigned only when complete, because threads may decode concurrently.
    rows: list[tuple[str, str, Reader, dataclasses.Field[Any]]] | None = None

    def read(value: Any) -> Any:
        nonlocal rows
        if not isinstance(value, dict):
            raise ValueError(f"expected an object for {kind.__name__}, not {value!r}")
        if rows is None:
            built = []
            for field in dataclasses.fields(kind):
                wire = field.name[:-1] if keyword.iskeyword(field.name.rstrip("_")) else field.name
                built.append((field.name, wire, _reader(hints[field.name]), field))
            rows = built
        arguments = {}
        for name, wire, reader, field in rows:
            if wire in value:
                arguments[name] = reader(value[wire])
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ValueError(f"`{wire}` is missing in {kind.__name__}")
        return kind(**arguments)

    return read


def _union_reader(members: tuple[Any, ...]) -> Reader:
    optional = type(None) in members
    rest = [member for member in members if member is not type(None)]
    if len(rest) == 1:
        only = _reader(rest[0])
        return lambda value: None if value is None and optional else only(value)
    tagged = {_tag(member): member for member in rest if dataclasses.is_dataclass(member)}
    if not tagged:
        return lambda value: value

    def read(value: Any) -> Any:
        if value is None:
            return None
        for tag in ("kind", "op"):
            member = tagged.get((tag, value.get(tag)))
            if member is not None:
                return _reader(member)(value)
        return None

    return read


def _tag(member: Any) -> tuple[str, str] | None:
    hints = typing.get_type_hints(member, vars(types))
    for tag in ("kind", "op"):
        values = typing.get_args(hints.get(tag))
        if len(values) == 1:
            return tag, values[0]
    return None
