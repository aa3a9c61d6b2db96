"""The common part of all drivers of a comparison: arguments, commands, timers, JSON lines.

A driver is a process. It takes key=value arguments (`DriverOptions`), prepares one workload and
prints `ready`. Each line `measure SECONDS` on its standard input then runs the workload once and
prints one JSON line (`Outcome`). The driver exits at the end of its input. The same connections,
and the same JVM, are thus warmed up and measured repeatedly. benchmarks/java contains a driver in
Java.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kourou.errors import ConfigError, Unavailable
from kourou.service.lifecycle import new_event_loop

BODIES = 64
"""The number of different bodies; they are used in turn."""

READY_LINE = "ready"
COMMAND = "measure"

FIRST_RETRY_S = 0.005
STUCK_AFTER_S = 60.0
LOST_AFTER_S = 1.0
NS_IN_S = 1_000_000_000
NS_IN_MS = 1_000_000

Send = Callable[[int], Awaitable[object]]
"""Send the message, or the batch that starts with the message, of this number."""


class Outcome(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The result of a driver's measurement, with the message counts that make it valid.

    The timer ran for `seconds`, during which `messages` messages were processed. `sent` counts the
    messages that were acknowledged to the driver, `stored` those that the server reports, and
    `handed` those that consumers received (None if the workload does not consume). `due` is the
    number that consumers had to receive; None means as many as were sent.
    """

    work: str
    values: dict[str, float]
    sent: int
    stored: int
    messages: int = 0
    seconds: float = 0.0
    handed: int | None = None
    due: int | None = None

    def check(self) -> None:
        """Raises Unavailable unless all sent messages are stored and all due ones were received."""
        if self.stored != self.sent:
            raise Unavailable(f"{self.stored:,} messages are stored, {self.sent:,} were sent")
        if self.handed is None:
            return
        if self.due is not None and self.handed != self.due:
            raise Unavailable(f"{self.handed:,} messages were handed out, {self.due:,} were due")
        if self.due is None and self.handed != self.sent:
            raise Unavailable(f"{self.handed:,} messages were handed out, {self.sent:,} were sent")


class DriverOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a driver; each workload uses some of them."""

    address: str
    work: str
    size: int = 1_024
    in_flight: int = 1
    batch: int = 1
    queues: int = 4
    topics: int = 1
    messages: int = 0
    handler: str = "message"
    backlog: int = 0
    delay_level: int = 0
    pace: int = 0

    def as_arguments(self) -> list[str]:
        """These options as command line arguments."""
        return [f"{name}={value}" for name, value in msgspec.structs.asdict(self).items()]

    def bodies(self) -> list[bytes]:
        """Random bodies of the configured size."""
        return [os.urandom(self.size) for _ in range(BODIES)]


def read_options(arguments: Sequence[str]) -> DriverOptions:
    """Parse the arguments that `as_arguments` made; raises ConfigError for anything else."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    try:
        return msgspec.convert(given, DriverOptions, strict=False)
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"a driver's arguments are wrong: {wrong}") from wrong


def read_outcome(line: str) -> Outcome:
    """Parse a line of a driver's output; raises Unavailable if it is not an outcome."""
    try:
        return msgspec.json.decode(line, type=Outcome)
    except (msgspec.ValidationError, msgspec.DecodeError) as wrong:
        raise Unavailable(f"a driver printed {line[:200]!r}") from wrong


def outcome_line(outcome: Outcome) -> str:
    """The line that `read_outcome` parses."""
    return msgspec.json.encode(outcome).decode()


# -- commands -------------------------------------------------------------------------------------
Measure = Callable[[float], Awaitable[Outcome]]
"""Run the workload once: for a number of seconds, or for a fixed number of messages."""

Prepare = Callable[[DriverOptions], AbstractAsyncContextManager[Measure]]
"""Connect, create topics, store a backlog; the context manager releases the resources."""


