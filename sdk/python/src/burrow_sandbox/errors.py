"""The errors of this package, with hints where a remedy is known.

BurrowError
├─ APIError                  the daemon refused the request: code, status, request_id
│  ├─ NotFoundError, ConflictError, UnauthorizedError, ...   one class per group of codes
├─ ConnectError              the daemon cannot be reached
├─ BrokenError               the connection broke, and a retry failed or was not safe
├─ CommandError              a command exited with a code other than 0 (`run(..., check=True)`)
├─ CodeRunError              code did not run to its end (`run_code(..., check=True)`)
├─ CommandLostError          the outcome of a command is unknown: its sandbox was stopped while it ran
└─ ForkError                 some children of a fork could not be created
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .code import CodeRun
    from .results import CommandResult


class BurrowError(Exception):
    """The base class of all errors of this package. `hint` suggests a remedy, where one is known."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class APIError(BurrowError):
    """The daemon refused the request.

    `code` is stable, one of `burrow_sandbox.types.ErrorCode`; `request_id` identifies the request in the daemon's log.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        hint: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint or _HINTS.get(code))
        self.code = code
        self.status = status
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, exceptions with keyword arguments cannot be unpickled, which process pools need.
        return (_rebuild_api_error, (self.message, self.code, self.status, self.hint, self.request_id))


class InvalidRequestError(APIError):
    """The request is invalid or not supported."""


class UnauthorizedError(APIError):
    """The API key is missing or unknown."""


class ForbiddenError(APIError):
    """The scope of the key does not permit the request."""


class NotFoundError(APIError):
    """The resource does not exist, or belongs to another tenant."""


class ConflictError(APIError):
    """The resource already exists, was changed concurrently, or is in a state that does not permit the request."""


class NotRunningError(ConflictError):
    """The sandbox is not running."""


class ExecEndedError(ConflictError):
    """The command has ended and accepts no input or signal."""


class TooLargeError(APIError):
    """The request exceeds a size limit of the daemon."""


class BusyError(APIError):
    """The daemon is busy or a rate limit was reached; retry later."""


class NoSpaceError(APIError):
    """A disk or a quota is full."""


class NotExecutableError(APIError):
    """The program does not exist in the sandbox, or cannot be executed."""


class SandboxAsleepError(APIError):
    """The sandbox was put to sleep while a stream was open. Its processes are kept; the next use wakes it."""


class NotDumpableError(APIError):
    """Some processes cannot be dumped to disk; the message names them."""


class UnavailableError(APIError):
    """The sandbox, or the server in it, does not respond."""


class InternalError(APIError):
    """An internal error of the daemon; its log has details under `request_id`."""


class ConnectError(BurrowError):
    """The daemon cannot be reached at its address."""


class BrokenError(BurrowError):
    """The connection broke. The request may or may not have taken effect."""


class CommandError(BurrowError):
    """A command exited with a code other than 0. `result` is its result."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class CodeRunError(BurrowError):
    """Code did not run to its end. `run` is its outcome; `run.error.traceback`, if set, shows where it failed."""

    def __init__(self, message: str, run: CodeRun) -> None:
        super().__init__(message)
        self.run = run


class CommandLostError(BurrowError):
    """The outcome of a command is unknown: its sandbox was stopped while it ran."""


class ForkError(BurrowError):
    """Some children could not be created. `children` are those that were created; `failed` has the errors of the others."""

    def __init__(self, message: str, children: Sequence[Any], failed: Sequence[APIError]) -> None:
        super().__init__(message, hint=failed[0].hint if failed else None)
        self.children = list(children)
        self.failed = list(failed)


# The class of each code. A code that this version does not know becomes an `APIError`.
_CLASSES: dict[str, type[APIError]] = {
    "invalid_request": InvalidRequestError,
    "method_not_allowed": InvalidRequestError,
    "unsupported_media_type": InvalidRequestError,
    "range_not_satisfiable": InvalidRequestError,
    "unprocessable": InvalidRequestError,
    "unsupported": InvalidRequestError,
    "unauthorized": UnauthorizedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "no_such_route": NotFoundError,
    "conflict": ConflictError,
    "snapshot_in_use": ConflictError,
    "idempotency_mismatch": ConflictError,
    "idempotency_in_flight": ConflictError,
    "not_running": NotRunningError,
    "exec_ended": ExecEndedError,
    "too_large": TooLargeError,
    "too_many": BusyError,
    "busy": BusyError,
    "no_space": NoSpaceError,
    "no_such_program": NotExecutableError,
    "cannot_execute": NotExecutableError,
    "sandbox_asleep": SandboxAsleepError,
    "not_dumpable": NotDumpableError,
    "guest_unreachable": UnavailableError,
    "port_closed": UnavailableError,
    "bad_gateway": UnavailableError,
    "gateway_timeout": UnavailableError,
    "restore_failed": InternalError,
    "damaged": InternalError,
    "internal": InternalError,
}

# Hints for codes that the user of this package can remedy.
_HINTS = {
    "unauthorized": "set BURROW_API_KEY, or pass `api_key`",
    "forbidden": "use a key with a wider scope: `burrow key create NAME --scope admin`",
    "no_such_route": "this package and the daemon may have different versions: compare with `burrow version`",
    "sandbox_asleep": "the next use of the sandbox wakes it",
    "restore_failed": "start it from its files instead: `sandbox.start(files_only=True)`",
    "not_dumpable": "end those processes first, or omit all processes with `files_only=True`",
}

# Codes of temporary failures, after which a stream reconnects.
TRANSIENT_CODES = frozenset({"busy", "guest_unreachable", "internal"})


def api_error(detail: dict[str, Any], *, status: int | None = None, request_id: str | None = None) -> APIError:
    """Creates the error for an `ErrorDetail` of the API."""
    code = str(detail.get("code", "internal"))
    message = str(detail.get("message", "the daemon refused the request without a message"))
    return _CLASSES.get(code, APIError)(
        message, code=code, status=status, hint=detail.get("hint"), request_id=request_id
    )


def _rebuild_api_error(
    message: str, code: str, status: int | None, hint: str | None, request_id: str | None
) -> APIError:
    return _CLASSES.get(code, APIError)(message, code=code, status=status, hint=hint, request_id=request_id)


__all__ = [
    "APIError",
    "BrokenError",
    "BurrowError",
    "BusyError",
    "CodeRunError",
    "CommandError",
    "CommandLostError",
    "ConflictError",
    "ConnectError",
    "ExecEndedError",
    "ForbiddenError",
    "ForkError",
    "InternalError",
    "InvalidRequestError",
    "NoSpaceError",
    "NotDumpableError",
    "NotExecutableError",
    "NotFoundError",
    "NotRunningError",
    "SandboxAsleepError",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
]
