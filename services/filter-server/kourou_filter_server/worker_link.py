"""The connection of the filter server to one worker: sends batches, receives results, has timeouts.

A hostile filter may control the whole worker. So a reply is never decoded, only compared: it must
come after the whole request, have its number, its count and its exact width, and contain only
results. Anything else is a protocol violation and ends the worker, as does a timeout.

State: soft.

Invariants: at most one request is in progress; a failed worker is killed and never used again; the
kill signal goes to a pidfd, so it never reaches another process with a reused pid.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from kourou.errors import FilterFailed, KourouError, Unavailable
from kourou.service.os_processes import cores_named, cores_that_compute
from kourou_filter_server.sandbox import wire
from kourou_filter_server.sandbox.limits import cpu_clock

# -- replies of a worker --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilterResults:
    """A filter's results for a batch.

    `results` has one byte for each record: 0 rejected, 1 passed, 2 not evaluated. `kind` is "" or,
    if there is a 2, "raised" or "memory"; then `failure` is the reason of the first one. `micros`
    is the CPU time that the worker reports, limited to the wall time.
    """

    results: bytes
    failure: str | None
    micros: int
    kind: str = ""


class ProtocolViolation(Exception):
    """The worker violated the protocol."""


class FilterRefused(Exception):
    """The worker reports that it cannot start."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


_SETUP_KINDS = {
    wire.REFUSED: "setup",
    wire.REFUSED_FOR_MEMORY: "memory",
    wire.LAYER_MISSING: "setup",
}


def read_setup(received: bytearray, elapsed_us: int) -> FilterResults | None:
    """Read the reply to a source: an empty result if the filter is ready; None if incomplete.

    Raises FilterRefused if the worker cannot start, and ProtocolViolation.
    """
    if len(received) < wire.SETUP_REPLY.size:
        return None
    if len(received) > wire.SETUP_REPLY.size:
        raise ProtocolViolation("more bytes than a reply has")
    outcome, reason = wire.SETUP_REPLY.unpack(received)
    if outcome == wire.READY:
        return FilterResults(b"", None, 0)
    if outcome not in _SETUP_KINDS:
        raise ProtocolViolation(f"result {outcome} of its set-up")
    raise FilterRefused(_SETUP_KINDS[outcome], _text(reason))


def read_filter_results(
    received: bytearray, number: int, count: int, elapsed_us: int
) -> FilterResults | None:
    """Read the reply to batch `number` of `count` records; None if it is incomplete.

    Raises ProtocolViolation.
    """
    head = wire.REPLY_HEAD.size
    if len(received) < head:
        return None
    batch, result_count, micros, failure = wire.REPLY_HEAD.unpack_from(received)
    if batch != number:
        raise ProtocolViolation(f"batch {batch} instead of {number}")
    if result_count != count:
        raise ProtocolViolation(f"{result_count} results instead of {count}")
    if failure not in _KINDS:
        raise ProtocolViolation(f"failure {failure}")
    end = head + count
    width = end if failure == wire.NO_FAILURE else end + wire.REASON_BYTES
    if len(received) > width:
        raise ProtocolViolation("more bytes than a reply has")
    if len(received) < width:
        return None
    results = bytes(received[head:end])
    if results.translate(None, b"\0\1\2"):
        raise ProtocolViolation("an invalid result")
    if (wire.FAILED in results) is not (failure != wire.NO_FAILURE):
        raise ProtocolViolation("a failure without its message, or a message without a failure")
    reason = None if failure == wire.NO_FAILURE else _text(bytes(received[end:]))
    return FilterResults(results, reason, min(micros, elapsed_us), _KINDS[failure])


_KINDS = {wire.NO_FAILURE: "", wire.RAISED: "raised", wire.OUT_OF_MEMORY: "memory"}


def _text(reason: bytes) -> str:
    """A reason for logs and replies: one line of printable text, whatever the bytes are."""
    said = reason.partition(b"\0")[0].decode("utf-8", "replace")
    line = "".join(char if char.isprintable() else " " for char in said).strip()
    return line or "no reason was given"


