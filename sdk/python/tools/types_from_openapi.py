"""Generates `burrow_sandbox/types.py` (responses) and `burrow_sandbox/params.py` (requests) from the OpenAPI document.

Responses become frozen dataclasses, since they are only read; requests become `TypedDict`s, since callers write them as
literals. A schema that occurs on both sides gets both. A `oneOf` of objects becomes one class per member and a union.
"""

from __future__ import annotations

import json
import keyword
import textwrap
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

HEADER = '''"""{what}

Generated from docs/openapi.json by `tools/generate.py`. Do not edit.
"""

from __future__ import annotations

'''

# Pages have no type: the client requests them and returns their items.
PAGES = "Page_"


class Document:
    """The schemas of an OpenAPI document, and which of them occur in requests and in responses."""

    def __init__(self, text: str) -> None:
        document = json.loads(text)
        self.schemas: dict[str, Schema] = document["components"]["schemas"]
        asked: set[str] = set()
        answered: set[str] = set()
        for operations in document["paths"].values():
            for operation in operations.values():
                if not isinstance(operation, dict):
                    continue
                self._reach(operation.get("requestBody"), asked)
                self._reach(operation.get("responses"), answered)
        # Messages of a WebSocket, to which no request or response body refers.
        for name in ("AttachServerMessage", "PortMessage"):
            self._reach(self.schemas.get(name), answered)
            answered.add(name)
        # A page contains the schema of its items inline; the named schema is the suffix of the page's name.
        for page in [name for name in answered if name.startswith(PAGES)]:
            self._reach({"$ref": f"#/components/schemas/{page.removeprefix(PAGES)}"}, answered)
        self.asked = sorted(name for name in asked if not name.startswith(PAGES))
        self.answered = sorted(name for name in answered if not name.startswith(PAGES))

    def _reach(self, node: Any, into: set[str]) -> None:
        if isinstance(node, list):
            for item in node:
                self._reach(item, into)
        elif isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str):
                name = reference.rsplit("/", 1)[1]
                if name not in into:
                    into.add(name)
                    self._reach(self.schemas[name], into)
            for value in node.values():
                self._reach(value, into)


def types_module(document: Document) -> str:
    """The source of `types.py`: dataclasses of responses."""
    out = [HEADER.format(what="Responses of the daemon, as frozen dataclasses. Times are in milliseconds since 1970.")]
    out.append("from dataclasses import dataclass, field\nfrom typing import Any, Literal, Union\n\n")
    names: list[str] = []
    for name in document.answered:
        out.extend(_answer(document, name, names))
    out.append("__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(names)) + "]\n")
    return "".join(out)


def params_module(document: Document) -> str:
    """The source of `params.py`: `TypedDict`s of requests."""
    out = [HEADER.format(what="Requests to the daemon, as typed dictionaries.")]
    out.append("from typing import Any, Literal, TypedDict, Union\n\n")
    names: list[str] = []
    for name in document.asked:
        out.extend(_request(document, name, names))
    out.append("__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(names)) + "]\n")
    return "".join(out)


def _answer(document: Document, name: str, names: list[str]) -> Iterator[str]:
    schema = _flat(document, document.schemas[name])
    names.append(name)
    members = _members(document, schema)
    if members:
        variants = []
        for member in members:
            if "$ref" in member:
                variants.append(_reference(member))
                continue
            if "properties" not in member:
                variants.append(_type(member))
                continue
            variant = name + _variant(member)
            names.append(variant)
            variants.append(variant)
            yield _dataclass(variant, member)
        yield f"{name} = Union[{', '.join(variants)}]\n{_docstring(schema, '')}\n\n"
    elif "properties" in schema:
        yield _dataclass(name, schema)
    else:
        yield f"{name} = {_type(schema)}\n{_docstring(schema, '')}\n\n"


def _request(document: Document, name: str, names: list[str]) -> Iterator[str]:
    schema = _flat(document, document.schemas[name])
    names.append(name)
    members = _members(document, schema)
    if members:
        variants = []
        for member in members:
            if "$ref" in member:
                variants.append(_reference(member))
                continue
            if "properties" not in member:
                variants.append(_type(member))
                continue
            variant = name + _variant(member)
            names.append(variant)
            variants.append(variant)
            yield _typed_dict(variant, member)
        quoted = ", ".join(f'"{variant}"' for variant in variants)
        yield f"{name} = Union[{quoted}]\n{_docstring(schema, '')}\n\n"
    elif "properties" in schema and not _is_open(document.schemas[name]):
        yield _typed_dict(name, schema)
    elif "properties" in schema:
        yield f"{name} = dict[str, Any]\n{_docstring(schema, '')}\n\n"
    else:
        yield f"{name} = {_type(schema)}\n{_docstring(schema, '')}\n\n"


