# Generated from _async/spaces.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Named memory spaces, which outlive sandboxes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from .. import types
from .._wire import given, path
from ..errors import ConflictError
from .transport import Transport


class Spaces:
    """Memory spaces that several sandboxes can share.

    >>> _ = client.spaces.get_or_create("team", description="what the agents know")
    >>> _ = client.memory("space:team").store("releases are on Tuesdays", kind="fact")
    >>> client.spaces.delete("team")
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, description: str | None = None, labels: Mapping[str, str] | None = None
    ) -> types.Space:
        """Creates a space."""
        body = given(name=name, description=description, labels=dict(labels) if labels else None)
        return self._transport.send(types.Space, "POST", path("spaces"), body)

    def get_or_create(self, name: str, *, description: str | None = None) -> types.Space:
        """The space of that name, created if it does not exist."""
        try:
            return self.create(name, description=description)
        except ConflictError:
            return self.get(name)

    def get(self, space: str) -> types.Space:
        """A space, by name or id."""
        return self._transport.get(types.Space, path("spaces", space))

    def list(self) -> builtins.list[types.Space]:
        """All spaces."""
        return self._transport.all(types.Space, path("spaces"))

    def delete(self, space: str, *, force: bool = False) -> None:
        """Deletes a space with its contents. Refused while a sandbox uses it, unless `force` is set."""
        self._transport.nothing("DELETE", path("spaces", space), repeat=True, force=force)
