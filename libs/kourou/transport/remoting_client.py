"""One TCP connection to a server that speaks the RocketMQ remoting protocol.

Outcomes are those of kourou.transport.zmq_client: a request that was not sent ends as Unavailable;
one that was sent and got no reply ends as TimedOut or UnknownOutcome. A lost connection is opened
again by the next request.

State: soft. All calls must be made on the loop on which it was created.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import count

from kourou.errors import DecodeError, KourouError, TimedOut, Unavailable, UnknownOutcome
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import decode_response_fields, encode_ext_fields
from kourou.protocol.wire.remoting import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FrameReader,
    HeaderType,
    Language,
    RemotingCommand,
    encode_head,
)
from kourou.transport.addresses import split_address
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmq_client import WireReply

READ_BYTES = 65_536
CONNECT_WAIT_MS = 3_000
_OPAQUE_MASK = 0x7FFFFFFF


class RemotingConnection:
    """A connection to `address` (`host:port`), opened when it is first needed.

    `on_request` receives the server's own requests; `answer` sends replies to them.
    """

    def __init__(
        self,
        address: str,
        *,
        on_request: Callable[[RemotingCommand], None] | None = None,
        connect_wait_ms: int = CONNECT_WAIT_MS,
        header_type: HeaderType = HeaderType.JSON,
        language: Language = Language.PYTHON,
    ) -> None:
        self.address = address
        self._host, self._port = split_address(address)
        self._on_request = on_request
        self._connect_wait_s = connect_wait_ms / 1_000
        self._header_type = header_type
        self._language = language
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._dialling = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        """Is the connection open, as far as is known?"""
        return self._writer is not None

    async def request(
        self, request: Request, *, body: Sequence[Buffer] = (), timeout_ms: int
    ) -> WireReply:
        """Send a request and wait for its reply.

        Raises Unavailable, TimedOut, UnknownOutcome or DecodeError. A reply with an error code is
        returned, not raised; its header fields may be missing.
        """
        spec = REQUESTS[request.code]
        command = self._command(
            request.code, encode_ext_fields(request, short_names=spec.short_names)
        )
        answer = await self.exchange(command, body, timeout_ms=timeout_ms)
        header = None
        if spec.response is not None and (answer.code == 0 or answer.ext_fields):
            try:
                header = decode_response_fields(answer.ext_fields, spec.response)
            except DecodeError:
                if answer.code == 0:
                    raise
        parts: list[Buffer] = [answer.body] if answer.body else []
        return WireReply(answer.code, answer.remark or "", header, parts)

    async def exchange(
        self, command: RemotingCommand, body: Sequence[Buffer] = (), *, timeout_ms: int
    ) -> RemotingCommand:
        """Send a command under a new opaque number, otherwise unchanged; return its response."""
        number = next(self._numbers) & _OPAQUE_MASK
        command.opaque = number
        writer = await self._dial(timeout_ms)
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._write(writer, command, body)
            async with asyncio.timeout(timeout_ms / 1_000):
                return await future
        except TimeoutError as error:
            raise TimedOut(f"{self.address} did not respond in time") from error
        finally:
            self._waiting.pop(number, None)

    async def oneway(self, request: Request, *, body: Sequence[Buffer] = ()) -> None:
        """Send without waiting for a reply. Raises Unavailable if it cannot connect."""
        short_names = REQUESTS[request.code].short_names
        command = self._command(request.code, encode_ext_fields(request, short_names=short_names))
        command.flag = FLAG_ONEWAY
        command.opaque = next(self._numbers) & _OPAQUE_MASK
        self._write(await self._dial(self._connect_wait_s * 1_000), command, body)

    def answer(self, asked: RemotingCommand, answer: RemotingCommand) -> None:
        """Reply to a request of the server; does nothing if the connection is gone."""
        answer.opaque, answer.flag = asked.opaque, FLAG_RESPONSE
        if self._writer is not None:
            self._write(self._writer, answer, ())

    def close(self) -> None:
        """Close it; requests in flight end as UnknownOutcome."""
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
        self._lose("the connection was closed")

    def _command(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        return RemotingCommand(
            code, self._language, ext_fields=fields, header_type=self._header_type
        )

    async def _dial(self, timeout_ms: float) -> asyncio.StreamWriter:
        async with self._dialling:
            if self._closed:
                raise Unavailable(f"the connection to {self.address} is closed")
            if self._writer is None:
                wait_s = min(self._connect_wait_s, timeout_ms / 1_000)
                try:
                    async with asyncio.timeout(wait_s):
                        reader, self._writer = await asyncio.open_connection(self._host, self._port)
                except (OSError, TimeoutError) as error:
                    why = str(error) or "no connection in time"
                    raise Unavailable(f"cannot reach {self.address}", hint=why) from error
                self._reading = asyncio.create_task(self._read(reader))
            return self._writer

    @staticmethod
    def _write(
        writer: asyncio.StreamWriter, command: RemotingCommand, body: Sequence[Buffer]
    ) -> None:
        parts = list(body) or [command.body]
        writer.writelines([encode_head(command, sum(map(len, parts))), *parts])

    async def _read(self, reader: asyncio.StreamReader) -> None:
        cutter = FrameReader()
        reason = "the connection was lost"
        try:
            while data := await reader.read(READ_BYTES):
                for command in cutter.feed(data):
                    self._take(command)
                if cutter.error is not None:
                    raise cutter.error
        except OSError as error:
            reason = f"the connection was lost: {error}"
        except KourouError as error:
            reason = f"it sent an invalid frame: {error}"
        self._lose(reason)

    def _take(self, command: RemotingCommand) -> None:
        if not command.is_response:
            if self._on_request is not None:
                self._on_request(command)
            return
        future = self._waiting.get(command.opaque)
        if future is not None and not future.done():
            future.set_result(command)

    def _lose(self, reason: str) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed, and so is the socket
                writer.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(UnknownOutcome(f"{self.address}: {reason}"))
