"""Virtual time, and connections of a client that end when and as a simulation says."""

from __future__ import annotations

import asyncio
import selectors
from itertools import count

from kourou.errors import KourouError, TimedOut, Unavailable, UnknownOutcome
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import decode_frame, decode_reply, encode_request
from kourou.transport.zmq_client import WireReply

WALL_MS = 1_700_000_000_000
CONNECT_WAIT_S = 3.0


class _NoWait(selectors.SelectSelector):
    """Nothing is ever ready; waiting is what makes time pass."""

    loop: VirtualLoop

    def select(self, timeout=None):
        assert timeout is not None, "everybody waits for ever"
        self.loop.at_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while nothing is to be done. It is a clock as well."""

    def __init__(self) -> None:
        self.at_s = 1_000.0
        selector = _NoWait()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.at_s

    def _write_to_self(self) -> None:
        """One thread: nobody has to be woken."""

    async def passed(self, seconds: float) -> None:
        """Return when so much time has passed; no time of the machine's."""
        over = self.create_future()
        self.call_later(seconds, over.set_result, None)
        await over

    def monotonic_ms(self) -> int:
        return int(self.at_s * 1000)

    def now_ms(self) -> int:
        return WALL_MS + self.monotonic_ms()


class Ends:
    """The two ends of one connection that stands, or stood."""

    def __init__(self, wire: SimWire, peer: int) -> None:
        self.wire, self.peer = wire, peer
        self.open = True
        self.zombies = False
        self.next_in = self.next_out = 0.0


class SimWire:
    """What `Connections` knows of a connection: as kourou.transport.zmq_client.ZmqConnection."""

    def __init__(self, world, address: str, on_notify) -> None:
        self.world, self.address = world, address
        self.on_connected = None
        self.ends: Ends | None = None
        self.closed = False
        self._numbers = count(1)
        self._pending: dict[int, tuple] = {}
        self._waiting: dict[int, tuple] = {}
        self.opening()

    @property
    def connected(self) -> bool:
        return self.ends is not None

    def opening(self) -> None:
        self.world.later(0.001, 0.06, self.open)

    def open(self) -> None:
        if self.closed or self.ends is not None:
            return
        if not self.world.listens(self.address):
            self.opening()
            return
        self.ends = Ends(self, next(self.world.peers))
        for number, (parts, kind, callback, deadline_ms) in list(self._waiting.items()):
            del self._waiting[number]
            self._leave(parts, kind, number, callback, deadline_ms)
        if self.on_connected is not None and self.ends is not None:
            self.on_connected()

    def gather(self) -> None:
        """Each message leaves by itself here."""

    def next_correlation(self) -> int:
        return next(self._numbers)

    def submit(self, parts, correlation, callback, deadline_ms) -> None:
        if self.closed:
            raise Unavailable(f"the connection to {self.address} is closed")
        parts = [bytes(part) for part in parts]
        kind = decode_frame(parts).kind
        if self.ends is None:
            self._waiting[correlation] = (parts, kind, callback, deadline_ms)
            wait_s = min(CONNECT_WAIT_S, deadline_ms / 1000 - self.world.loop.time())
            self.world.loop.call_later(max(wait_s, 0), self._give_up, correlation)
        else:
            self._leave(parts, kind, correlation, callback, deadline_ms)

    def _give_up(self, correlation: int) -> None:
        waiting = self._waiting.pop(correlation, None)
        if waiting is not None and waiting[2] is not None:
            waiting[2](Unavailable(f"{self.address}: no connection"))

    def _leave(self, parts, kind, correlation, callback, deadline_ms) -> None:
        if callback is not None:
            self._pending[correlation] = (callback, deadline_ms)
            left_s = max(deadline_ms / 1000 - self.world.loop.time(), 0)
            self.world.loop.call_later(left_s, self._late, correlation)
        self.world.carry_in(self.ends, decode_frame(parts))

    def _late(self, correlation: int) -> None:
        pending = self._pending.pop(correlation, None)
        if pending is not None:
            pending[0](TimedOut(f"{self.address} did not respond in time"))
            self.cut("a request timed out")

    def answer(self, correlation: int, parts: list) -> None:
        pending = self._pending.pop(correlation, None)
        if pending is not None:
            pending[0](decode_frame(parts))

    def cut(self, why: str) -> None:
        """The connection ends; what is in flight may have been done."""
        ends, self.ends = self.ends, None
        if ends is None:
            return
        ends.open = False
        ends.zombies = self.world.chance.random() < 0.5
        self.world.gone(self.address, ends)
        if not self.closed:
            self.opening()
        pending, self._pending = self._pending, {}
        for callback, _ in pending.values():
            callback(UnknownOutcome(f"{self.address}: {why}"))

    async def request(self, request, *, body=(), timeout_ms, trace=b"") -> WireReply:
        loop = self.world.loop
        number, future = self.next_correlation(), loop.create_future()
        head = encode_request(request, correlation=number, deadline_ms=timeout_ms)

        def ended(outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit([head, *body], number, ended, loop.monotonic_ms() + timeout_ms)
        outcome = await future
        if isinstance(outcome, KourouError):
            raise outcome
        code, remark, header = decode_reply(outcome, REQUESTS[request.code].response)
        return WireReply(code, remark, header, outcome.body)

    def send_parts(self, parts) -> bool:
        return self.ends is not None

    def close(self) -> None:
        self.closed = True
        self.cut("the connection was closed")