def run_driver(arguments: Sequence[str], works: Mapping[str, Prepare]) -> int:
    """The main function of a driver; returns its exit code."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(drive(read_options(arguments), works))
    return 0


async def drive(options: DriverOptions, works: Mapping[str, Prepare]) -> None:
    """Prepare the requested workload, and run it for each command on the standard input."""
    if options.work not in works:
        raise ConfigError(f"work={options.work} is none of {', '.join(works)}")
    async with works[options.work](options) as measure:
        print(READY_LINE, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, _, seconds = line.strip().partition(" ")
            if command != COMMAND:
                raise ConfigError(f"{line.strip()!r} is not `{COMMAND} SECONDS`")
            print(outcome_line(await measure(float(seconds))), flush=True)


# -- sending --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Flood:
    """Acknowledged messages, the total time, and the time of each send."""

    messages: int
    in_all_ns: int
    took_ns: list[int] = field(repr=False)

    def values(self) -> dict[str, float]:
        """Rate and latency."""
        return {"rate": self.messages / (self.in_all_ns / NS_IN_S), **spread(self.took_ns)}


async def flood(send: Send, *, in_flight: int, batch: int, seconds: float) -> Flood:
    """Keep `in_flight` sends in flight for `seconds`; those in flight at the end still count."""
    took_ns: list[int] = []
    clock = time.perf_counter_ns
    sent = 0
    began_ns = clock()
    until_ns = began_ns + int(seconds * NS_IN_S)

    async def one_after_the_other() -> None:
        nonlocal sent
        while (sent_ns := clock()) < until_ns:
            number = sent
            sent += batch
            await send(number)
            took_ns.append(clock() - sent_ns)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_the_other())
    return Flood(sent, clock() - began_ns, took_ns)


def flooding(options: DriverOptions, send: Send, stored: Callable[[], Awaitable[int]]) -> Measure:
    """The workload `send`, and others that send for a time: send, then count."""

    async def measure(seconds: float) -> Outcome:
        before = await stored()
        done = await flood(send, in_flight=options.in_flight, batch=options.batch, seconds=seconds)
        return Outcome(
            work=options.work,
            values=done.values(),
            sent=done.messages,
            stored=await stored() - before,
            messages=done.messages,
            seconds=done.in_all_ns / NS_IN_S,
        )

    return measure


async def first_send(attempt: Callable[[], Awaitable[object]], *errors: type[Exception]) -> Outcome:
    """Retry a send until it succeeds; returns the time on the clock that all processes share."""
    while True:
        try:
            await attempt()
        except errors:
            await asyncio.sleep(FIRST_RETRY_S)
        else:
            values = {"acked_at_ns": float(time.monotonic_ns())}
            return Outcome(work="first-send", values=values, sent=1, stored=1)


# -- consuming ------------------------------------------------------------------------------------
class Drain:
    """Counts the messages that handlers receive, on the event loop that waits for them.

    State: soft.
    """

    def __init__(self, goal: int, size: int) -> None:
        self.goal = goal
        self.handed = 0
        self.complaint = ""
        self._size = size
        self._bytes = 0
        self._first_ns = 0
        self._last_ns = 0
        self._next: dict[tuple[str, int], int] = {}
        self._done = asyncio.Event()

    def take_next(self, queue: tuple[str, int], offset: int, body: Any) -> None:
        """Count one message, which must directly follow the last one of its queue."""
        expected = self._next.get(queue, 0)
        if offset != expected:
            self.complaint = f"offset {offset} of {queue} came instead of {expected}"
        self._next[queue] = offset + 1
        self.take_one(body)

    def take(self, bodies: Sequence[Any]) -> None:
        """Count messages by their bodies."""
        for body in bodies:
            self._bytes += len(body)
        self._count(len(bodies))

    def take_one(self, body: Any) -> None:
        """Count one message by its body."""
        self._bytes += len(body)
        self._count(1)

    def _count(self, count: int) -> None:
        if not self.handed:
            self._first_ns = time.perf_counter_ns()
        self.handed += count
        if self.handed >= self.goal:
            self._last_ns = time.perf_counter_ns()
            self._done.set()

    async def wait(self) -> None:
        """Wait until all messages have arrived; raises Unavailable if none arrives for long."""
        seen = -1
        while not self._done.is_set():
            if seen == self.handed:
                raise Unavailable(f"only {seen:,} of {self.goal:,} messages came")
            seen = self.handed
            try:
                async with asyncio.timeout(STUCK_AFTER_S):
                    await self._done.wait()
            except TimeoutError:
                continue  # slow is not stuck: check whether any message has arrived
        if self._bytes < self.goal * self._size:
            raise Unavailable(f"bodies are too short: {self._bytes:,} bytes came")
        if self.complaint:
            raise Unavailable(self.complaint)

    @property
    def seconds(self) -> float:
        """Time from the first message to the last."""
        return (self._last_ns - self._first_ns) / NS_IN_S

    def outcome(self, stored: int) -> Outcome:
        """The outcome of the workload `consume`."""
        return Outcome(
            work="consume",
            values={"rate": self.goal / self.seconds},
            sent=self.goal,
            stored=stored,
            handed=self.handed,
            messages=self.goal,
            seconds=self.seconds,
        )


# -- end to end -----------------------------------------------------------------------------------
class Pings:
    """Sends one message at a time and measures from the call of `send` to the call of the handler.

    Bodies begin with the number of the message, so that a late one is not taken for another.

    State: soft.
    """

    def __init__(self, options: DriverOptions, send: Callable[[bytes], Awaitable[object]]) -> None:
        self._options = options
        self._send = send
        self._padding = os.urandom(max(0, options.size - 16))
        self._arrived: asyncio.Queue[int] = asyncio.Queue()
        self._sent = 0

    def arrive(self, body: Any) -> None:
        """Called by a handler with the body of a message."""
        self._arrived.put_nowait(int(bytes(body[:16]), 16))

    async def listening(self) -> None:
        """Wait until the consumer has its queues: several messages in a row must arrive."""
        in_a_row = 0
        while in_a_row < 4 * self._options.queues:
            in_a_row = in_a_row + 1 if await self._once(LOST_AFTER_S) is not None else 0

    def measuring(self, stored: Callable[[], Awaitable[int]]) -> Measure:
        """The workload `latency`."""

        async def measure(seconds: float) -> Outcome:
            clock = time.perf_counter_ns
            before, sent = await stored(), self._sent
            took_ns: list[int] = []
            began_ns = clock()
            until_ns = began_ns + int(seconds * NS_IN_S)
            while clock() < until_ns:
                one = await self._once(STUCK_AFTER_S)
                if one is None:
                    raise Unavailable("a message did not arrive")
                took_ns.append(one)
            return Outcome(
                work="latency",
                values=spread(took_ns),
                sent=self._sent - sent,
                stored=await stored() - before,
                messages=self._sent - sent,
                seconds=(clock() - began_ns) / NS_IN_S,
            )

        return measure

    async def _once(self, timeout_s: float) -> int | None:
        number = self._sent
        self._sent += 1
        body = b"%016x" % number + self._padding
        began_ns = time.perf_counter_ns()
        await self._send(body)
        try:
            async with asyncio.timeout(timeout_s):
                while await self._arrived.get() != number:
                    continue
        except TimeoutError:
            return None
        return time.perf_counter_ns() - began_ns


def spread(took_ns: Sequence[int]) -> dict[str, float]:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(took_ns)
    last = len(ordered) - 1
    return {
        name: ordered[min(last, int(share * len(ordered)))] / NS_IN_MS
        for share, name in ((0.5, "p50_ms"), (0.99, "p99_ms"))
    }
