# Generated from _async/egress.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""The network policy of a sandbox: rules, decisions and approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import params, types
from .._decode import decode
from .._wire import given, path
from .streams import Stream
from .transport import Transport


class Egress:
    """The network policy of a sandbox. Changes take effect immediately.

    >>> _ = sandbox.egress.allow("example.com", "*.example.org")
    >>> (sandbox.egress.explain("https://example.com/")).allowed
    True
    >>> (sandbox.egress.explain("https://elsewhere.example/")).allowed
    False
    """

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def status(self) -> types.EgressStatus:
        """The current rules and counters."""
        return self._transport.get(types.EgressStatus, self._path())

    def allow(
        self,
        *rules: str,
        sets: Sequence[str] = (),
        secret: str | None = None,
        methods: Sequence[str] = (),
        paths: Sequence[str] = (),
    ) -> types.Network:
        """Adds rules that allow egress.

        Rules are written `example.com`, `*.example.com:8443`, `tcp://db.example.com:5432`. With `secret`, `methods` or
        `paths` they are request rules: connections to the host are intercepted, each request is checked, and the secret is
        inserted.
        """
        change: dict[str, Any] = given(add_sets=list(sets) or None)
        if secret or methods or paths:
            change["add_requests"] = [
                given(host=host, secret=secret, methods=list(methods) or None, paths=list(paths) or None)
                for host in rules
            ]
        else:
            change["add"] = list(rules)
        return self._change(change)

    def deny(self, *rules: str, sets: Sequence[str] = ()) -> types.Network:
        """Removes rules or host sets. Open connections that are no longer allowed are closed."""
        return self._change(given(remove=list(rules) or None, remove_sets=list(sets) or None))

    def set_mode(self, mode: types.NetworkMode) -> types.Network:
        """Sets the mode: `none`, `allowlist` or `open`."""
        return self._change({"mode": mode})

    def apply(self, policy: params.PolicyDocument) -> types.Network:
        """Replaces the whole policy atomically, with a document as for `burrow egress apply -f`."""
        sandbox = self._transport.send(types.Sandbox, "PUT", self._path("policy"), policy, repeat=True)
        return _network(sandbox)

    def explain(self, target: str, *, method: str | None = None) -> types.EgressExplanation:
        """Evaluates the policy for a target without connecting: the decision, and the rule that decides."""
        return self._transport.send(
            types.EgressExplanation,
            "POST",
            self._path("explain"),
            given(target=target, method=method),
            repeat=True,
        )

    def test(self, target: str, *, method: str | None = None) -> types.EgressTrial:
        """Resolves the host and connects to it as for the sandbox, and returns the result."""
        return self._transport.send(
            types.EgressTrial, "POST", self._path("test"), given(target=target, method=method), repeat=True
        )

    def log(self, *, denied: bool = False) -> list[types.EgressEntry]:
        """The log of decisions, newest first."""
        return self._transport.all(types.EgressEntry, self._path("log"), denied=denied)

    def follow(self, *, denied: bool = False, since: int | None = None) -> Stream[types.EgressEntry]:
        """Follows the log, oldest entry first. Each entry is delivered exactly once."""
        seen = {"seq": since}

        def read(line: dict[str, Any]) -> types.EgressEntry:
            entry = decode(types.EgressEntry, line)
            seen["seq"] = entry.seq
            return entry

        stream = Stream(
            self._transport,
            lambda: self._transport.open("GET", self._path("log"), denied=denied, follow=True, since=seen["seq"]),
            read,
            endless=True,
        )
        stream.open()
        return stream

    def approvals(self) -> list[types.EgressApproval]:
        """Requests that wait for approval, oldest first."""
        page = self._transport.json("GET", self._path("approvals"), repeat=True)
        return [decode(types.EgressApproval, item) for item in page["items"]]

    def approve(self, approval: int) -> None:
        """Approves a waiting request."""
        self._transport.nothing("POST", self._path("approvals", str(approval)), {"allow": True})

    def refuse(self, approval: int) -> None:
        """Refuses a waiting request."""
        self._transport.nothing("POST", self._path("approvals", str(approval)), {"allow": False})

    def _change(self, network: dict[str, Any]) -> types.Network:
        sandbox = self._transport.send(types.Sandbox, "PATCH", path("sandboxes", self._sandbox), {"network": network})
        return _network(sandbox)

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "egress", *rest)


def _network(sandbox: types.Sandbox) -> types.Network:
    return sandbox.network or types.Network(mode="none", allow=[], sets=[])
