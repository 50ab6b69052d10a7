"""What a sandbox may reach, what it asked for, and why something is or is not let through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import params, types
from .._decode import decode
from .._wire import given, path
from .streams import AsyncStream
from .transport import AsyncTransport


class AsyncEgress:
    """The network policy of a sandbox, live.

    >>> _ = await sandbox.egress.allow("example.com", "*.example.org")
    >>> (await sandbox.egress.explain("https://example.com/")).allowed
    True
    >>> (await sandbox.egress.explain("https://elsewhere.example/")).allowed
    False
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def status(self) -> types.EgressStatus:
        """The rules in force, and what was counted."""
        return await self._transport.get(types.EgressStatus, self._path())

    async def allow(
        self,
        *rules: str,
        sets: Sequence[str] = (),
        secret: str | None = None,
        methods: Sequence[str] = (),
        paths: Sequence[str] = (),
    ) -> types.Network:
        """Lets it reach more from now on.

        Rules are written `example.com`, `*.example.com:8443`, `tcp://db.example.com:5432`. With `secret`, `methods` or
        `paths` they are rules about requests: the host's connections are decrypted, each request is judged, and the secret is
        put in.
        """
        change: dict[str, Any] = given(add_sets=list(sets) or None)
        if secret or methods or paths:
            change["add_requests"] = [
                given(host=host, secret=secret, methods=list(methods) or None, paths=list(paths) or None)
                for host in rules
            ]
        else:
            change["add"] = list(rules)
        return await self._change(change)

    async def deny(self, *rules: str, sets: Sequence[str] = ()) -> types.Network:
        """Takes rules or host sets away; what it has open there is cut."""
        return await self._change(given(remove=list(rules) or None, remove_sets=list(sets) or None))

    async def set_mode(self, mode: types.NetworkMode) -> types.Network:
        """`none`, `allowlist` or `open`."""
        return await self._change({"mode": mode})

    async def apply(self, policy: params.PolicyDocument) -> types.Network:
        """Replaces the whole policy at once, with a document as in `burrow egress apply -f`."""
        sandbox = await self._transport.send(types.Sandbox, "PUT", self._path("policy"), policy, repeat=True)
        return _network(sandbox)

    async def explain(self, target: str, *, method: str | None = None) -> types.EgressExplanation:
        """What would happen and which rule decides, without trying."""
        return await self._transport.send(
            types.EgressExplanation,
            "POST",
            self._path("explain"),
            given(target=target, method=method),
            repeat=True,
        )

    async def test(self, target: str, *, method: str | None = None) -> types.EgressTrial:
        """What does happen: looks the host up and connects, as for the sandbox."""
        return await self._transport.send(
            types.EgressTrial, "POST", self._path("test"), given(target=target, method=method), repeat=True
        )

    async def log(self, *, denied: bool = False) -> list[types.EgressEntry]:
        """What was asked for, newest first."""
        return await self._transport.all(types.EgressEntry, self._path("log"), denied=denied)

    async def follow(self, *, denied: bool = False, since: int | None = None) -> AsyncStream[types.EgressEntry]:
        """The log as it is written, oldest first; none twice, none missed."""
        seen = {"seq": since}

        def read(line: dict[str, Any]) -> types.EgressEntry:
            entry = decode(types.EgressEntry, line)
            seen["seq"] = entry.seq
            return entry

        stream = AsyncStream(
            self._transport,
            lambda: self._transport.open("GET", self._path("log"), denied=denied, follow=True, since=seen["seq"]),
            read,
            endless=True,
        )
        await stream.open()
        return stream

    async def approvals(self) -> list[types.EgressApproval]:
        """Requests that wait for somebody to agree, oldest first."""
        page = await self._transport.json("GET", self._path("approvals"), repeat=True)
        return [decode(types.EgressApproval, item) for item in page["items"]]

    async def approve(self, approval: int) -> None:
        """Lets a request that waits go on."""
        await self._transport.nothing("POST", self._path("approvals", str(approval)), {"allow": True})

    async def refuse(self, approval: int) -> None:
        """Refuses a request that waits."""
        await self._transport.nothing("POST", self._path("approvals", str(approval)), {"allow": False})

    async def _change(self, network: dict[str, Any]) -> types.Network:
        sandbox = await self._transport.send(
            types.Sandbox, "PATCH", path("sandboxes", self._sandbox), {"network": network}
        )
        return _network(sandbox)

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "egress", *rest)


def _network(sandbox: types.Sandbox) -> types.Network:
    return sandbox.network or types.Network(mode="none", allow=[], sets=[])
