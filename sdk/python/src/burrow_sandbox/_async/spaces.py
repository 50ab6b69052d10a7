"""Named memory spaces, which outlive sandboxes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from .. import types
from .._wire import given, path
from ..errors import ConflictError
from .transport import AsyncTransport


class AsyncSpaces:
    """Memory spaces that several sandboxes can share.

    >>> _ = await client.spaces.get_or_create("team", description="what the agents know")
    >>> _ = await client.memory("space:team").store("releases are on Tuesdays", kind="fact")
    >>> await client.spaces.delete("team")
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, name: str, *, description: str | None = None, labels: Mapping[str, str] | None = None
    ) -> types.Space:
        """Creates a space."""
        body = given(name=name, description=description, labels=dict(labels) if labels else None)
        return await self._transport.send(types.Space, "POST", path("spaces"), body)

    async def get_or_create(self, name: str, *, description: str | None = None) -> types.Space:
        """The space of that name, created if it does not exist."""
        try:
            return await self.create(name, description=description)
        except ConflictError:
            return await self.get(name)

    async def get(self, space: str) -> types.Space:
        """A space, by name or id."""
        return await self._transport.get(types.Space, path("spaces", space))

    async def list(self) -> builtins.list[types.Space]:
        """All spaces."""
        return await self._transport.all(types.Space, path("spaces"))

    async def delete(self, space: str, *, force: bool = False) -> None:
        """Deletes a space with its contents. Refused while a sandbox uses it, unless `force` is set."""
        await self._transport.nothing("DELETE", path("spaces", space), repeat=True, force=force)
