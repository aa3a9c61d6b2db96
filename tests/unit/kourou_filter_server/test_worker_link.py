"""One worker seen from the filter server; the test plays the worker, and lies as it likes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kourou.errors import FilterFailed, Unavailable
from kourou_filter_server.worker_link import (
    NO_FILTERS_FAULT,
    FilterResults,
    Worker,
    WorkerExit,
    WorkerIdentity,
    WorkerLimits,
)

PATIENT = WorkerLimits(start_ms=60_000, batch_ms=60_000)
HASTY = WorkerLimits(start_ms=1, batch_ms=1, message_us=0)
WHO = WorkerIdentity("G", "late", 4)


class Played:
    """A worker whose bytes the test writes; its process is a child that only waits."""

    def __init__(self, limits: WorkerLimits) -> None:
        ours, self.channel = socket.socketpair()
        self.channel.setblocking(False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                while True:
                    signal.pause()
            finally:
                os._exit(0)
        self.renewed = 0
        self.worker = Worker(WHO, limits, ours, self.pid, os.pidfd_open(self.pid), self.renew)
        self.reaped = False

    def renew(self) -> None:
        self.renewed += 1

    async def heard(self) -> bytes:
        """One frame of the filter server's, without its length."""
        (size,) = struct.unpack("<I", await self._exactly(4))
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < size:
            part = await loop.sock_recv(self.channel, size - len(data))
            assert part, "the filter server hung up"
            data += part
        return data

    def says(self, reply: bytes) -> None:
        self.channel.send(reply)

    def bury(self, kind: str = "died", reason: str = "the worker was killed by SIGKILL") -> None:
        """What the zygote does when a worker has ended."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.reaped = True
        self.worker.ended(WorkerExit(kind, reason))

    def dead(self) -> bool:
        """Waits until its process has ended."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return True

    def killed(self) -> bool:
        """Whether the filter server has killed it; waits for it."""
        _, status = os.waitpid(self.pid, 0)
        self.reaped = True
        self.worker.ended(WorkerExit("died", "the worker was killed by SIGKILL"))
        return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.fixture
async def play() -> AsyncIterator:
    made: list[Played] = []

    def begin(limits: WorkerLimits = PATIENT) -> Played:
        made.append(Played(limits))
        return made[-1]

    yield begin
    for played in made:
        if not played.reaped:
            played.bury()
        played.channel.close()


def reply(number: int, results: bytes, failure: int = 0, reason: bytes | None = None) -> bytes:
    head = struct.pack("<IIII", number, len(results), 5, failure)
    return head + results + (b"" if reason is None else reason.ljust(512, b"\0"))


async def judging(played: Played, *records: bytes) -> asyncio.Task[FilterResults]:
    """A batch on its way; the worker has read it."""
    asked = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, records))
    await played.heard()
    return asked


async def test_the_source_goes_first_and_ready_comes_back(play) -> None:
    played = play()
    begun = asyncio.ensure_future(played.worker.set_up(b"the source"))
    assert await played.heard() == struct.pack("<IHH", 4, 1, 4) + b"Glatethe source"
    ready = struct.pack("<I512s", 0, b"")
    played.says(ready[:100])
    await asyncio.sleep(0)
    assert not begun.done()
    played.says(ready[100:])
    await begun
    assert played.worker.alive


async def test_large_messages_get_more_time(play) -> None:
    """Else inflating and reading three of them would cost an honest filter its place."""
    played = play(WorkerLimits(start_ms=60_000, batch_ms=1, message_us=0, mib_ms=60_000))
    asked = await judging(played, b"x" * 2**24)  # which takes more than 4 ms to go across
    played.says(reply(1, b"\1"))
    assert (await asked).results == b"\1"


async def test_a_refused_source_says_why(play) -> None:
    played = play()
    begun = asyncio.ensure_future(played.worker.set_up(b"x"))
    await played.heard()
    played.says(struct.pack("<I512s", 2, b"too big"))
    with pytest.raises(FilterFailed, match="too big") as failed:
        await begun
    assert (failed.value.kind, failed.value.filter_version) == ("memory", 4)
    assert played.killed()


