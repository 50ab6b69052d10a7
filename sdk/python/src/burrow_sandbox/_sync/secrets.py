# Generated from _async/secrets.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Secrets: credentials that a sandbox can use but not read."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Sequence

from .. import params, types
from .._wire import given, path
from .transport import Transport


class Secrets:
    """Write-only values that are inserted into outgoing requests, where their ceiling permits it.

    >>> _ = client.secrets.set("demo", "s3cret-key", allow=["api.example.com"], header="Authorization: Bearer {}")
    >>> _ = sandbox.egress.allow("api.example.com", secret="demo", methods=["GET"])
    >>> [secret.name for secret in client.secrets.list()]
    ['demo']
    >>> client.secrets.remove("demo", force=True)
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def set(
        self,
        name: str,
        value: str | bytes,
        *,
        allow: Sequence[str | params.SecretScope],
        header: str | None = None,
        slot: params.SecretSlot | None = None,
        placeholder: params.SecretPlaceholder | None = None,
    ) -> types.Secret:
        """Creates or changes a secret.

        `allow` is the ceiling: the hosts, optionally with methods and paths, to which rules may send the secret. `header` is
        the header to insert it into, as in `"Authorization: Bearer {}"`; `slot` specifies other positions.
        """
        if slot is None:
            title, _, format = (header or "Authorization: Bearer {}").partition(":")
            slot = {"kind": "header", "name": title.strip(), "format": format.strip() or "{}"}
        body = given(
            value=_base64(value),
            allow=[{"host": scope} if isinstance(scope, str) else scope for scope in allow],
            slot=slot,
            placeholder=placeholder,
        )
        return self._transport.send(types.Secret, "PUT", path("secrets", name), body, repeat=True)

    def rotate(self, name: str, value: str | bytes) -> types.Secret:
        """Replaces the value; later requests carry the new one."""
        return self._transport.send(types.Secret, "POST", path("secrets", name, "rotate"), {"value": _base64(value)})

    def get(self, name: str) -> types.Secret:
        """The ceiling and the uses of a secret, never its value."""
        return self._transport.get(types.Secret, path("secrets", name))

    def list(self) -> builtins.list[types.Secret]:
        """All secrets, without their values."""
        return self._transport.all(types.Secret, path("secrets"))

    def remove(self, name: str, *, force: bool = False) -> None:
        """Removes a secret; with `force` even if rules use it."""
        self._transport.nothing("DELETE", path("secrets", name), repeat=True, force=force)


def _base64(value: str | bytes) -> str:
    """A secret value in the encoding of the API."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
