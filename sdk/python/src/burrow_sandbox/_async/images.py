"""Images, from which sandboxes are created."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from .. import params, types
from .._decode import decode, decode_union
from .._shims import async_called
from .._wire import path
from ..errors import BrokenError, api_error
from .transport import AsyncTransport


class AsyncImages:
    """The images of a daemon.

    >>> [image.name for image in await client.images.list(name="debian")]
    ['debian']
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, name: str | None = None) -> builtins.list[types.Image]:
        """All images, or those with a name."""
        return await self._transport.all(types.Image, path("images"), name=name)

    async def get(self, image: str) -> types.ImageDetail:
        """The details of an image, by name or id."""
        return await self._transport.get(types.ImageDetail, path("images", image))

    async def pull(
        self,
        reference: str,
        *,
        name: str | None = None,
        on_progress: Callable[[types.BuildProgress], object] | None = None,
    ) -> types.Image:
        """Pulls an image from an OCI registry."""
        request: params.BuildImage = {"from": "pull", "reference": reference, "name": name}
        return await self.build(request, on_progress=on_progress)

    async def build(
        self,
        request: params.BuildImage,
        *,
        on_progress: Callable[[types.BuildProgress], object] | None = None,
    ) -> types.Image:
        """Builds an image from packages, a recipe or a sandbox, or pulls one: see `burrow_sandbox.params.BuildImage`."""
        body = {key: value for key, value in request.items() if value is not None}
        response = await self._transport.open("POST", path("images"), body=body)
        async for line in self._transport.lines(response):
            if line["kind"] == "error":
                raise api_error(line["error"])
            if line["kind"] == "done":
                return decode(types.Image, line["image"])
            progress = decode_union("BuildProgress", line)
            if on_progress is not None and progress is not None:
                await async_called(on_progress, progress)
        raise BrokenError("the stream of the build ended without a result")

    async def delete(self, image: str) -> None:
        """Deletes an image that is not in use."""
        await self._transport.nothing("DELETE", path("images", image), repeat=True)
