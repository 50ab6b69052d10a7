"""Sends requests, and sends again what may be sent again.

A request that may be repeated safely (a read, a create with an `Idempotency-Key`, a change that says how things shall be) is
repeated when its connection broke, with growing pauses, for about nine seconds: long enough for a daemon that restarts. A
daemon that was never there is reported at once.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx

from .._config import connect_hint, find_key, find_url
from .._decode import decode
from .._wire import dump, new_key, query
from ..errors import TRANSIENT_CODES, APIError, BrokenError, BurrowError, ConnectError, api_error
from .socket import AsyncSocket

T = TypeVar("T")

RETRIES_MAX = 8
RETRY_PAUSE = 0.1
RETRY_PAUSE_MAX = 2.0
CONNECT_SECONDS = 10.0
# Answers that take longer than any the daemon gives mean that nobody is there any more.
ANSWER_SECONDS = 600.0
# Of a stream that may be silent for hours: the system notices when its other end is gone (`KEEPALIVE`).
SILENT = httpx.Timeout(None, connect=CONNECT_SECONDS)
PAGE_ITEMS = 1000
LINE_BYTES_MAX = 8 << 20
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30.0)
# So that it notices within a minute.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in KEEPALIVE if hasattr(socket, name)),
]


class AsyncTransport:
    """One daemon, one key, one pool of connections."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        ca_file: str | None = None,
        timeout: float = ANSWER_SECONDS,
        proxy: str | None = None,
    ) -> None:
        self.url = find_url(url)
        self.api_key = find_key(api_key, self.url)
        self._verify: ssl.SSLContext | bool = False
        if self.url.startswith("https:"):
            self._verify = ssl.create_default_context()
            if ca_file:
                self._verify.load_verify_locations(cafile=ca_file)
        self._proxy = proxy
        self._timeout = httpx.Timeout(timeout, connect=CONNECT_SECONDS, pool=None)
        headers = {"user-agent": "burrow-sdk-python"}
        if self.api_key:
            headers["x-api-key"] = self.api_key
        self._http = self.beside("", headers)
        self._met = False

    def beside(self, prefix: str, headers: Mapping[str, str]) -> httpx.AsyncClient:
        """An HTTP client for addresses of the same daemon, with connections of its own."""
        return httpx.AsyncClient(
            base_url=self.url + prefix,
            transport=httpx.AsyncHTTPTransport(
                verify=self._verify, proxy=self._proxy, limits=LIMITS, socket_options=SOCKET_OPTIONS
            ),
            headers=headers,
            timeout=self._timeout,
        )

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def get(self, kind: type[T], path: str, /, **params: Any) -> T:
        """Reads one thing."""
        return decode(kind, await self.json("GET", path, params=params, repeat=True))

    async def send(
        self, kind: type[T], method: str, path: str, body: Any = None, /, *, repeat: bool = False, **params: Any
    ) -> T:
        """Asks for something with a body of JSON."""
        return decode(kind, await self.json(method, path, body=body, params=params, repeat=repeat))

    async def create(self, kind: type[T], path: str, body: Any) -> T:
        """Makes something once, however often the connection breaks meanwhile."""
        headers = {"idempotency-key": new_key()}
        return decode(kind, await self.json("POST", path, body=body, headers=headers, repeat=True))

    async def nothing(
        self, method: str, path: str, body: Any = None, /, *, repeat: bool = False, **params: Any
    ) -> None:
        """Asks for something that has no answer."""
        try:
            await self._answer(method, path, body=body, params=params, repeat=repeat)
        except _GoneAfterBreak:
            # The first attempt did it.
            return

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """The answer as it is on the wire."""
        response = await self._answer(method, path, **options)
        return self._parsed(response)

    async def all(self, kind: type[T], path: str, /, **params: Any) -> list[T]:
        """Every item of a list, page by page."""
        items: list[T] = []
        cursor = None
        while True:
            page = await self.json("GET", path, params={**params, "limit": PAGE_ITEMS, "cursor": cursor}, repeat=True)
            items += [decode(kind, item) for item in page["items"]]
            cursor = page.get("next_cursor")
            if not cursor:
                return items

    async def upload(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterable[bytes],
        /,
        *,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
        **params: Any,
    ) -> Any:
        """Sends bytes. Those that come in pieces can be sent once only."""
        sent = {"content-type": "application/octet-stream", **(headers or {})}
        response = await self._answer(
            method,
            path,
            content=content,
            headers=sent,
            params=params,
            repeat=repeat and isinstance(content, bytes),
        )
        return self._parsed(response) if response.content else None

    async def read(self, path: str, /, *, headers: Mapping[str, str] | None = None, **params: Any) -> httpx.Response:
        """The whole answer, as bytes."""
        return await self._answer("GET", path, headers=headers, params=params, repeat=True)

    async def open(
        self,
        method: str,
        path: str,
        /,
        *,
        body: Any = None,
        content: bytes | AsyncIterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        silent: bool = False,
        **params: Any,
    ) -> httpx.Response:
        """An answer that comes bit by bit, and must be closed. A `silent` one may say nothing for as long as it likes."""
        return await self._answer(
            method,
            path,
            body=body,
            content=content,
            headers=headers,
            params=params,
            repeat=method == "GET",
            stream=True,
            silent=silent,
        )

    async def lines(self, response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        """The lines of a streamed answer as JSON; closes it at the end."""
        buffer = bytearray()
        try:
            async for piece in response.aiter_bytes():
                buffer += piece
                while (at := buffer.find(b"\n")) >= 0:
                    line = bytes(buffer[:at])
                    del buffer[: at + 1]
                    if line.strip():
                        yield self._json(line, response)
                if len(buffer) > LINE_BYTES_MAX:
                    raise BurrowError(f"a line of `{response.url.path}` is larger than {LINE_BYTES_MAX} bytes")
            if buffer.strip():
                raise BrokenError(f"the stream of `{response.url.path}` ended within a line")
        except httpx.TransportError as error:
            raise BrokenError(f"the stream of `{response.url.path}` broke: {error}") from error
        finally:
            await response.aclose()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The bytes of a streamed answer; closes it at the end."""
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except httpx.TransportError as error:
            raise BrokenError(f"the download of `{response.url.path}` broke: {error}") from error
        finally:
            await response.aclose()

    async def websocket(self, path: str, /, **params: Any) -> AsyncSocket:
        """A WebSocket, through the same connections, key and errors as everything else."""
        key, headers = AsyncSocket.handshake()
        response = await self._answer("GET", path, headers=headers, params=params, repeat=True, stream=True)
        return await AsyncSocket.upgraded(response, key)

    async def _answer(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | AsyncIterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        repeat: bool = False,
        stream: bool = False,
        silent: bool = False,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if body is not None:
            content = dump(body)
            sent["content-type"] = "application/json"
        broke = False
        for attempt in range(RETRIES_MAX + 1):
            last = attempt == RETRIES_MAX
            request = self._http.build_request(
                method,
                self.url + path,
                content=content,
                headers=sent,
                params=query(params or {}),
                timeout=SILENT if silent else self._timeout,
            )
            try:
                response = await self._http.send(request, stream=stream)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # It was never sent, so whatever it is may be sent again, if somebody was there before.
                again = (broke or self._met) and isinstance(content, (bytes, type(None)))
                if last or not again:
                    raise self._unreachable(error) from error
            except httpx.ReadTimeout as error:
                raise BrokenError(
                    f"{method} `{path}` was not answered in time", hint="give the client a longer `timeout`"
                ) from error
            except httpx.TransportError as error:
                broke = True
                if last or not repeat:
                    raise BrokenError(
                        f"the connection broke during {method} `{path}`: {error}",
                        hint="if the daemon was restarted, try again; its log says more",
                    ) from error
            else:
                self._met = True
                if response.is_success or response.status_code in (101, 304):
                    return response
                refusal = await self._refusal(method, path, response)
                if method == "DELETE" and broke and refusal.code == "not_found":
                    raise _GoneAfterBreak(str(refusal), code=refusal.code)
                if last or not self._may_mend(refusal, repeat, broke):
                    raise refusal
            await asyncio.sleep(min(RETRY_PAUSE * 2.0**attempt, RETRY_PAUSE_MAX))
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    def _may_mend(refusal: APIError, repeat: bool, broke: bool) -> bool:
        """Whether asking again is of use: it was refused for want of room, or our own first attempt is under way."""
        return (repeat and refusal.code == "busy") or (broke and refusal.code == "idempotency_in_flight")

    async def _refusal(self, method: str, path: str, response: httpx.Response) -> APIError:
        try:
            text = await response.aread()
        except httpx.TransportError:
            text = b""
        finally:
            await response.aclose()
        request_id = response.headers.get("x-request-id")
        try:
            detail = json.loads(text)["error"]
            return api_error(detail, status=response.status_code, request_id=request_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = text[:200].decode("utf-8", "replace")
            # A proxy in front of a daemon that restarts.
            code = "busy" if response.status_code in (502, 503, 504) else "not_burrow"
            return APIError(
                f"{method} `{path}` was answered with {response.status_code}, and not by a Burrow daemon: `{shown}`",
                code=code,
                status=response.status_code,
                hint="check the address: something else seems to listen there",
                request_id=request_id,
            )

    def _parsed(self, response: httpx.Response) -> Any:
        return self._json(response.content, response)

    @staticmethod
    def _json(text: bytes, response: httpx.Response) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise BurrowError(
                f"could not understand the answer to `{response.url.path}`",
                hint="this package and the daemon may be of different versions: compare with `burrow version`",
            ) from error

    def _unreachable(self, error: Exception) -> ConnectError:
        return ConnectError(
            f"could not reach the daemon at `{self.url}`: {error}", hint=connect_hint(self.url, str(error))
        )


class _GoneAfterBreak(APIError):
    """What was to be deleted is gone, and an attempt whose answer was lost came before."""


def is_transient(error: BaseException) -> bool:
    """A fault that may mend itself: a dropped connection, a restart."""
    if isinstance(error, APIError):
        return error.code in TRANSIENT_CODES
    return isinstance(error, (BrokenError, ConnectError))
