"""Secrets: keys that a sandbox uses and cannot read."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Sequence

from .. import params, types
from .._wire import given, path
from .transport import AsyncTransport


class AsyncSecrets:
    """Write-only values that are put into requests on their way out, where their owner allows it.

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
        """Declares a secret, or changes it.

        `allow` is the ceiling: hosts, or hosts with methods and paths, beyond which no rule can carry it. `header` says where it
        stands, as in `"Authorization: Bearer {}"`; `slot` says the same for other places.
        """
        if slot is None:
            title, _, format = (header or "Authorization: Bearer {}").partition(":")
            slot = {"kind": "header", "name": title.strip(), "format": format.strip() or "{}"}
        body = given(
            value=_travelling(value),
            allow=[{"host": scope} if isinstance(scope, str) else scope for scope in allow],
            slot=slot,
            placeholder=placeholder,
        )
        return await self._transport.send(types.Secret, "PUT", path("secrets", name), body, repeat=True)

    async def rotate(self, name: str, value: str | bytes) -> types.Secret:
        """Gives it another value; requests from then on carry that."""
        return await self._transport.send(
            types.Secret, "POST", path("secrets", name, "rotate"), {"value": _travelling(value)}
        )

    async def get(self, name: str) -> types.Secret:
        """Where it may go and who uses it; never its value."""
        return await self._transport.get(types.Secret, path("secrets", name))

    async def list(self) -> builtins.list[types.Secret]:
        """All of them."""
        return await self._transport.all(types.Secret, path("secrets"))

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Removes it; with `force` also where rules use it."""
        await self._transport.nothing("DELETE", path("secrets", name), repeat=True, force=force)


def _travelling(value: str | bytes) -> str:
    """A secret is bytes, and travels in base64."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
