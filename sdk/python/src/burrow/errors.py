"""What can go wrong, each with what to do about it.

BurrowError
├─ APIError                  the daemon refused: code, status, request_id
│  ├─ NotFoundError, ConflictError, UnauthorizedError, ...   one class per family of codes
├─ ConnectError              nobody answers at the address
├─ BrokenError               the connection broke, and repeating did not help or was not safe
├─ CommandError              a command ended with something else than 0 (`run(..., check=True)`)
├─ CodeRunError              code did not run to its end (`run_code(..., check=True)`)
├─ CommandLostError          what became of a command is not known: its sandbox was stopped under it
└─ ForkError                 some children of a fork could not be made
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .code import CodeRun
    from .results import CommandResult


class BurrowError(Exception):
    """All errors of this package. `hint` says what to do about it, where something is known."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class APIError(BurrowError):
    """The daemon refused.

    `code` is stable, and one of `burrow.types.ErrorCode`; `request_id` finds the request in the daemon's log.
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
        # Exceptions with keyword arguments do not survive pickling by themselves, which process pools need.
        return (_api_error_again, (self.message, self.code, self.status, self.hint, self.request_id))


class InvalidRequestError(APIError):
    """What was asked makes no sense, or not here."""


class UnauthorizedError(APIError):
    """No key, or one that is not known."""


class ForbiddenError(APIError):
    """The key's scope does not reach that far."""


class NotFoundError(APIError):
    """It is not there, or not yours."""


class ConflictError(APIError):
    """It is there already, was changed meanwhile, or is in another state than this needs."""


class NotRunningError(ConflictError):
    """The sandbox does not run."""


class ExecEndedError(ConflictError):
    """The command has ended, so it takes no input and no signal."""


class TooLargeError(APIError):
    """More than the daemon takes."""


class BusyError(APIError):
    """Too much at once; try again in a moment."""


class NoSpaceError(APIError):
    """A disk or a quota is full."""


class NotExecutableError(APIError):
    """There is no such program in the sandbox, or it cannot be executed."""


class SandboxAsleepError(APIError):
    """Somebody put the sandbox to sleep under an open stream. What runs in it is kept; the next use wakes it."""


class NotDumpableError(APIError):
    """Processes that cannot be written to disk; the message names them."""


class UnavailableError(APIError):
    """The sandbox or what listens in it does not answer."""


class InternalError(APIError):
    """A fault of the daemon's own; its log says more under `request_id`."""


class ConnectError(BurrowError):
    """Nobody answers at the address."""


class BrokenError(BurrowError):
    """The connection broke. What was asked may or may not have happened."""


class CommandError(BurrowError):
    """A command ended with something else than 0. `result` is what it came to."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class CodeRunError(BurrowError):
    """Code did not run to its end. `run` is what it came to; `run.error.traceback` says where it failed."""

    def __init__(self, message: str, run: CodeRun) -> None:
        super().__init__(message)
        self.run = run


class CommandLostError(BurrowError):
    """What became of a command is not known: its sandbox was stopped under it."""


class ForkError(BurrowError):
    """Some children could not be made. `children` are those that could; `failed` says why the others could not."""

    def __init__(self, message: str, children: Sequence[Any], failed: Sequence[APIError]) -> None:
        super().__init__(message, hint=failed[0].hint if failed else None)
        self.children = list(children)
        self.failed = list(failed)


# Codes with a class of their own; a code that is newer than this package is an `APIError`.
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

# For the few codes whose remedy is on this side.
_HINTS = {
    "unauthorized": "set BURROW_API_KEY, or pass `api_key`",
    "forbidden": "use a key with a wider scope: `burrow key create NAME --scope admin`",
    "no_such_route": "this package and the daemon may be of different versions: compare with `burrow version`",
    "sandbox_asleep": "whoever uses the sandbox again wakes it",
    "restore_failed": "boot it from its files instead: `sandbox.start(files_only=True)`",
    "not_dumpable": "end those processes first, or leave all processes out with `files_only=True`",
}

# Faults of the way between us and the daemon or of the moment, which may mend themselves.
TRANSIENT_CODES = frozenset({"busy", "guest_unreachable", "internal"})


def api_error(detail: dict[str, Any], *, status: int | None = None, request_id: str | None = None) -> APIError:
    """The error of an `ErrorDetail`, as it is on the wire."""
    code = str(detail.get("code", "internal"))
    message = str(detail.get("message", "the daemon refused and did not say why"))
    return _CLASSES.get(code, APIError)(
        message, code=code, status=status, hint=detail.get("hint"), request_id=request_id
    )


def _api_error_again(message: str, code: str, status: int | None, hint: str | None, request_id: str | None) -> APIError:
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