# -- the connection -------------------------------------------------------------------------------

_ENDED_S_MAX = 5.0
"""How long to wait for the zygote to report how a worker ended, after a kill or a hang-up."""

_REQUEST_BYTES = wire.REQUEST_HEAD.size + wire.REQUEST_COUNT.size

CLOCK_TICK_US = 10_000
"""The kernel's CPU clock of a worker with a CPU limit may be ahead of its actual work by this much.
The CPU time that a worker reports is accepted within this tolerance.
"""

_STARVED_S = 5.0
"""The extra wall time of a worker that got less CPU time than its deadline: on a busy machine,
where workers have a lower priority, an honest filter must not be blamed.
"""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The filter that runs in a worker."""

    group: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of one worker; times are wall time."""

    memory_bytes: int = 256 * 1024 * 1024
    cpu_allowance_s: int = 10  # beyond its observed work, before the kernel ends it
    start_ms: int = 2_000  # sandbox, compiling and set_up together
    batch_ms: int = 50  # for a batch, in addition to ...
    message_us: int = 1_000  # ... for each message in it
    mib_ms: int = 100  # ... and for each MiB: decompressing and parsing JSON
    niceness: int = 5


DEFAULT_LIMITS = WorkerLimits()


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended: a kind of kourou.model.filter.FilterFailure, and the reason as text."""

    kind: str
    reason: str


NO_FILTERS_FAULT = ""
"""The kind if no filter is to blame: the zygote ended, or the filter server ended the worker."""


@dataclass(slots=True)
class _Flight:
    """One request in progress. `read` gets all bytes received; returns None if more are needed."""

    read: Callable[[bytearray, int], FilterResults | None]
    reply_bytes_max: int
    deadline_s: float
    began_s: float
    cpu_began_s: float
    done: asyncio.Future[FilterResults]
    pending: memoryview
    timer: asyncio.TimerHandle | None = None


class Worker:
    """One sandboxed worker. Created by Zygote.start_worker."""

    def __init__(
        self,
        identity: WorkerIdentity,
        limits: WorkerLimits,
        channel: socket.socket,
        pid: int,
        pidfd: int,
        renew: Callable[[], None],
    ) -> None:
        self.identity = identity
        self.pid = pid
        self._limits = limits
        self._channel = channel
        self._pidfd = pidfd
        self._renew = renew
        self._loop = asyncio.get_running_loop()
        self._how: asyncio.Future[WorkerExit] = self._loop.create_future()
        self._failed: WorkerExit | None = None
        self._closed = False
        self._flight: _Flight | None = None
        self._taken = False
        self._turns: deque[asyncio.Future[None]] = deque()
        self._received = bytearray()
        self._number = 0
        self._worked_s = 0.0
        channel.setblocking(False)
        self._loop.add_reader(channel.fileno(), self._readable)

    @property
    def alive(self) -> bool:
        """Whether it can still be used."""
        return self._failed is None

    async def set_up(self, source: bytes) -> None:
        """Send the source and wait until the filter is ready. Raises FilterFailed, Unavailable."""
        group, name = self.identity.group.encode(), self.identity.name.encode()
        head = wire.SOURCE_HEAD.pack(self.identity.version, len(group), len(name))
        size = len(head) + len(group) + len(name) + len(source)
        frame = b"".join((wire.LENGTH.pack(size), head, group, name, source))
        await self._ask(frame, read_setup, wire.SETUP_REPLY.size, self._limits.start_ms / 1_000)

    async def evaluate(
        self,
        topic: bytes,
        now_ms: int,
        records: Sequence[bytes | memoryview],
        count: int | None = None,
    ) -> FilterResults:
        """Filter records as stored, at most 32 MiB of them. Concurrent calls are queued in order.

        Each of `records` is one record, or a run of whole records; then `count` is their total
        number. A cancelled call lets its batch finish, and the next call waits for it. Raises
        FilterFailed (timeout, died, lied), and Unavailable if the filter is not the cause; then the
        worker is dead.
        """
        count = len(records) if count is None else count
        self._number = (self._number + 1) & 0xFFFF_FFFF
        number = self._number
        size = _REQUEST_BYTES + len(topic) + sum(map(len, records))
        assert size <= wire.REQUEST_BYTES_MAX, f"a batch of {size} bytes"
        head = wire.LENGTH.pack(size) + wire.REQUEST_HEAD.pack(number, now_ms, len(topic))
        # Joined, and so copied: the owner of the records may release them at any time.
        frame = b"".join((head, topic, wire.REQUEST_COUNT.pack(count), *records))
        limits = self._limits
        allowed_ms = limits.batch_ms + limits.message_us * count / 1_000
        allowed_ms += limits.mib_ms * size / 2**20

        def read(received: bytearray, elapsed_us: int) -> FilterResults | None:
            return read_filter_results(received, number, count, elapsed_us)

        widest = wire.REPLY_HEAD.size + count + wire.REASON_BYTES
        return await self._ask(frame, read, widest, allowed_ms / 1_000)

    def kill(self, reason: str = "the filter server ended it") -> None:
        """Kill it now; a pending call raises Unavailable."""
        self._fail(WorkerExit(NO_FILTERS_FAULT, reason))

    async def wait_ended(self) -> str:
        """Wait until its process has ended. Returns the reason."""
        await asyncio.shield(self._how)
        return self._failed.reason if self._failed else self._how.result().reason

    async def close(self) -> None:
        """Kill it and wait until its process has ended."""
        self.kill()
        await self.wait_ended()

    def ended(self, how: WorkerExit) -> None:
        """The zygote reports its end, or the zygote itself has ended."""
        if not self._how.done():
            self._how.set_result(how)
        if self._flight is not None:
            self._readable()  # the worker's last reply may still be unread
        self._fail(how)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    # -- requests -------------------------------------------------------------------------------

    async def _ask(
        self,
        frame: bytes,
        read: Callable[[bytearray, int], FilterResults | None],
        reply_bytes_max: int,
        deadline_s: float,
    ) -> FilterResults:
        await self._take_turn()
        try:
            flight = self._begin(frame, read, reply_bytes_max, deadline_s)
        except BaseException:
            self._pass_turn()
            raise
        return await flight.done

    async def _take_turn(self) -> None:
        if not self._taken:
            self._taken = True
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_turn()  # the turn came, but the caller was cancelled
            raise

    def _pass_turn(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False

    def _begin(
        self,
        frame: bytes,
        read: Callable[[bytearray, int], FilterResults | None],
        reply_bytes_max: int,
        deadline_s: float,
    ) -> _Flight:
        self._readable()  # data before the request is a violation or the end
        if self._failed is not None:
            raise self._failure(self._failed)
        now_s = time.monotonic()  # uvloop's clock has a resolution of 1 ms
        flight = _Flight(
            read,
            reply_bytes_max,
            deadline_s,
            now_s,
            self._cpu_s(),
            self._loop.create_future(),
            memoryview(frame),
        )
        self._flight = flight
        flight.timer = self._loop.call_later(deadline_s, self._late, flight)
        if not self._closed:  # otherwise it fails as soon as the reason is known
            self._send(flight)
        return flight

    def _send(self, flight: _Flight) -> None:
        """Write what the socket accepts; the rest follows when it is writable."""
        try:
            while flight.pending:
                flight.pending = flight.pending[self._channel.send(flight.pending) :]
        except BlockingIOError:
            self._loop.add_writer(self._channel.fileno(), self._writable)
        except OSError:
            self._socket_closed()

    def _writable(self) -> None:
        self._loop.remove_writer(self._channel.fileno())
        if self._flight is not None:
            self._send(self._flight)

    # -- replies --------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._failed is not None or self._closed:
            return
        flight = self._flight
        # One byte more than a valid reply, so that a longer one is detected and never buffered.
        room = 1 if flight is None else flight.reply_bytes_max + 1 - len(self._received)
        try:
            part = self._channel.recv(room)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._socket_closed()
            return
        try:
            if flight is None or flight.pending:
                raise ProtocolViolation("it sent data without a request")
            self._received += part
            elapsed_us = int((time.monotonic() - flight.began_s) * 1e6)
            results = flight.read(self._received, elapsed_us)
        except ProtocolViolation as lie:
            self._fail(WorkerExit("lied", f"the worker broke the protocol: {lie}"))
        except FilterRefused as refused:
            self._fail(WorkerExit(refused.kind, refused.reason))
        else:
            if results is not None:
                self._complete(flight, results)

    def _complete(self, flight: _Flight, results: FilterResults) -> None:
        """Complete the request with a valid reply."""
        self._flight = None
        self._received.clear()
        if flight.timer is not None:
            flight.timer.cancel()
        worked_us = int((self._cpu_s() - flight.cpu_began_s) * 1e6) - CLOCK_TICK_US
        if results.micros < worked_us:
            results = replace(results, micros=worked_us)
        if not flight.done.done():  # otherwise the call was cancelled
            flight.done.set_result(results)
        self._worked_s += time.monotonic() - flight.began_s
        if self._worked_s * 2 >= self._limits.cpu_allowance_s:
            self._worked_s = 0.0
            self._renew()
        self._pass_turn()

    def _late(self, flight: _Flight) -> None:
        """Kill the worker at its deadline, unless other processes kept it from running."""
        if flight is not self._flight:
            return
        self._readable()  # the reply may be unread because this process was slow
        if flight is not self._flight or self._closed:
            return
        wall_s = time.monotonic() - flight.began_s
        worked_s = self._cpu_s() - flight.cpu_began_s
        short_s = flight.deadline_s - worked_s
        if short_s > 0 and wall_s < flight.deadline_s + _STARVED_S:
            flight.timer = self._loop.call_later(max(short_s, 0.001), self._late, flight)
            return
        limit_ms = flight.deadline_s * 1_000
        longer = f", nor in {_STARVED_S:.0f} s more" if short_s > 0 else ""
        reason = f"no reply within {limit_ms:.0f} ms{longer} ({worked_s * 1_000:.0f} ms of work)"
        self._fail(WorkerExit("timeout", reason))

    # -- failure and end ------------------------------------------------------------------------

    def _socket_closed(self) -> None:
        """Handle a closed socket: wait for the zygote to report the reason."""
        self._closed = True
        self._unwatch()
        self._loop.call_later(
            _ENDED_S_MAX, self._fail, WorkerExit("died", "the worker closed the connection")
        )
        self._signal()  # it may have closed its end and continue to run

    def _fail(self, how: WorkerExit) -> None:
        """Mark it as dead and fail the pending request; only the first reason counts."""
        if self._failed is not None:
            return
        self._failed = how
        self._unwatch()
        self._channel.close()
        self._signal()
        flight, self._flight = self._flight, None
        if flight is not None:
            if flight.timer is not None:
                flight.timer.cancel()
            if not flight.done.done():
                flight.done.set_exception(self._failure(how))
            self._pass_turn()  # the next caller gets the error in `_begin`

    def _failure(self, how: WorkerExit) -> KourouError:
        if how.kind == NO_FILTERS_FAULT:
            return Unavailable(how.reason)
        return FilterFailed(how.reason, kind=how.kind, filter_version=self.identity.version)

    def _signal(self) -> None:
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):  # it has ended already
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _unwatch(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())

    def _cpu_s(self) -> float:
        """CPU time that the worker has used; 0 after its end."""
        try:
            return time.clock_gettime(cpu_clock(self.pid))
        except OSError:
            return 0.0


# -- processor cores ------------------------------------------------------------------------------

ALL_CORES = "all"


def cores_of_workers(wanted: str | None, there: Set[int]) -> frozenset[int]:
    """The cores for workers, of those that are `there`; empty if workers may use all.

    By default these are all but the first, if there are at least two. Raises ConfigError if the
    text is not a list of cores or names a core that does not exist.
    """
    if wanted is None:
        return cores_that_compute(there)
    if wanted.strip() == ALL_CORES:
        return frozenset()
    return cores_named("filterWorkerCores", wanted, there, also=f", or {ALL_CORES}")
