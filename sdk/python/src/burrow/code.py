"""What running code comes to: what it wrote, what it showed, what it failed with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import types
from .errors import CodeRunError

# The plainest first.
_FORMS = (
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

# By what notebooks call the forms of a result. `data` and `chart` are for programs, and no form to look at.
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
    """Something that code showed: a plot, a table, the value of its last line. A notebook shows it as its own."""

    @property
    def formats(self) -> list[str]:
        """The forms there are of it: `text`, `html`, `png`, `data`, `chart`, ..."""
        names = {one.name for one in dataclasses.fields(self)} - {"main"}
        # Those of a later daemon come last.
        forms = [*(name for name in _FORMS if name in names), *sorted(names - set(_FORMS))]
        return [name for name in forms if getattr(self, name) is not None]

    def _repr_mimebundle_(self, **_filter: Any) -> dict[str, Any]:
        """For notebooks, which choose among the forms by themselves."""
        shown = {media: getattr(self, name) for name, media in _MEDIA_TYPES.items() if name in self.formats}
        return {**(self.extra if isinstance(self.extra, dict) else {}), **shown}

    def __repr__(self) -> str:
        # A picture is long, and says nothing.
        said = f" {self.text!r}" if self.text is not None else ""
        return f"<{type(self).__name__} {'+'.join(self.formats) or 'empty'}{said}>"


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """What a run of code came to."""

    status: types.CodeRunStatus
    stdout: str
    stderr: str
    results: list[CodeResult] = field(default_factory=list)
    """What it showed, in order; the value of its last line is `main`."""
    error: types.CodeError | None = None
    """What it failed with."""
    execution_count: int | None = None
    """Of its context, with this run."""
    duration_ms: int

    @property
    def ok(self) -> bool:
        """Whether it ran to its end."""
        return self.status == "ok"

    @property
    def timed_out(self) -> bool:
        """Whether the timeout ended it."""
        return self.status == "timed_out"

    @property
    def main(self) -> CodeResult | None:
        """The value of its last line, if that has one."""
        return next((result for result in self.results if result.main), None)

    @property
    def text(self) -> str | None:
        """The value of its last line, as text."""
        return self.main.text if self.main else None

    def check(self) -> CodeRun:
        """Itself, if it ran to its end; else raises `CodeRunError`."""
        if self.ok:
            return self
        why = f"{self.error.name}: {self.error.value}" if self.error else self.status.replace("_", " ")
        raise CodeRunError(f"the code did not run to its end: {why}", self)


ResultCallback = Callable[[CodeResult], object]
"""Called with each thing shown, as it comes. With `AsyncSandbox` it may be a coroutine function."""

ErrorCallback = Callable[[types.CodeError], object]
"""Called with what the code fails with. With `AsyncSandbox` it may be a coroutine function."""


__all__ = ["CodeResult", "CodeRun", "ErrorCallback", "ResultCallback"]