def _is_open(schema: Schema) -> bool:
    """Whether a schema permits unnamed keys: an `allOf` with an object without properties."""
    return any("properties" not in part and "$ref" not in part for part in schema.get("allOf", []))


def _flat(document: Document, schema: Schema) -> Schema:
    """Merges an `allOf` into one object."""
    if "allOf" not in schema:
        return schema
    flat: Schema = {"description": schema.get("description", ""), "properties": {}, "required": []}
    for part in schema["allOf"]:
        part = document.schemas[_reference(part)] if "$ref" in part else part
        flat["properties"].update(part.get("properties", {}))
        flat["required"] += part.get("required", [])
    if not flat["properties"]:
        return {"type": "object", "description": flat["description"]}
    return flat


def _members(document: Document, schema: Schema) -> list[Schema]:
    members = [_flat(document, member) for member in schema.get("oneOf", [])]
    return members if not any(member.get("type") == "null" for member in members) else []


def _variant(member: Schema) -> str:
    """The name suffix of a union member: the only value of its tag `kind` or `op`."""
    for tag in ("kind", "op"):
        values = member["properties"].get(tag, {}).get("enum", [])
        if len(values) == 1:
            return "".join(word.capitalize() for word in values[0].replace("-", "_").split("_"))
    raise ValueError(f"a member of a union has no tag: {member}")


def _dataclass(name: str, schema: Schema) -> str:
    required = schema.get("required", [])
    lines = ["@dataclass(frozen=True, kw_only=True)\n", f"class {name}:\n", _docstring(schema, "    ")]
    for field, property_ in schema["properties"].items():
        text = _type(property_)
        shown = field + "_" if keyword.iskeyword(field) else field
        if field in required:
            lines.append(f"    {shown}: {text}\n")
        elif text.endswith("]") and text.startswith(("list[", "dict[")):
            lines.append(f"    {shown}: {text} = field(default_factory={text[:4]})\n")
        else:
            optional = text if text.endswith("| None") or text == "Any" else f"{text} | None"
            lines.append(f"    {shown}: {optional} = None\n")
        lines.append(_docstring(property_, "    "))
    return "".join(lines) + "\n\n"


def _typed_dict(name: str, schema: Schema) -> str:
    """Required fields get a base class, because Python 3.10 has no `typing.Required`; so do fields named like keywords."""
    properties = schema["properties"]
    required = schema.get("required", [])
    parts: dict[tuple[bool, bool], dict[str, Schema]] = {}
    for field, it in properties.items():
        parts.setdefault((field in required, keyword.iskeyword(field)), {})[field] = it
    heads, bases = "", []
    for (must, reserved), suffix in (
        ((True, False), ""),
        ((True, True), "Words"),
        ((False, True), "OptionalWords"),
    ):
        fields = parts.get((must, reserved))
        if not fields:
            continue
        base = f"_{name}{suffix}"
        bases.append(base)
        total = "" if must else ", total=False"
        if reserved:
            rows = ", ".join(f'"{field}": "{_type(it)}"' for field, it in fields.items())
            heads += f'{base} = TypedDict("{base}", {{{rows}}}{total})\n\n\n'
        else:
            heads += f"class {base}(TypedDict{total}):\n{_fields(fields)}\n\n"
    body = _docstring(schema, "    ") + _fields(parts.get((False, False), {})) or "    pass\n"
    return f"{heads}class {name}({', '.join(bases) or 'TypedDict'}, total=False):\n{body}\n\n"


def _fields(properties: dict[str, Schema]) -> str:
    return "".join(f"    {field}: {_type(it)}\n{_docstring(it, '    ')}" for field, it in properties.items())


def _docstring(schema: Schema, indent: str) -> str:
    text = schema.get("description", "")
    for member in schema.get("oneOf", []):
        text = text or member.get("description", "")
    if not text:
        return ""
    text = " ".join(text.split()).replace("\\", "\\\\")
    lines = textwrap.wrap(text, 110 - len(indent))
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    body = "".join(f"{indent}{line}\n" for line in lines[1:])
    return f'{indent}"""{lines[0]}\n{body}{indent}"""\n'


def _reference(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[1]


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return _reference(schema)
    if "oneOf" in schema:
        parts = [_type(member) for member in schema["oneOf"]]
        return " | ".join("None" if part == "None" else part for part in dict.fromkeys(parts))
    if "enum" in schema:
        return "Literal[" + ", ".join(json.dumps(value) for value in schema["enum"]) + "]"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if not kinds:
        return "Any"
    return " | ".join(_simple(kind, schema) for kind in kinds)


def _simple(kind: str, schema: Schema) -> str:
    match kind:
        case "array":
            return f"list[{_type(schema.get('items', {}))}]"
        case "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {_type(values)}]" if isinstance(values, dict) else "dict[str, Any]"
        case _:
            return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]
