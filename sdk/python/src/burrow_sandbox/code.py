"""The outcome of a code run: its output, its displayed results and its error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import types
from .errors import CodeRunError

# In the order of `formats`: the simplest format first.
_FORMATS = (
    "text",
    "html",
    "markdown",
    "svg",
    "png",
    "jpeg",
    "pdf",
    "latex",
    "json",
    "javascript",
    "data",
    "chart",
    "extra",
)

# Media types under which notebooks display a result. `data` and `chart` are for programs and are not displayed.
_MEDIA_TYPES = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class CodeResult(types.CodeResult):
    """A displayed result of code: a plot, a table, the value of the last line. A notebook displays it like a native result."""

    @property
    def formats(self) -> list[str]:
        """The available formats of this result: `text`, `html`, `png`, `data`, `chart`, ..."""
        names = {one.name for one in dataclasses.fields(self)} - {"main"}
        # Formats that a subclass or a newer version adds come last.
        forms = [*(name for name in _FORMATS if name in names), *sorted(names - set(_FORMATS))]
        return [name for name in forms if getattr(self, name) is not None]

    def _repr_mimebundle_(self, **_filter: Any) -> dict[str, Any]:
        """All formats by media type; the notebook chooses one."""
        shown = {media: getattr(self, name) for name, media in _MEDIA_TYPES.items() if name in self.formats}
        return {**(self.extra if isinstance(self.extra, dict) else {}), **shown}

    def __repr__(self) -> str:
        # Image data is long and unreadable, so only the text is printed.
        text = f" {self.text!r}" if self.text is not None else ""
        return f"<{type(self).__name__} {'+'.join(self.formats) or 'empty'}{text}>"


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """The outcome of a code run."""

    status: types.CodeRunStatus
    stdout: str
    stderr: str
    results: list[CodeResult] = field(default_factory=list)
    """The displayed results, in order. The value of the last line has `main` set."""
    error: types.CodeError | None = None
    """The error that ended the run, if any."""
    execution_count: int | None = None
    """The number of runs since the context was created or restarted, including this one; `None` if the run was not counted."""
    duration_ms: int
    egress_denied: list[types.EgressDenied] = field(default_factory=list)
    """Connections of the sandbox that were denied during the run; `set` names the host set that allows one."""

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end."""
        return self.status == "ok"

    @property
    def timed_out(self) -> bool:
        """Whether the timeout ended the run."""
        return self.status == "timed_out"

    @property
    def main(self) -> CodeResult | None:
        """The value of the last line, if it has one."""
        return next((result for result in self.results if result.main), None)

    @property
    def text(self) -> str | None:
        """The value of the last line, as text."""
        return self.main.text if self.main else None

    def check(self) -> CodeRun:
        """Returns this run if the code ran to its end, otherwise raises `CodeRunError`."""
        if self.ok:
            return self
        why = f"{self.error.name}: {self.error.value}" if self.error else self.status.replace("_", " ")
        raise CodeRunError(f"the code did not run to its end: {why}", self)


ResultCallback = Callable[[CodeResult], object]
"""Called with each displayed result as it arrives. With `AsyncSandbox` it may be a coroutine function."""

ErrorCallback = Callable[[types.CodeError], object]
"""Called with the error of the code, if it fails. With `AsyncSandbox` it may be a coroutine function."""


__all__ = ["CodeResult", "CodeRun", "ErrorCallback", "ResultCallback"]
