"""A sandbox: a persistent machine for an agent."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import params, types
from .._shims import async_called
from .._wire import Duration, given, milliseconds, path, seconds, tests_of_labels
from ..code import CodeRun, ErrorCallback, ResultCallback
from ..errors import ForkError, NotFoundError, api_error
from ..merges import Diff, Merged, MergeError, MergeMemoryPolicy, MergePolicy, Race
from ..results import Checkpoint, CommandResult
from .client import AsyncClient, default_client
from .code import AsyncContexts, AsyncHeard, run_code
from .egress import AsyncEgress
from .files import AsyncFiles
from .memory import AsyncMemory
from .ports import AsyncPorts
from .process import AsyncProcess, OutputCallback
from .secrets import AsyncSecrets
from .services import AsyncServices
from .snapshots import AsyncSnapshots

# The label of snapshots of `checkpoint_state`, by which later checkpoints find them, also from other programs.
CHECKPOINT_LABEL = {"burrow-checkpoint": "sdk"}
CHECKPOINTS_KEPT = 10
# Duration of one request of a long wait: shorter than the timeouts of usual proxies.
RACE_WAIT_MS = 30_000
SHELL = "command -v bash >/dev/null && exec bash -l || exec sh -l"


class AsyncSandbox:
    """A persistent machine: files, processes, network, memory.

    `create` creates one, `connect` finds one, `get_or_create` does either:

    >>> async with await AsyncSandbox.create() as temporary:
    ...     result = await temporary.run("echo hello")
    ...     print(result.stdout, end="")
    hello

    The end of a `with` block deletes a sandbox without a name; a sandbox with a name is kept and continues to run.
    """

    def __init__(self, client: AsyncClient, info: types.Sandbox, *, keep: bool = True) -> None:
        """Wraps a response of the daemon; use `create`, `get_or_create` or `connect` instead."""
        self._client = client
        self._transport = client.transport
        self._info = info
        self._keep = keep
        self.contexts = AsyncContexts(self._transport, info.id)
        self.files = AsyncFiles(self._transport, info.id)
        self.memory = AsyncMemory(self._transport, info.id)
        self.egress = AsyncEgress(self._transport, info.id)
        self.ports = AsyncPorts(self._transport, info.id)
        self.services = AsyncServices(self._transport, info.id)
        self.snapshots = AsyncSnapshots(self._transport, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.id} {self.state}>"

    # === Creating and finding ===

    @classmethod
    async def create(
        cls,
        image: str | None = None,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: params.LimitsRequest | None = None,
        allow: Sequence[str] | None = None,
        network: params.NetworkRequest | None = None,
        memory: str | params.MemoryRequest | None = None,
        sleep: params.SleepRequest | None = None,
        services: Mapping[str, params.CreateService] | None = None,
        snapshot_policy: params.SnapshotPolicyRequest | None = None,
        rotate: params.RotateRequest | None = None,
        user: str | None = None,
        workdir: str | None = None,
        ttl: Duration | None = None,
        ephemeral: bool = False,
        driver: str | None = None,
        keep: bool | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """A new sandbox, running.

        `allow` lists egress rules, `network` is the whole network policy; `memory` names the memory space to use.
        An `ephemeral` sandbox is deleted when it stops, one with a `ttl` after that time. `keep` decides whether the end of a
        `with` block keeps the sandbox: by default if it has a name.
        """
        return await cls._create(
            given(
                image=image,
                name=name,
                env=dict(env) if env else None,
                labels=dict(labels) if labels else None,
                limits=limits,
                network=_network(allow, network),
                memory={"space": memory} if isinstance(memory, str) else memory,
                sleep=sleep,
                services=dict(services) if services else None,
                snapshot_policy=snapshot_policy,
                rotate=rotate,
                user=user,
                workdir=workdir,
                ttl_seconds=seconds(ttl),
                ephemeral=ephemeral or None,
                driver=driver,
            ),
            keep=name is not None if keep is None else keep,
            client=client,
        )

    @classmethod
    async def get_or_create(
        cls,
        name: str,
        image: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: params.LimitsRequest | None = None,
        allow: Sequence[str] | None = None,
        network: params.NetworkRequest | None = None,
        memory: str | params.MemoryRequest | None = None,
        sleep: params.SleepRequest | None = None,
        user: str | None = None,
        workdir: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """The sandbox of that name, running: the existing one, or a new one.

        Concurrent callers get the same sandbox.

        >>> first = await AsyncSandbox.get_or_create("builder")
        >>> second = await AsyncSandbox.get_or_create("builder")
        >>> first.id == second.id
        True
        >>> await first.delete()
        """
        return await cls._create(
            given(
                name=name,
                if_not_exists=True,
                image=image,
                env=dict(env) if env else None,
                labels=dict(labels) if labels else None,
                limits=limits,
                network=_network(allow, network),
                memory={"space": memory} if isinstance(memory, str) else memory,
                sleep=sleep,
                user=user,
                workdir=workdir,
            ),
            keep=True,
            client=client,
        )

    @classmethod
    async def _create(cls, body: dict[str, Any], *, keep: bool, client: AsyncClient | None) -> AsyncSandbox:
        client = client or default_client()
        info = await client.transport.create(types.Sandbox, path("sandboxes"), body)
        return cls(client, info, keep=keep)

    @classmethod
    async def connect(cls, sandbox: str, *, client: AsyncClient | None = None) -> AsyncSandbox:
        """An existing sandbox, by name, id or unique id prefix. Does not wake it."""
        client = client or default_client()
        return cls(client, await client.transport.get(types.Sandbox, path("sandboxes", sandbox)))

    @classmethod
    async def from_snapshot(
        cls,
        snapshot: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        files_only: bool = False,
        ephemeral: bool = False,
        ttl: Duration | None = None,
        keep: bool | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """A new sandbox that continues from a snapshot, even if the original sandbox was deleted."""
        client = client or default_client()
        body = given(
            name=name,
            labels=dict(labels) if labels else None,
            files_only=files_only or None,
            ephemeral=ephemeral or None,
            ttl_seconds=seconds(ttl),
        )
        info = await client.transport.create(types.Sandbox, path("snapshots", snapshot, "sandboxes"), body)
        return cls(client, info, keep=name is not None if keep is None else keep)

    @classmethod
    async def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        state: types.SandboxState | None = None,
        client: AsyncClient | None = None,
    ) -> builtins.list[AsyncSandbox]:
        """All sandboxes, or those with these labels or in this state."""
        client = client or default_client()
        found = await client.transport.all(types.Sandbox, path("sandboxes"), label=tests_of_labels(labels), state=state)
        return [cls(client, info) for info in found]

    # === Properties ===

    @property
    def id(self) -> str:
        """The id of the sandbox. It never changes."""
        return self._info.id

    @property
    def name(self) -> str | None:
        """The name of the sandbox, if it has one."""
        return self._info.name

    @property
    def state(self) -> types.SandboxState:
        """The last known state; `refresh()` requests it again."""
        return self._info.state

    @property
    def info(self) -> types.Sandbox:
        """The last known details of the sandbox."""
        return self._info

    @property
    def client(self) -> AsyncClient:
        """The client of the daemon that runs the sandbox."""
        return self._client

    @property
    def secrets(self) -> AsyncSecrets:
        """The secrets of the tenant; `egress.allow(host, secret=name)` inserts one into requests of this sandbox."""
        return self._client.secrets

    async def refresh(self) -> types.Sandbox:
        """Requests the current details of the sandbox."""
        return self._set_info(await self._transport.get(types.Sandbox, self._path()))

    async def stats(self) -> types.Stats:
        """Usage of CPU, RAM, disk and network, and the number of processes."""
        return await self._transport.get(types.Stats, self._path("stats"))

    async def update(self, change: params.UpdateSandbox) -> types.Sandbox:
        """Changes limits, labels, environment or policies; see `burrow_sandbox.params.UpdateSandbox`."""
        return self._set_info(await self._transport.send(types.Sandbox, "PATCH", self._path(), change))

    # === Commands ===

    async def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        input: str | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
        snapshot: bool = False,
        rollback_on_failure: bool = False,
    ) -> CommandResult:
        """Runs a command and waits for its end. A string is a shell command line, a list a program and its arguments.

        Output of any size is returned completely; `on_stdout` and `on_stderr` receive it as it arrives. `check` raises
        `CommandError` unless the command exits with 0; `rollback_on_failure` rolls back the sandbox if it does not.

        >>> (await sandbox.run("exit 3")).exit_code
        3
        >>> result = await sandbox.run(["printf", "%s|", "a b", "c"], on_stdout=print)
        a b|c|
        """
        process = await self._start(
            command,
            env=env,
            workdir=workdir,
            user=user,
            timeout=timeout,
            input=input,
            snapshot=snapshot or None,
            rollback_on_failure=rollback_on_failure or None,
            hold=True,
        )
        return await process.wait(on_stdout=on_stdout, on_stderr=on_stderr, check=check)

    async def stream(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        input: str | None = None,
        stdin: bool = False,
    ) -> AsyncProcess:
        """Starts a command to iterate over its output. The command waits for a slow reader, so no output is lost.

        >>> async for piece in await sandbox.stream("for i in 1 2 3; do echo $i; done"):
        ...     print(piece.text, end="")
        1
        2
        3
        """
        return await self._start(
            command,
            env=env,
            workdir=workdir,
            user=user,
            timeout=timeout,
            input=input,
            stdin="pipe" if stdin else None,
            hold=True,
        )

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        stdin: bool = False,
        ring_bytes: int | None = None,
    ) -> AsyncProcess:
        """Starts a command in the background. It runs independently of connections; the last MiB of its output is kept.

        >>> process = await sandbox.spawn("sleep 1000")
        >>> await process.kill()
        True
        >>> await process.wait_exit()
        137
        """
        return await self._start(
            command,
            env=env,
            workdir=workdir,
            user=user,
            timeout=timeout,
            stdin="pipe" if stdin else None,
            ring_bytes=ring_bytes,
        )

    async def pty(
        self,
        command: str | Sequence[str] | None = None,
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
    ) -> AsyncProcess:
        """Starts a shell or a command in a terminal, which accepts input, streams output and can be resized.

        >>> terminal = await sandbox.pty("stty size; exec cat", columns=100, rows=30)
        >>> async for piece in terminal:
        ...     print(piece.text.strip())
        ...     break
        30 100
        >>> await terminal.kill()
        True
        """
        return await self._start(
            command if command is not None else ["/bin/sh", "-c", SHELL],
            env={"TERM": "xterm-256color", **(env or {})},
            workdir=workdir,
            user=user,
            stdin="pipe",
            terminal={"columns": columns, "rows": rows},
            hold=True,
        )

    async def process(self, exec: str) -> AsyncProcess:
        """A process that was started earlier or by another program, by its id."""
        found = await self._transport.get(types.Exec, self._path("execs", exec))
        return AsyncProcess(self._transport, found)

    async def processes(self) -> builtins.list[AsyncProcess]:
        """The started processes that the daemon still knows, newest first."""
        found = await self._transport.all(types.Exec, self._path("execs"))
        return [AsyncProcess(self._transport, exec) for exec in found]

    async def _start(
        self,
        command: str | Sequence[str],
        *,
        timeout: Duration | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AsyncProcess:
        body = given(
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else [*command],
            env=dict(env) if env else None,
            timeout_ms=milliseconds(timeout),
            **options,
        )
        return AsyncProcess(self._transport, await self._transport.create(types.Exec, self._path("execs"), body))

    # === Code ===

    async def run_code(
        self,
        code: str,
        *,
        context: str | types.CodeContext | None = None,
        language: str | None = None,
        timeout: Duration | None = None,
        env: Mapping[str, str] | None = None,
        max_output: int | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_result: ResultCallback | None = None,
        on_error: ErrorCallback | None = None,
        check: bool = False,
    ) -> CodeRun:
        """Runs code in a context that keeps its variables: one from `contexts`, or the default context of the language.

        Callbacks receive output and results as they arrive. The run is interrupted after `timeout`, after more than `max_output`
        bytes (16 MiB at most), and when the call is cancelled. `check` raises `CodeRunError` unless it runs to its end.

        >>> run = await sandbox.run_code("x = 6 * 7")
        >>> run = await sandbox.run_code("print('asked'); x", on_stdout=print)
        asked
        >>> run.text
        '42'
        """
        heard = AsyncHeard(on_stdout, on_stderr, on_result, on_error)
        run = await run_code(
            self._transport,
            self.id,
            code,
            context=context,
            language=language,
            timeout=timeout,
            env=env,
            max_output=max_output,
            heard=heard,
        )
        return run.check() if check else run

    # === Sleep ===

    async def sleep(self) -> types.Sandbox:
        """Saves the processes to disk and frees their RAM. Any use wakes the sandbox, and the processes continue.

        >>> await sandbox.sleep() and sandbox.state
        'hibernated'
        >>> await sandbox.wake() and sandbox.state
        'running'
        """
        return await self._power("hibernate")

    async def wake(self) -> types.Sandbox:
        """Brings the sandbox to state `running` if it is paused, asleep or stopped."""
        return await self._power("wake")

    async def pause(self) -> types.Sandbox:
        """Freezes the processes; their RAM is kept."""
        return await self._power("pause")

    async def resume(self) -> types.Sandbox:
        """Resumes the processes after `pause`."""
        return await self._power("resume")

    async def stop(self, *, grace: Duration | None = None) -> types.Sandbox:
        """Ends the processes, which have `grace` to exit by themselves. Files, environment and services are kept."""
        return await self._power("stop", grace_ms=milliseconds(grace))

    async def start(self, *, files_only: bool = False) -> types.Sandbox:
        """Starts the sandbox; with `files_only` from its files, discarding hibernated processes."""
        return await self._power("start", files_only=files_only)

    async def _power(self, verb: str, **options: Any) -> types.Sandbox:
        answer = await self._transport.send(types.Sandbox, "POST", self._path(verb), repeat=True, **options)
        return self._set_info(answer)

    # === Snapshots and forks ===

    async def snapshot(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        files_only: bool = False,
        expires: Duration | None = None,
    ) -> types.Snapshot:
        """Takes a snapshot: files, configuration and, unless `files_only`, processes, at one point in time."""
        body = given(
            name=name,
            description=description,
            labels=dict(labels) if labels else None,
            files_only=files_only or None,
            expires_seconds=seconds(expires),
        )
        return await self._transport.create(types.Snapshot, self._path("snapshots"), body)

    async def restore(self, snapshot: str, *, files_only: bool = False) -> types.Snapshot:
        """Restores a snapshot, by name or id. Returns a snapshot of the previous state, which undoes the restore.

        >>> before = await sandbox.snapshot()
        >>> _ = await sandbox.run("rm -rf /srv/precious; touch /srv/mess")
        >>> undo = await sandbox.restore(before.id)
        >>> await sandbox.files.exists("/srv/mess")
        False
        """
        body = given(snapshot=snapshot, files_only=files_only or None)
        restored = await self._transport.send(types.Restored, "POST", self._path("restore"), body)
        self._set_info(restored.sandbox)
        return restored.undo

    async def fork(
        self,
        count: int = 1,
        *,
        names: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        files_only: bool = False,
        ephemeral: bool = False,
        ttl: Duration | None = None,
    ) -> builtins.list[AsyncSandbox]:
        """Creates children that continue from the present moment, processes included, each with its own identity.

        >>> children = await sandbox.fork(2)
        >>> [(await child.run("echo mine > /tmp/mine; cat /tmp/mine")).stdout for child in children]
        ['mine\\n', 'mine\\n']
        >>> await sandbox.files.exists("/tmp/mine")
        False
        >>> for child in children:
        ...     await child.delete()
        """
        body = given(
            count=count,
            names=[*names] if names else None,
            labels=dict(labels) if labels else None,
            files_only=files_only or None,
            ephemeral=ephemeral or None,
            ttl_seconds=seconds(ttl),
        )
        forked = await self._transport.create(types.Forked, self._path("fork"), body)
        children = [type(self)(self._client, info, keep=bool(names)) for info in forked.children]
        if forked.failed:
            reasons = [api_error({"code": it.code, "message": it.message, "hint": it.hint}) for it in forked.failed]
            message = f"{len(reasons)} of {count} children could not be created: {reasons[0].message}"
            raise ForkError(message, children, reasons)
        return children

    async def checkpoint_state(
        self, name: str | None = None, *, files_only: bool = False, keep: int = CHECKPOINTS_KEPT
    ) -> Checkpoint:
        """Takes a snapshot and reports the changes since the last checkpoint; the first one is compared with the image.

        The last `keep` checkpoints without a name are kept; older ones are deleted.

        >>> _ = await sandbox.checkpoint_state(files_only=True)
        >>> _ = await sandbox.run("echo 1 > /srv/new; rm -f /etc/motd")
        >>> checkpoint = await sandbox.checkpoint_state(files_only=True)
        >>> "/srv/new" in checkpoint.added
        True
        """
        earlier = await self.snapshots.list(labels=CHECKPOINT_LABEL)
        taken = await self.snapshot(name, labels=CHECKPOINT_LABEL, files_only=files_only)
        checkpoint = await self._checkpoint(taken, earlier[0].id if earlier else None)
        unnamed = [snapshot for snapshot in earlier if snapshot.name is None]
        for old in unnamed[max(0, keep - 1) :]:
            try:
                await self.snapshots.delete(old.id)
            except NotFoundError:
                continue
        return checkpoint

    async def _checkpoint(self, taken: types.Snapshot, last: str | None) -> Checkpoint:
        """The changes of a snapshot refer to the previous snapshot. If that is not the last checkpoint, requests a diff."""
        changes = taken.changes
        if last is not None and changes.since != last:
            diff = await self._diff(f"snapshot:{last}", f"snapshot:{taken.id}", all=True)
            return Checkpoint(
                snapshot=taken,
                since=last,
                added=diff.paths("added"),
                changed=diff.paths("changed"),
                deleted=diff.paths("deleted"),
                total=diff.added + diff.changed + diff.deleted,
                more=diff.cut,
            )
        by_kind: dict[str, builtins.list[str]] = {"added": [], "changed": [], "deleted": []}
        for change in changes.paths:
            by_kind.setdefault(change.kind, []).append(change.path)
        return Checkpoint(
            snapshot=taken,
            since=changes.since,
            added=by_kind["added"],
            changed=by_kind["changed"],
            deleted=by_kind["deleted"],
            total=changes.total,
            more=bool(changes.more),
        )

    # === Diffs, merges and races ===

    async def diff(
        self,
        since: str | AsyncSandbox | types.Snapshot | None = None,
        *,
        globs: Sequence[str] = (),
        content: bool = False,
        all: bool = False,
        limit: int | None = None,
    ) -> Diff:
        """Compares the files with a snapshot, another sandbox or an image; by default with the image of this sandbox.

        `globs` selects paths, `content` adds the changed lines of text files, `all` includes caches, logs and other noise.
        """
        from_ = f"image:{self._info.image_id}" if since is None else _tree(since)
        return await self._diff(from_, f"sandbox:{self.id}", globs=globs, content=content, all=all, limit=limit)

    async def _diff(self, from_: str, to: str, *, globs: Sequence[str] = (), **options: Any) -> Diff:
        body = given(globs=[*globs] or None, **{key: value or None for key, value in options.items()})
        body |= {"from": from_, "to": to}
        return await self._transport.send(Diff, "POST", path("diff"), body, repeat=True)

    async def merge(
        self,
        child: str | AsyncSandbox,
        *,
        policy: MergePolicy = "fail",
        policies: Mapping[str, MergePolicy] | None = None,
        memory: MergeMemoryPolicy = "list",
        all: bool = False,
        dry_run: bool = False,
    ) -> Merged:
        """Merges the changes of a fork, three-way against the common snapshot; restoring `merged.undo` undoes the merge.

        A path that both sides changed is resolved by the first matching pattern of `policies`, otherwise by `policy`. With
        unresolved conflicts, nothing is merged and `MergeError` is raised. A `dry_run` only reports the result.
        """
        body = given(
            child=child if isinstance(child, str) else child.id,
            policy=policy,
            policies=[{"glob": glob, "policy": one} for glob, one in (policies or {}).items()] or None,
            memory=memory,
            all=all or None,
            dry_run=dry_run or None,
        )
        merged = await self._transport.send(Merged, "POST", self._path("merge"), body, repeat=dry_run)
        if merged.conflicts and not dry_run:
            raise MergeError(merged)
        return merged

    async def race(
        self,
        command: str | Sequence[str],
        attempts: int = 3,
        *,
        judge: str | Sequence[str] | None = None,
        parallel: int | None = None,
        timeout: Duration | None = None,
        files_only: bool = False,
        keep: bool = False,
        merge_winner: bool = False,
        policy: MergePolicy | None = None,
        on_change: Callable[[Race], object] | None = None,
    ) -> Race:
        """Forks this sandbox, runs a command in each fork, and waits for the result.

        `BURROW_ATTEMPT` is the number of the attempt. `judge` is run in every attempt afterwards; the number in its last line of
        output is the score. Without it, the fastest attempt that exits with 0 wins. `merge_winner` merges the winner.
        """
        body = given(
            parent=self.id,
            attempts=attempts,
            run=_argv(command),
            judge=None if judge is None else _argv(judge),
            parallel=parallel,
            timeout_seconds=seconds(timeout),
            files_only=files_only or None,
            keep=keep or None,
            merge_winner=merge_winner or None,
            policy=policy,
        )
        race = await self._transport.send(Race, "POST", path("races"), body)
        while race.stage != "done":
            if on_change is not None:
                await async_called(on_change, race)
            race = await self._transport.get(Race, path("races", race.id), after=race.version, wait_ms=RACE_WAIT_MS)
        return race

    # === Ports ===

    async def get_url(self, port: int, *, expires: Duration | None = None) -> str:
        """A link to the server on a port, for browsers and programs without a key."""
        return await self.ports.get_url(port, expires=expires)

    # === Deletion ===

    async def delete(self, *, snapshots: bool = False) -> None:
        """Deletes the sandbox with its files and memory, and with `snapshots` also its snapshots."""
        await self._transport.nothing("DELETE", self._path(), repeat=True, snapshots=snapshots)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep:
            return
        try:
            await self.delete()
        except NotFoundError:
            # It was deleted before, or it was ephemeral and has stopped.
            return

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._info.id, *rest)

    def _set_info(self, info: types.Sandbox) -> types.Sandbox:
        self._info = info
        return info


def _network(allow: Sequence[str] | None, network: params.NetworkRequest | None) -> params.NetworkRequest | None:
    if allow is None:
        return network
    merged: params.NetworkRequest = {**(network or {}), "allow": [*((network or {}).get("allow") or []), *allow]}
    return merged


def _tree(of: str | AsyncSandbox | types.Snapshot) -> str:
    if isinstance(of, str):
        return of
    return f"snapshot:{of.id}" if isinstance(of, types.Snapshot) else f"sandbox:{of.id}"


def _argv(command: str | Sequence[str]) -> builtins.list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else [*command]
