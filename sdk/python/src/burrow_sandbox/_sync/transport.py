# Generated from _async/transport.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Sends requests, and retries those that are safe to retry.

An idempotent request (a read, a create with an `Idempotency-Key`, a change that sets a state) is retried when its connection
breaks, with growing delays, for about nine seconds: long enough for a restart of the daemon. A daemon that was never reachable
is reported immediately.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import httpx

from .._config import connect_hint, find_key, find_url
from .._decode import decode
from .._wire import dump, new_key, query
from ..errors import TRANSIENT_CODES, APIError, BrokenError, BurrowError, ConnectError, api_error
from .socket import Socket

T = TypeVar("T")

RETRIES_MAX = 8
RETRY_PAUSE = 0.1
RETRY_PAUSE_MAX = 2.0
CONNECT_SECONDS = 10.0
# Longer than the daemon takes for any response: after that, it is considered gone.
ANSWER_SECONDS = 600.0
# For a stream that may be silent for hours. TCP keepalive (`KEEPALIVE`) detects a lost peer.
SILENT = httpx.Timeout(None, connect=CONNECT_SECONDS)
PAGE_ITEMS = 1000
LINE_BYTES_MAX = 8 << 20
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30.0)
# Detects a lost peer within a minute.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in KEEPALIVE if hasattr(socket, name)),
]


