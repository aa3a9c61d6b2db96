"""Fetches another broker's log over the network.

State: none except the connection.
"""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import NamedTuple

from kourou.clock import Clock, SystemClock
from kourou.engine.admin.log_bootstrap import LogBeginning, decode_beginning
from kourou.errors import Code, Corrupt, DecodeError, KourouError, error_from_code
from kourou.model.limits import FETCH_BYTES_MAX, LOG_BEGINNING_BYTES_MAX
from kourou.protocol.messages.replication import (
    FetchLog,
    FetchLogResponse,
    GetLogBeginning,
    GetLogBeginningResponse,
)
from kourou.protocol.request import Request
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.zmq_client import WireReply, ZmqConnection

ASK_TIMEOUT_MS = 10_000
_TRIES = 5
"""Number of attempts to read the pieces of a beginning, which retention may change."""


class FetchedLog(NamedTuple):
    """Bytes of the log from `header.position` on; empty at its end."""

    header: FetchLogResponse
    data: memoryview


class LogSource:
    """One connection to `address` for the log of `group` (a brokerName); the owner closes it."""

    def __init__(
        self,
        address: str,
        group: str,
        clock: Clock | None = None,
        *,
        timeout_ms: int = ASK_TIMEOUT_MS,
        curve: ClientCurve | None = None,
    ) -> None:
        """Must be called on the running loop, as all methods. Raises ConfigError."""
        self.address = address
        self.group = group
        self._timeout_ms = timeout_ms
        self._connection = ZmqConnection(address, clock=clock or SystemClock(), curve=curve)

    async def __aenter__(self) -> LogSource:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def beginning(self) -> tuple[LogBeginning, bytes]:
        """Return the state before the start of that log, decoded and as bytes.

        Raises the broker's error, and Corrupt for an invalid reply.
        """
        for _ in range(_TRIES):
            body = await self._whole()
            if body is not None:
                break
        else:
            raise Corrupt(
                f"the start of the log at {self.address} changed during each attempt to read it"
            )
        try:
            found = decode_beginning(body)
        except DecodeError as error:
            raise Corrupt(f"{self.address}: {error.message}") from error
        if found.broker_name != self.group:
            raise Corrupt(f"{self.address} is {found.broker_name}, not {self.group}")
        return found, body

    async def _whole(self) -> bytes | None:
        """Return all pieces of one beginning; None if it changed in between."""
        pieces = bytearray()
        first: GetLogBeginningResponse | None = None
        while first is None or len(pieces) < first.size:
            reply = await self._ask(GetLogBeginning(group=self.group, from_byte=len(pieces)))
            header = reply.header
            assert isinstance(header, GetLogBeginningResponse), header
            if first is not None and header != first:
                return None
            first = header
            if not 0 < header.size <= LOG_BEGINNING_BYTES_MAX or not any(map(len, reply.body)):
                raise Corrupt(f"{self.address} did not return the start of its log")
            for part in reply.body:
                pieces += part
        if len(pieces) != first.size or zlib.crc32(pieces) != first.crc:
            raise Corrupt(f"the start of the log that {self.address} returned is damaged")
        return bytes(pieces)

    async def fetch(self, position: int, max_bytes: int = FETCH_BYTES_MAX) -> FetchedLog:
        """Fetch the log from `position` on, including damaged regions as such; see FETCH_LOG."""
        reply = await self._ask(
            FetchLog(group=self.group, position=position, max_bytes=max_bytes, damaged=True)
        )
        assert isinstance(reply.header, FetchLogResponse), reply.header
        body = reply.body
        return FetchedLog(reply.header, memoryview(body[0] if len(body) == 1 else b"".join(body)))

    async def _ask(self, request: Request) -> WireReply:
        reply = await self._connection.request(request, timeout_ms=self._timeout_ms)
        if reply.code != Code.SUCCESS:
            raise _with_address(self.address, error_from_code(reply.code, reply.remark))
        return reply


def _with_address(address: str, error: KourouError) -> KourouError:
    """Add the sender's address to the error."""
    error.message = f"{address}: {error.message}"
    error.args = (error.message,)
    return error
