"""Burrow: persistent sandboxes and memory for AI agents.

    from burrow_sandbox import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run("echo hello").stdout)

`Sandbox` and `Client` are synchronous; `AsyncSandbox` and `AsyncClient` have the same methods as coroutines.
"""

from __future__ import annotations

from . import params, types
from ._async.agent_memory import AsyncAgentMemory
from ._async.client import AsyncClient
from ._async.memory import AsyncMemory
from ._async.process import AsyncOutputStream, AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._async.streams import AsyncStream
from ._sync.agent_memory import AgentMemory
from ._sync.client import Client
from ._sync.memory import Memory
from ._sync.process import OutputStream, Process
from ._sync.sandbox import Sandbox
from ._sync.streams import Stream
from .code import CodeResult, CodeRun
from .errors import (
    APIError,
    BrokenError,
    BurrowError,
    BusyError,
    CodeRunError,
    CommandError,
    CommandLostError,
    ConflictError,
    ConnectError,
    ExecEndedError,
    ForbiddenError,
    ForkError,
    InternalError,
    InvalidRequestError,
    NoSpaceError,
    NotDumpableError,
    NotExecutableError,
    NotFoundError,
    NotRunningError,
    SandboxAsleepError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from .merges import Diff, Merged, MergeError, Race
from .results import Checkpoint, CommandResult, ImportedSnapshot, Output

__version__ = "0.1.0"

__all__ = [
    "APIError",
    "AgentMemory",
    "AsyncAgentMemory",
    "AsyncClient",
    "AsyncMemory",
    "AsyncOutputStream",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncStream",
    "BrokenError",
    "BurrowError",
    "BusyError",
    "Checkpoint",
    "Client",
    "CodeResult",
    "CodeRun",
    "CodeRunError",
    "CommandError",
    "CommandLostError",
    "CommandResult",
    "ConflictError",
    "ConnectError",
    "Diff",
    "ExecEndedError",
    "ForbiddenError",
    "ForkError",
    "ImportedSnapshot",
    "InternalError",
    "InvalidRequestError",
    "Memory",
    "MergeError",
    "Merged",
    "NoSpaceError",
    "NotDumpableError",
    "NotExecutableError",
    "NotFoundError",
    "NotRunningError",
    "Output",
    "OutputStream",
    "Process",
    "Race",
    "Sandbox",
    "SandboxAsleepError",
    "Stream",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "params",
    "types",
]
