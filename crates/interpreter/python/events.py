"""Translates messages of a kernel into lines for clients.

A kernel sends Jupyter messages; clients receive one JSON object per line, in the format of E2B's clients. Pure: no sockets, no
clock, no state.
"""

import itertools
import json
import math
import re

# Maximum size of one error: its name and value are arbitrary text, as long as memory permits.
ERROR_CHARS_MAX = 256 << 10

# Produced by kernel_python.py, in addition to the formats of IPython.
CHART = "application/vnd.burrow.chart+json"
DATA = "application/vnd.burrow.data+json"

FORMATS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    DATA: "data",
    CHART: "chart",
}

# Formats that contain arbitrary JSON; all others are text.
JSON_FORMS = ("json", "data", "chart")

# Integers of this length are sent as text: JSON parsers read integers beyond their own range as floats, which end at 1.8e308.
LONG_DIGITS = 309
LONG_INTEGER = re.compile(r"[0-9]{%d}" % LONG_DIGITS)
LONG_INTEGER_MIN = 10 ** (LONG_DIGITS - 1)
# Counts are parsed as u64.
COUNT_MAX = (1 << 63) - 1

COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def line(event):
    """The event as a line of ASCII.

    Escaped to ASCII, because E2B's npm client decodes each chunk separately, and a character of several bytes may be split between
    two chunks.
    """
    try:
        plain = json.dumps(event, ensure_ascii=False, allow_nan=False)
        if not plain.isascii():
            plain.encode()
            plain = json.dumps(event)
        if LONG_INTEGER.search(plain):
            plain = json.dumps(cleaned(event))
    except ValueError:
        # NaN, or an unpaired surrogate: JSON supports neither.
        plain = json.dumps(cleaned(event))
    return plain.encode() + b"\n"


def cleaned(value):
    """The same value without what JSON does not support."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) >= LONG_INTEGER_MIN:
        return str(value)
    if isinstance(value, dict):
        return {cleaned(name): cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


# === Memory of parsed lines ===

# Approximate memory of parsed values per byte outside of strings. The daemon uses the same estimate, and rejects a line that is too large.
OBJECT_WEIGHT = 700
ITEM_WEIGHT = 64

STRING = re.compile(rb'"[^"]*"')
NOT_STRUCTURE = bytes(set(range(256)) - set(b'"{}[],:'))
NOT_BRACKETS = b",:"


def weight(line):
    """Approximate memory of the line when parsed."""
    bare = structure(line)
    return bare.count(b"{") * OBJECT_WEIGHT + (bare.count(b"[") + bare.count(b",")) * ITEM_WEIGHT


def depth(line):
    """Nesting depth of arrays and objects in the line."""
    steps = (1 if byte in b"{[" else -1 for byte in structure(line).translate(None, NOT_BRACKETS))
    return max(itertools.accumulate(steps), default=0)


def structure(line):
    """The brackets, commas and colons outside of strings. Processes whole lines: a loop over bytes takes seconds."""
    bare = line.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, NOT_STRUCTURE)
    # Two strings are separated by a comma or a colon, so two adjacent quotes are one empty string.
    return STRING.sub(b"", bare.replace(b'""', b""))


# === Messages ===


def output(message, timestamp):
    """The event for a message; `None` for messages about the kernel itself."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        name = "stderr" if content.get("name") == "stderr" else "stdout"
        return {"type": name, "text": as_text(content.get("text")), "timestamp": timestamp}
    if kind in ("display_data", "update_display_data", "execute_result"):
        return result(content["data"], main=kind == "execute_result")
    if kind == "error":
        return error(content.get("ename"), content.get("evalue"), content.get("traceback"))
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": count(content.get("execution_count"))}
    return None


def as_text(value):
    """Converts a value to text: Jupyter allows a list of lines instead, and code may display anything."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "".join(value)
    try:
        return json.dumps(cleaned(value), ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply to be shown]"


def count(value):
    """An execution count; 0 if a kernel does not count like others."""
    return value if type(value) is int and 0 <= value <= COUNT_MAX else 0


def result(data, main):
    """A value or displayed object, in all its formats; formats without their own field are under `extra`."""
    event, extra = {"type": "result", "is_main_result": main}, {}
    for form, value in data.items():
        field = FORMATS.get(form)
        if field is None:
            extra[form] = value
        elif field in JSON_FORMS:
            event[field] = value
        elif value is not None:
            event[field] = as_text(value)
    if "text" in event:
        event["text"] = unquoted(event["text"])
    if extra:
        event["extra"] = extra
    return event


def unquoted(text):
    """The characters of a string: as in E2B, the value `'word'` is shown as `word`."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`"
    return text[1:-1] if quoted else text


def error(name, value, traceback):
    """An error, without colours, which are noise for models and logs."""
    lines = traceback if isinstance(traceback, list) else [traceback]
    trace = COLOURS.sub("", "\n".join(as_text(line) for line in lines))
    return {
        "type": "error",
        "name": shortened(as_text(name) or "Error"),
        "value": shortened(COLOURS.sub("", as_text(value))),
        "traceback": shortened(trace),
    }


def shortened(text):
    """The beginning and the end: one of them contains the reason."""
    if len(text) <= ERROR_CHARS_MAX:
        return text
    half = ERROR_CHARS_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
