"""What a kernel says, as the lines that callers read.

A kernel speaks Jupyter's messages; callers get one JSON object a line, in the shape that E2B's clients know. Pure: no sockets, no
clock, nothing kept.
"""

import json
import math
import re

# Of one error: a name and a value are somebody's text, and may be as long as memory is.
ERROR_CHARS_MAX = 256 << 10

# Made by kernel_python.py, beside what IPython makes of a value by itself.
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

COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def line(event):
    """The event as a line of ASCII.

    Escaped to ASCII, since E2B's npm client decodes each piece that it reads on its own, and a letter of several bytes may lie across
    two of them.
    """
    try:
        plain = json.dumps(event, ensure_ascii=False, allow_nan=False)
        if not plain.isascii():
            plain.encode()
            plain = json.dumps(event)
    except ValueError:
        # Not a number, or half a letter: JSON has neither.
        plain = json.dumps(cleaned(event))
    return plain.encode() + b"\n"


def cleaned(value):
    """The same without what JSON cannot say."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {cleaned(name): cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def output(message, timestamp):
    """The event that a message is to its caller; `None` for those about the kernel itself."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        return {"type": content["name"], "text": content["text"], "timestamp": timestamp}
    if kind in ("display_data", "update_display_data", "execute_result"):
        return result(content["data"], main=kind == "execute_result")
    if kind == "error":
        return error(content.get("ename"), content.get("evalue"), content.get("traceback") or [])
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    return None


def result(data, main):
    """A value or a display, in all forms it has; forms without a field of their own are under `extra`."""
    event, extra = {"type": "result", "is_main_result": main}, {}
    for form, value in data.items():
        if form in FORMATS:
            event[FORMATS[form]] = value
        else:
            extra[form] = value
    if "text" in event:
        event["text"] = unquoted(event["text"])
    if extra:
        event["extra"] = extra
    return event


def unquoted(text):
    """A string's own characters: as with E2B, the value `'word'` is shown as `word`."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def error(name, value, traceback):
    """An error; without colours, which are noise to a model and to a log."""
    trace = COLOURS.sub("", "\n".join(traceback))
    return {
        "type": "error",
        "name": shortened(name or "Error"),
        "value": shortened(COLOURS.sub("", value or "")),
        "traceback": shortened(trace),
    }


def shortened(text):
    """The beginning and the end: what went wrong is said in either."""
    if len(text) <= ERROR_CHARS_MAX:
        return text
    half = ERROR_CHARS_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
