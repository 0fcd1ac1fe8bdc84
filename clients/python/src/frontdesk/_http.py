"""HTTP requests to the server, and to nobody else: no redirects, no proxies, a connection for each.

The standard library's client blocks a thread, which would keep the process from ending while it waits for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import urllib.parse
from collections.abc import AsyncGenerator
from typing import Any, cast

from ._errors import FrontdeskError
from ._wait import within

Json = dict[str, Any]

CONNECT_TIME_S = 10.0
ANSWER_TIME_S = 15.0
LINE_MAX_BYTES = 64 << 10
HEADERS_MAX = 100
ANSWER_MAX_BYTES = 16 << 20
SHOWN_CHARS = 300
READ_BYTES = 64 << 10

# For answers that name no code of their own.
CODES = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "unsupported_op", 409: "conflict",
         410: "gone", 413: "too_large", 415: "unsupported_media_type", 422: "bad_request", 429: "rate_limited",
         501: "unsupported_op", 502: "platform_failed", 503: "unavailable", 504: "timeout"}


def base_url(url: str) -> str:
    """From any form of the server's address."""
    trimmed = url.strip().rstrip("/").removesuffix("/relay")
    for scheme, instead in (("wss://", "https://"), ("ws://", "http://")):
        if trimmed.startswith(scheme):
            trimmed = instead + trimmed[len(scheme):]
    if not trimmed.startswith(("http://", "https://")) or not urllib.parse.urlsplit(trimmed).hostname:
        raise FrontdeskError(f"the URL of the server is not valid: {url!r}", "bad_request")
    return trimmed


def refusal(status: int, body: bytes) -> FrontdeskError:
    """The reason that the server gave, in one of its three forms."""
    text, code = body.decode(errors="replace").strip()[:SHOWN_CHARS], CODES.get(status, "unknown")
    with contextlib.suppress(ValueError, AttributeError, KeyError):
        said: Json = json.loads(body)
        error: Any = said.get("error") or said.get("detail") or text
        text = str(cast(Json, error)["message"] if isinstance(error, dict) else error)
        code = str(said.get("code") or code)
    return FrontdeskError(text or f"the server answered {status}", code, status in (500, 502, 504))


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class Response:
    """An answer whose body has not been read yet."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader) -> None:
        self.status, self._headers, self._reader = status, headers, reader

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if "chunked" in self._headers.get("transfer-encoding", ""):
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                yield await self._reader.readexactly(size)
                await self._reader.readline()
            return
        length = self._headers.get("content-length")
        left = int(length) if length is not None else None
        while left != 0:
            data = await self._reader.read(min(left, READ_BYTES) if left is not None else READ_BYTES)
            if not data:
                if left is not None:
                    raise asyncio.IncompleteReadError(data, left)
                return
            left = left - len(data) if left is not None else None
            yield data

    async def body(self, max_bytes: int) -> bytes:
        found = bytearray()
        async for data in self.chunks():
            found += data
            if len(found) > max_bytes:
                raise FrontdeskError(f"the answer is larger than {max_bytes} bytes", "too_large")
        return bytes(found)


class Http:
    def __init__(self, url: str) -> None:
        self.base = base_url(url)

    @contextlib.asynccontextmanager
    async def open(self, method: str, path: str, bearer: str, body: bytes = b"",
                   headers: dict[str, str] | None = None, head_time_s: float | None = None) -> AsyncGenerator[Response, None]:
        """Errors in between are FrontdeskError: `ambiguous` where the server may have got the request. `head_time_s`: until the
        answer begins."""
        parts = urllib.parse.urlsplit(self.base + path)
        context = _tls() if parts.scheme == "https" else None
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        named = {"Host": parts.netloc.rpartition("@")[2], "Authorization": f"Bearer {bearer}", "Connection": "close",
                 "Content-Length": str(len(body)), **(headers or {})}
        if any(character < " " for text in (target, *named.values()) for character in text):
            raise FrontdeskError("a header or path has a control character", "bad_request")
        dialing = asyncio.open_connection(parts.hostname, parts.port or (443 if context else 80), ssl=context, limit=LINE_MAX_BYTES)
        try:
            reader, writer = await within(CONNECT_TIME_S, dialing)
        except (OSError, asyncio.TimeoutError) as error:
            raise FrontdeskError(f"the server cannot be reached: {error or 'timeout'}", "unavailable") from error
        try:
            head = "".join([f"{method} {target} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in named.items()), "\r\n"])
            writer.write(head.encode() + body)
            await writer.drain()
            try:
                response = await within(head_time_s, self._head(reader))
            except asyncio.TimeoutError:
                if head_time_s is None:
                    raise  # of the connection
                raise FrontdeskError(f"the server did not answer within {head_time_s:g} s", "timeout", method != "GET") from None
            yield response
        except (OSError, EOFError, ValueError) as error:
            may_be = method != "GET"
            raise FrontdeskError(f"the connection to the server was lost: {error}", "unknown" if may_be else "unavailable",
                                 may_be) from error
        finally:
            writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> Response:
        while True:
            words = (await reader.readline()).split()
            if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
                raise ValueError("not an answer in HTTP/1.1")
            headers: dict[str, str] = {}
            while line := (await reader.readline()).strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip().lower()
                if len(headers) > HEADERS_MAX:
                    raise ValueError("too many headers")
            if int(words[1]) >= 200:
                return Response(int(words[1]), headers, reader)

    async def call(self, method: str, path: str, bearer: str, body: bytes = b"", headers: dict[str, str] | None = None,
                   timeout_s: float = ANSWER_TIME_S, max_bytes: int = ANSWER_MAX_BYTES) -> bytes:
        async def answered() -> bytes:
            async with self.open(method, path, bearer, body, headers) as response:
                said = await response.body(max_bytes)
                if not 200 <= response.status < 300:
                    raise refusal(response.status, said)
                return said

        try:
            return await within(timeout_s, answered())
        except asyncio.TimeoutError:
            raise FrontdeskError(f"the server did not answer within {timeout_s:g} s", "timeout", method != "GET") from None

    async def json(self, method: str, path: str, bearer: str, body: Json | None = None, headers: dict[str, str] | None = None,
                   timeout_s: float = ANSWER_TIME_S) -> Json:
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        said = await self.call(method, path, bearer, sent, headers, timeout_s)
        try:
            return cast(Json, json.loads(said or b"{}"))
        except ValueError as error:
            raise FrontdeskError(f"the server sent an invalid answer: {error}", "unknown", method != "GET") from error


def segment(text: str) -> str:
    """One part of a path. `.` and `..` would be steps, however they are encoded."""
    if text in ("", ".", ".."):
        raise FrontdeskError(f"{text!r} cannot be a name", "bad_request")
    return urllib.parse.quote(text, safe="")
