"""Reads and decompresses request bodies with limits for size, time and memory.

A body is rejected by its Content-Length before any of it is read. A body without a length, or a
compressed one, is rejected as soon as it is too large. All bodies in progress share a memory
budget. Large bodies are processed one at a time, one in each iteration of the event loop, so that a
hundred of them do not delay other requests.

State: soft.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Self

from aiohttp import web

from kourou.errors import BadRequest
from kourou.model.limits import GATEWAY_BODIES_BYTES_MAX, GATEWAY_BODY_S_MAX
from kourou_console.problems import Busy, Refused

SMALL_BYTES = 1 << 16
"""Bodies up to this size are decoded immediately, because it takes no noticeable time."""

_STEP_BYTES = 1 << 18
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Bodies:
    """The memory budget of all bodies, and the queue for large ones."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._turn = asyncio.Lock()

    def of(self, request: web.BaseRequest, bytes_max: int) -> IncomingBody:
        """The body of a request, to be read within a `with` block. Raises Refused or Busy."""
        length = request.content_length
        if length is not None and length > bytes_max:
            raise _too_large(bytes_max)
        if not request.body_exists:
            return IncomingBody(self, request, bytes_max, 0, "")
        reserved = bytes_max if length is None else length
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in _WINDOWS and encoding not in ("", "identity"):
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding {encoding[:40]!r} is not supported",
                hint="gzip, deflate, or none",
            )
        if encoding in _WINDOWS:
            reserved += bytes_max
        if self.held_bytes + reserved > GATEWAY_BODIES_BYTES_MAX:
            raise Busy(
                f"request bodies of {self.held_bytes} bytes are in progress, the maximum",
                hint="retry in a moment",
            )
        return IncomingBody(self, request, bytes_max, reserved, encoding)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn to process more than SMALL_BYTES, or what may become more."""
        async with self._turn:
            await asyncio.sleep(0)  # let others run between two large pieces
            yield


class IncomingBody:
    """One body; it holds `reserved` bytes of the budget within its block."""

    __slots__ = ("_bodies", "_bytes_max", "_encoding", "_request", "_reserved")

    def __init__(
        self,
        bodies: Bodies,
        request: web.BaseRequest,
        bytes_max: int,
        reserved: int,
        encoding: str,
    ) -> None:
        self._bodies = bodies
        self._request = request
        self._bytes_max = bytes_max
        self._reserved = reserved
        self._encoding = encoding

    def __enter__(self) -> Self:
        self._bodies.held_bytes += self._reserved
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.held_bytes -= self._reserved

    async def read(self) -> bytes:
        """The whole decompressed body. Raises Refused or BadRequest."""
        if not self._request.body_exists:
            return b""
        content = await _received(self._request, self._bytes_max)
        if self._encoding in _WINDOWS:
            async with self._bodies.turn():
                content = await _decompressed(content, self._encoding, self._bytes_max)
        return content


async def _received(request: web.BaseRequest, bytes_max: int) -> bytes:
    stream = request.content
    if stream.is_eof():  # it arrived with the header: no waiting
        content: bytes = stream.read_nowait(-1)
        if len(content) > bytes_max:
            raise _too_large(bytes_max)
        return content
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # 100 Continue is not part of the response
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(GATEWAY_BODY_S_MAX):
            while chunk := await stream.readany():
                size += len(chunk)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                parts.append(chunk)
    except TimeoutError:
        raise Refused(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body was not complete within {GATEWAY_BODY_S_MAX:g} s",
        ) from None
    except web.RequestPayloadError as error:
        raise BadRequest(f"the body is incomplete: {error}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _decompressed(content: bytes, encoding: str, bytes_max: int) -> bytes:
    """Decompress in steps, up to the limit."""
    inflate = zlib.decompressobj(_WINDOWS[encoding])
    parts: list[bytes] = []
    size = 0
    rest = content
    try:
        while rest and not inflate.eof:
            part = inflate.decompress(rest, _STEP_BYTES)
            rest = inflate.unconsumed_tail
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max, "decompressed ")
            parts.append(part)
            await asyncio.sleep(0)
        if not inflate.eof:
            raise BadRequest(f"the {encoding} body ends too early")
    except zlib.error as error:
        raise BadRequest(f"the body is not {encoding}: {error}") from None
    return b"".join(parts)


def _too_large(bytes_max: int, how: str = "") -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the {how}body is larger than the {bytes_max} bytes that are allowed",
        hint="send a smaller body; messages can be split over several requests",
    )
