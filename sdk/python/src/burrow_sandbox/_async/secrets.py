"""Secrets: credentials that a sandbox can use but not read."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Sequence

from .. import params, types
from .._wire import given, path
from .transport import AsyncTransport


class AsyncSecrets:
    """Write-only values that are inserted into outgoing requests, where their ceiling permits it.

    >>> _ = await client.secrets.set("demo", "s3cret-key", allow=["api.example.com"], header="Authorization: Bearer {}")
    >>> _ = await sandbox.egress.allow("api.example.com", secret="demo", methods=["GET"])
    >>> [secret.name for secret in await client.secrets.list()]
    ['demo']
    >>> await client.secrets.remove("demo", force=True)
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def set(
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
        return await self._transport.send(types.Secret, "PUT", path("secrets", name), body, repeat=True)

    async def rotate(self, name: str, value: str | bytes) -> types.Secret:
        """Replaces the value; later requests carry the new one."""
        return await self._transport.send(
            types.Secret, "POST", path("secrets", name, "rotate"), {"value": _base64(value)}
        )

    async def get(self, name: str) -> types.Secret:
        """The ceiling and the uses of a secret, never its value."""
        return await self._transport.get(types.Secret, path("secrets", name))

    async def list(self) -> builtins.list[types.Secret]:
        """All secrets, without their values."""
        return await self._transport.all(types.Secret, path("secrets"))

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Removes a secret; with `force` even if rules use it."""
        await self._transport.nothing("DELETE", path("secrets", name), repeat=True, force=force)


def _base64(value: str | bytes) -> str:
    """A secret value in the encoding of the API."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