async def test_the_last_words_count_though_the_end_is_heard_first(play) -> None:
    played = play()
    begun = asyncio.ensure_future(played.worker.set_up(b"x"))
    await played.heard()
    played.says(struct.pack("<I512s", 2, b"too big"))
    played.bury("died", "the worker ended with exit code 1")
    with pytest.raises(FilterFailed, match="too big") as failed:
        await begun
    assert failed.value.kind == "memory"


async def test_a_request_byte_for_byte_and_its_results(play) -> None:
    played = play()
    asked = asyncio.ensure_future(
        played.worker.evaluate(b"orders", 77, [b"one", memoryview(b"two")])
    )
    head = struct.pack("<IqH", 1, 77, 6) + b"orders" + struct.pack("<I", 2)
    assert await played.heard() == head + b"onetwo"
    played.says(reply(1, b"\1\2", 1, b"ValueError: no"))
    assert await asked == FilterResults(b"\1\2", "ValueError: no", 5, "raised")
    assert played.worker.alive


async def test_records_may_come_as_runs(play) -> None:
    played = play()
    asked = asyncio.ensure_future(played.worker.evaluate(b"t", 0, [b"onetwo", b"three"], 3))
    assert struct.pack("<I", 3) + b"onetwothree" in await played.heard()
    played.says(reply(1, b"\1\1\0"))
    assert (await asked).results == b"\1\1\0"


async def test_a_reply_may_come_in_pieces_and_batches_are_numbered(play) -> None:
    played = play()
    for number in (1, 2):
        asked = await judging(played, b"a", b"b")
        for byte in reply(number, b"\1\2", 1, b"why"):
            assert not asked.done()
            played.says(bytes([byte]))
            await asyncio.sleep(0)
        assert (await asked).results == b"\1\2"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (b"a\nb\x1b[2Jc\0hidden", "a b [2Jc"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("fin\u202eally".encode(), "fin ally"),
        (b"", "no reason was given"),
        (b" \n ", "no reason was given"),
    ],
)
async def test_a_reason_is_one_harmless_line_whatever_the_bytes_are(
    play, told: bytes, said: str
) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.says(reply(1, b"\2", 1, told))
    assert (await asked).failure == said


async def test_time_that_did_not_pass_was_not_worked(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.says(struct.pack("<IIII", 1, 1, 0xFFFF_FFFF, 0) + b"\1")
    assert (await asked).micros < 60_000_000


@pytest.mark.parametrize("size", [4 << 20, 16 << 20])
async def test_a_large_batch_is_written_while_it_is_read(play, size: int) -> None:
    played = play()
    large = os.urandom(1 << 20) * (size >> 20)
    asked = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [large]))
    assert (await played.heard()).endswith(large)
    played.says(reply(1, b"\1"))
    assert (await asked).results == b"\1"


async def expect_lie(played: Played, asked: asyncio.Future[Any]) -> str:
    with pytest.raises(FilterFailed) as failed:
        await asked
    assert failed.value.kind == "lied"
    assert not played.worker.alive
    assert played.killed()
    return failed.value.message


@pytest.mark.feature("F243")
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (reply(2, b"\1")[:16], "batch 2 instead of 1"),
        (b"\0" * 100_000, "batch 0"),
        (reply(1, b"\1\1"), "2 results instead of 1"),
        (reply(1, b"\3"), "an invalid result"),
        (reply(1, b"\1", 3), "failure 3"),
        (reply(1, b"\2"), "a failure without its message"),
        (reply(1, b"\1", 1, b"why"), "a failure without its message"),
        (reply(1, b"\1") + reply(2, b"\1"), "more bytes"),
        (reply(1, b"\2", 1, b"why") + b"\0", "more bytes"),
    ],
)
async def test_a_liar_is_killed(play, lie: bytes, said: str) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.says(lie)
    assert said in await expect_lie(played, asked)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (struct.pack("<I512s", 4, b""), "result 4 of its set-up"),
        (struct.pack("<I512s", 0, b"") + b"\0", "more bytes"),
    ],
)
async def test_who_lies_at_its_set_up_is_killed(play, lie: bytes, said: str) -> None:
    played = play()
    begun = asyncio.ensure_future(played.worker.set_up(b"x"))
    await played.heard()
    played.says(lie)
    assert said in await expect_lie(played, begun)


