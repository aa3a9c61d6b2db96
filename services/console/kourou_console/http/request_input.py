"""Reads a request's input: its body with limits, then parameters and JSON as Structs.

Errors name the invalid parameter or field. A body is rejected by its Content-Length before any of
it is read. A body without a length, or a compressed one, is rejected as soon as it is too large.
All bodies in progress share a memory budget. Large bodies are processed one at a time, one in each
iteration of the event loop, so that a hundred of them do not delay other requests.

State: soft, the memory budget.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import web
from msgspec import inspect

from kourou.errors import BadRequest
from kourou.model.limits import (
    GATEWAY_BODIES_BYTES_MAX,
    GATEWAY_BODY_S_MAX,
    GATEWAY_QUERY_FIELDS_MAX,
)
from kourou_console.http.responses import Busy, HttpError
from kourou_console.operation import Operation

_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
SEE_DOCS = "/docs shows the fields of every request"
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


def path_names(path: str) -> tuple[str, ...]:
    """The names in braces, in order."""
    return tuple(re.findall(r"\{(\w+)\}", path))


def decoded(text: str) -> str:
    """Decode a percent-encoded part of a path. Raises BadRequest if it is invalid."""
    if "%" not in text:
        return text
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{text[:100]!r} in the path is not UTF-8 when decoded") from error
    return found


def query_pairs(raw: str) -> list[tuple[str, str]]:
    """The query's names and values in order. Raises BadRequest."""
    if not raw:
        return []
    try:
        return parse_qsl(
            raw, keep_blank_values=True, errors="strict", max_num_fields=GATEWAY_QUERY_FIELDS_MAX
        )
    except UnicodeDecodeError as error:
        raise BadRequest("the query is not UTF-8 when decoded") from error
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from error


class Reader:
    """Parses the input of one operation."""

    def __init__(self, operation: Operation) -> None:
        self._type = operation.parameters
        self._in_path = path_names(operation.path)
        known = {field.encode_name: field for field in msgspec.structs.fields(operation.parameters)}
        missing = set(self._in_path) - set(known)
        assert not missing, f"{operation.name}: {missing} of the path are not parameters"
        self.query_names = tuple(name for name in known if name not in self._in_path)
        self._lists = {name for name, field in known.items() if is_list(field.type)}
        self._decoder: Callable[[bytes], Any] | None = (
            None if operation.body is None else msgspec.json.Decoder(operation.body).decode
        )

    def parameters(self, in_path: Sequence[str], query: Sequence[tuple[str, str]]) -> Any:
        """The Struct of path and query. Raises BadRequest, which names the parameter."""
        values: dict[str, Any] = dict(zip(self._in_path, in_path, strict=True))
        for name, value in query:
            if name not in self.query_names:
                raise BadRequest(f"unknown parameter {name[:64]!r}", hint=self._known(name))
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise BadRequest(f"the parameter {name} is given more than once")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, self._type, strict=False)
        except msgspec.ValidationError as error:
            raise _named(str(error), "the parameter", values) from None

    def _known(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.query_names, n=1)
        if near:
            return f"did you mean {near[0]}?"
        return (
            (f"known: {', '.join(self.query_names)}")
            if self.query_names
            else "it takes no parameters"
        )

    def body(self, content: bytes) -> Any:
        """The value of a JSON body. Raises BadRequest, which names the field."""
        assert self._decoder is not None, "asked only where there is a body"
        return decoded_json(self._decoder, content)


def decoded_json(decode: Callable[[bytes], Any], content: bytes) -> Any:
    """Decode JSON. Raises BadRequest, which names the field."""
    try:
        return decode(content)
    except msgspec.ValidationError as error:
        raise _named(str(error), "the field", {}) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def is_list(kind: Any) -> bool:
    """Whether a parameter of this type may be repeated."""
    found = inspect.type_info(kind)
    if isinstance(found, inspect.UnionType):
        return any(isinstance(one, _LISTS) for one in found.types)
    return isinstance(found, _LISTS)


def _named(text: str, what: str, values: Mapping[str, Any]) -> BadRequest:
    """msgspec's error message, with the name first."""
    if missing := _MISSING.search(text):
        return BadRequest(f"{what} {_within(text)}{missing[1]} is missing", hint=SEE_DOCS)
    if unknown := _UNKNOWN.search(text):
        return BadRequest(f"unknown field {_within(text)}{unknown[1][:64]}", hint=SEE_DOCS)
    found = _AT.search(text)
    if found is None or not found[1]:
        return BadRequest(f"the body is refused: {text}")
    name = found[1]
    said = text[: found.start()].replace("`", "")
    given = f" is {values[name]!r:.100}" if name in values else ""
    return BadRequest(f"{what} {name}{given}: {said[:1].lower()}{said[1:]}")


def _within(text: str) -> str:
    found = _AT.search(text)
    return f"{found[1]}." if found is not None and found[1] else ""


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
        """The body of a request, to be read within a `with` block. Raises HttpError or Busy."""
        length = request.content_length
        if length is not None and length > bytes_max:
            raise _too_large(bytes_max)
        if not request.body_exists:
            return IncomingBody(self, request, bytes_max, 0, "")
        reserved = bytes_max if length is None else length
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in _WINDOWS and encoding not in ("", "identity"):
            raise HttpError(
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
        """The whole decompressed body. Raises HttpError or BadRequest."""
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
        raise HttpError(
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


def _too_large(bytes_max: int, how: str = "") -> HttpError:
    return HttpError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the {how}body is larger than the {bytes_max} bytes that are allowed",
        hint="send a smaller body; messages can be split over several requests",
    )