class Transport:
    """The connection pool for one daemon and one key."""

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
        self._was_reachable = False

    def beside(self, prefix: str, headers: Mapping[str, str]) -> httpx.Client:
        """An HTTP client for paths of the same daemon below `prefix`, with its own connections."""
        return httpx.Client(
            base_url=self.url + prefix,
            transport=httpx.HTTPTransport(
                verify=self._verify, proxy=self._proxy, limits=LIMITS, socket_options=SOCKET_OPTIONS
            ),
            headers=headers,
            timeout=self._timeout,
        )

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()

    def get(self, kind: type[T], path: str, /, **params: Any) -> T:
        """Sends a GET request and decodes the response."""
        return decode(kind, self.json("GET", path, params=params, repeat=True))

    def send(
        self, kind: type[T], method: str, path: str, body: Any = None, /, *, repeat: bool = False, **params: Any
    ) -> T:
        """Sends a request with a JSON body and decodes the response."""
        return decode(kind, self.json(method, path, body=body, params=params, repeat=repeat))

    def create(self, kind: type[T], path: str, body: Any) -> T:
        """Creates a resource exactly once, even if the connection breaks and the request is retried."""
        headers = {"idempotency-key": new_key()}
        return decode(kind, self.json("POST", path, body=body, headers=headers, repeat=True))

    def nothing(self, method: str, path: str, body: Any = None, /, *, repeat: bool = False, **params: Any) -> None:
        """Sends a request whose response has no body."""
        try:
            self._answer(method, path, body=body, params=params, repeat=repeat)
        except _AlreadyDeleted:
            # An earlier attempt has deleted it.
            return

    def json(self, method: str, path: str, **options: Any) -> Any:
        """Sends a request and returns the JSON of the response, not decoded further."""
        response = self._answer(method, path, **options)
        return self._parsed(response)

    def all(self, kind: type[T], path: str, /, **params: Any) -> list[T]:
        """All items of a list, requested page by page."""
        items: list[T] = []
        cursor = None
        while True:
            page = self.json("GET", path, params={**params, "limit": PAGE_ITEMS, "cursor": cursor}, repeat=True)
            items += [decode(kind, item) for item in page["items"]]
            cursor = page.get("next_cursor")
            if not cursor:
                return items

    def upload(
        self,
        method: str,
        path: str,
        content: bytes | Iterable[bytes],
        /,
        *,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
        **params: Any,
    ) -> Any:
        """Uploads bytes. An iterable can be sent only once, so it is not retried."""
        sent = {"content-type": "application/octet-stream", **(headers or {})}
        response = self._answer(
            method,
            path,
            content=content,
            headers=sent,
            params=params,
            repeat=repeat and isinstance(content, bytes),
        )
        return self._parsed(response) if response.content else None

    def read(self, path: str, /, *, headers: Mapping[str, str] | None = None, **params: Any) -> httpx.Response:
        """Sends a GET request and returns the complete response, for its bytes."""
        return self._answer("GET", path, headers=headers, params=params, repeat=True)

    def open(
        self,
        method: str,
        path: str,
        /,
        *,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        silent: bool = False,
        **params: Any,
    ) -> httpx.Response:
        """Opens a streamed response, which must be closed. `silent` disables the timeout between its parts."""
        return self._answer(
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

    def lines(self, response: httpx.Response) -> Iterator[dict[str, Any]]:
        """The lines of a streamed response as JSON. Closes the response at the end."""
        buffer = bytearray()
        try:
            for piece in response.iter_bytes():
                buffer += piece
                while (at := buffer.find(b"\n")) >= 0:
                    line = bytes(buffer[:at])
                    del buffer[: at + 1]
                    if line.strip():
                        yield self._json(line, response)
                if len(buffer) > LINE_BYTES_MAX:
                    raise BurrowError(f"a line of `{response.url.path}` is larger than {LINE_BYTES_MAX} bytes")
            if buffer.strip():
                raise BrokenError(f"the stream of `{response.url.path}` ended in the middle of a line")
        except httpx.TransportError as error:
            raise BrokenError(f"the stream of `{response.url.path}` broke: {error}") from error
        finally:
            response.close()

    def chunks(self, response: httpx.Response) -> Iterator[bytes]:
        """The bytes of a streamed response. Closes the response at the end."""
        try:
            for piece in response.iter_bytes():
                yield piece
        except httpx.TransportError as error:
            raise BrokenError(f"the download of `{response.url.path}` broke: {error}") from error
        finally:
            response.close()

    def websocket(self, path: str, /, **params: Any) -> Socket:
        """Opens a WebSocket, with the same connections, key and errors as other requests."""
        key, headers = Socket.handshake()
        response = self._answer("GET", path, headers=headers, params=params, repeat=True, stream=True)
        return Socket.upgraded(response, key)

    def _answer(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
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
                response = self._http.send(request, stream=stream)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # The request was never sent, so any request can be retried, if the daemon was reachable before.
                again = (broke or self._was_reachable) and isinstance(content, (bytes, type(None)))
                if last or not again:
                    raise self._unreachable(error) from error
            except httpx.ReadTimeout as error:
                raise BrokenError(
                    f"{method} `{path}` was not answered in time", hint="pass a longer `timeout` to the client"
                ) from error
            except httpx.TransportError as error:
                broke = True
                if last or not repeat:
                    raise BrokenError(
                        f"the connection broke during {method} `{path}`: {error}",
                        hint="if the daemon was restarted, try again; otherwise see its log",
                    ) from error
            else:
                self._was_reachable = True
                if response.is_success or response.status_code in (101, 304):
                    return response
                refusal = self._refusal(method, path, response)
                if method == "DELETE" and broke and refusal.code == "not_found":
                    raise _AlreadyDeleted(str(refusal), code=refusal.code)
                if last or not self._should_retry(refusal, repeat, broke):
                    raise refusal
            time.sleep(min(RETRY_PAUSE * 2.0**attempt, RETRY_PAUSE_MAX))
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    def _should_retry(refusal: APIError, repeat: bool, broke: bool) -> bool:
        """Whether a retry can succeed: the daemon was busy, or our own earlier attempt is still in progress."""
        return (repeat and refusal.code == "busy") or (broke and refusal.code == "idempotency_in_flight")

    def _refusal(self, method: str, path: str, response: httpx.Response) -> APIError:
        try:
            text = response.read()
        except httpx.TransportError:
            text = b""
        finally:
            response.close()
        request_id = response.headers.get("x-request-id")
        try:
            detail = json.loads(text)["error"]
            return api_error(detail, status=response.status_code, request_id=request_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = text[:200].decode("utf-8", "replace")
            # The response of a proxy while the daemon behind it restarts.
            code = "busy" if response.status_code in (502, 503, 504) else "not_burrow"
            return APIError(
                f"{method} `{path}` returned status {response.status_code}, but not from a Burrow daemon: `{shown}`",
                code=code,
                status=response.status_code,
                hint="check the address: another server seems to listen there",
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
                f"could not parse the response of `{response.url.path}`",
                hint="this package and the daemon may have different versions: compare with `burrow version`",
            ) from error

    def _unreachable(self, error: Exception) -> ConnectError:
        return ConnectError(
            f"could not reach the daemon at `{self.url}`: {error}", hint=connect_hint(self.url, str(error))
        )


class _AlreadyDeleted(APIError):
    """The resource to delete no longer exists, after an attempt whose response was lost."""


def is_transient(error: BaseException) -> bool:
    """Whether an error may be temporary: a broken connection, a restart of the daemon."""
    if isinstance(error, APIError):
        return error.code in TRANSIENT_CODES
    return isinstance(error, (BrokenError, ConnectError))