async def test_a_reply_before_the_whole_request_was_read_is_a_lie(play) -> None:
    played = play()
    asked = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [bytes(8 << 20)]))
    await asyncio.sleep(0)
    played.says(reply(1, b"\1"))
    assert "without a request" in await expect_lie(played, asked)


async def test_a_reply_for_the_next_batch_beforehand_is_a_lie(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.says(reply(1, b"\1"))
    await asked
    played.says(reply(2, b"\1"))
    # Asked in the same turn, before the loop has looked at the socket.
    asked = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"b"]))
    assert "without a request" in await expect_lie(played, asked)


async def test_who_speaks_while_nobody_asks_is_killed_at_once(play) -> None:
    played = play()
    played.says(b"hello")
    assert await asyncio.to_thread(played.dead)
    assert played.killed()
    assert "without a request" in await played.worker.wait_ended()


@pytest.mark.feature("F243")
async def test_a_slow_reply_ends_at_the_deadline(play) -> None:
    played = play(HASTY)
    with pytest.raises(FilterFailed, match="no reply within 1 ms") as failed:
        await played.worker.evaluate(b"orders", 77, [b"a"])
    assert failed.value.kind == "timeout"
    assert played.killed()


@pytest.mark.feature("F243")
async def test_half_a_reply_is_none_at_the_deadline(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.says(reply(1, b"\1")[:-1])
    flight = played.worker._flight
    assert flight is not None
    flight.cpu_began_s -= 61.0  # it has had all its time
    played.worker._late(flight)
    with pytest.raises(FilterFailed) as failed:
        await asked
    assert failed.value.kind == "timeout"
    assert played.killed()


async def test_a_reply_that_came_in_time_is_taken_by_a_late_filter_server(play) -> None:
    played = play()
    asked = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"a"]))
    await asyncio.sleep(0)
    flight = played.worker._flight
    assert flight is not None
    flight.cpu_began_s -= 61.0  # it has had all its time
    played.says(reply(1, b"\1"))
    played.worker._late(flight)  # the timer comes before the socket was looked at
    assert (await asked).results == b"\1"
    assert played.worker.alive


async def test_a_worker_that_got_no_processor_is_given_more_wall_time(play) -> None:
    played = play(WorkerLimits(batch_ms=60_000, message_us=0))
    asked = await judging(played, b"a")
    flight = played.worker._flight
    assert flight is not None
    flight.began_s -= 60.0 + 2.0  # the deadline is over, and it has not worked
    played.worker._late(flight)
    assert played.worker.alive
    flight.cpu_began_s -= 60.0 + 1.0  # now it has
    played.worker._late(flight)
    with pytest.raises(FilterFailed, match=r"no reply within 60000 ms \("):
        await asked


@pytest.mark.parametrize(("worked_us", "counted_us"), [(900, 5), (10_004, 5), (70_000, 60_000)])
async def test_a_worker_cannot_hide_what_it_worked(play, worked_us: int, counted_us: int) -> None:
    """It says 5 µs; the kernel's clock, of which the last tick is left out, knows better."""
    played = play()
    asked = await judging(played, b"a")
    flight = played.worker._flight
    assert flight is not None
    played.worker._cpu_s = lambda: flight.cpu_began_s + worked_us / 1e6
    played.says(reply(1, b"\1"))
    assert (await asked).micros == pytest.approx(counted_us, abs=1)


async def test_the_extra_time_of_a_worker_without_processor_ends(play) -> None:
    played = play(WorkerLimits(batch_ms=60_000, message_us=0))
    asked = await judging(played, b"a")
    flight = played.worker._flight
    assert flight is not None
    flight.began_s -= 60.0 + 4.0
    played.worker._late(flight)
    assert played.worker.alive
    flight.began_s -= 1.0
    played.worker._late(flight)
    with pytest.raises(FilterFailed, match="nor in 5 s more") as failed:
        await asked
    assert failed.value.kind == "timeout"


async def test_a_worker_that_died_fails_with_what_the_zygote_saw(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.channel.shutdown(socket.SHUT_RDWR)
    played.worker._readable()
    assert not asked.done()  # how it ended is not known yet
    played.bury("died", "the worker was killed by SIGSEGV (it crashed)")
    with pytest.raises(FilterFailed, match="SIGSEGV") as failed:
        await asked
    assert failed.value.kind == "died"
    assert await played.worker.wait_ended() == "the worker was killed by SIGSEGV (it crashed)"
    with pytest.raises(FilterFailed, match="SIGSEGV"):
        await played.worker.evaluate(b"orders", 77, [b"a"])


async def test_one_that_hangs_up_and_lives_on_is_killed(play) -> None:
    played = play()
    played.channel.shutdown(socket.SHUT_RDWR)
    played.worker._readable()
    assert played.killed()


async def test_when_the_zygote_ends_no_filter_is_to_blame(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.bury(NO_FILTERS_FAULT, "the zygote ended")
    with pytest.raises(Unavailable, match="the zygote ended") as failed:
        await asked
    assert not isinstance(failed.value, FilterFailed)


async def test_it_can_be_killed_at_any_time(play) -> None:
    played = play()
    asked = await judging(played, b"a")
    played.worker.kill()
    with pytest.raises(Unavailable):
        await asked
    played.worker.kill()
    assert played.killed()
    assert await played.worker.wait_ended() == "the filter server ended it"


async def test_calls_take_turns_in_their_order(play) -> None:
    played = play()
    asked = [
        asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [record]))
        for record in (b"a", b"b", b"c")
    ]
    for at, record in enumerate((b"a", b"b", b"c")):
        assert (await played.heard()).endswith(record)
        with pytest.raises(BlockingIOError):
            played.channel.recv(1)  # the next one waits
        number = int.from_bytes([at + 1])
        played.says(reply(number, b"\1"))
        assert (await asked[at]).results == b"\1"


async def test_a_cancelled_call_leaves_the_worker_in_order(play) -> None:
    played = play()
    first = await judging(played, b"a")
    second = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"b"]))
    third = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"c"]))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()  # this one has not begun
    await asyncio.sleep(0)
    with pytest.raises(BlockingIOError):
        played.channel.recv(1)  # the first batch is still being judged
    played.says(reply(1, b"\1"))
    assert (await played.heard()).endswith(b"c")
    played.says(reply(3, b"\0"))
    assert (await third).results == b"\0"
    assert first.cancelled()
    assert second.cancelled()


async def test_a_turn_that_comes_to_a_cancelled_call_goes_on_to_the_next(play) -> None:
    played = play()
    first = await judging(played, b"a")
    second = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"b"]))
    third = asyncio.ensure_future(played.worker.evaluate(b"orders", 77, [b"c"]))
    await asyncio.sleep(0)
    played.says(reply(1, b"\1"))
    played.worker._readable()  # gives the turn to the second, which does not run before ...
    second.cancel()  # ... it is cancelled
    assert (await first).results == b"\1"
    assert (await played.heard()).endswith(b"c")
    played.says(reply(3, b"\1"))
    assert (await third).results == b"\1"


async def test_the_allowance_is_renewed_by_work_and_not_by_waiting(play) -> None:
    played = play(WorkerLimits(batch_ms=60_000, cpu_allowance_s=10))
    for number, (worked_s, renewed) in enumerate([(3.0, 0), (3.0, 1), (3.0, 1)], start=1):
        asked = await judging(played, b"a")
        assert played.worker._flight is not None
        played.worker._flight.began_s -= worked_s
        played.says(reply(number, b"\1"))
        await asked
        assert played.renewed == renewed
