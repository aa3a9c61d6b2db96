"""What reaches the file when: the three combinations of flushDiskType and transientStorePoolEnable.

One second of a broker's life, step by step, on a simulated disk and a clock that the test moves.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kourou.broker.storage.effect_executor import tick_ms_of
from kourou.engine.effects import DropTopic
from kourou.engine.inputs import Dispatched, Flushed, LogWritten
from kourou.errors import Code, StoreFaulted
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.record.message_record import decode_record
from kourou.runtime import Received, Reply, ReplyTo
from kourou.store.flush_schedule import FlushPolicy
from kourou_rigs.executing import PEER, RARELY, effect_executor, send_to, settled

TO = ReplyTo(PEER, 1)
FLUSH = FlushPolicy(interval_ms=500, least_pages=4, thorough_ms=10_000)
COMMIT = FlushPolicy(interval_ms=200, least_pages=4, thorough_ms=1_000)
PAGE = 4_096


class Broker:
    """Core and executor on one disk; effects are done at once, posted inputs come in again."""

    def __init__(self, site, *, sync: bool = False, pool: int = 0, flush=FLUSH, commit=COMMIT):
        site.reopen(staging_buffers=pool)
        self.site = site
        self.store, self.clock = site.store, site.clock
        self.core = site.core(sync_flush=sync)
        self.parts = self.core.parts
        self.parts.confirmations.staged = self.store.staged
        self.said: list[Any] = []
        self.replies: list[Reply] = []
        self.failures: list[BaseException] = []
        self.executor = effect_executor(
            site,
            log_flush=flush,
            write_out=commit,
            post=self._post,
            failed=self.failures.append,
        )
        self.performers = {**self.executor.performers(), Reply: self.replies.append}

    def _post(self, item: Any) -> None:
        self.said.append(item)
        self._perform(self.core.handle(self.clock.monotonic_ms(), [item]))

    def _perform(self, effects) -> None:
        for effect in effects:
            self.performers[type(effect)](effect)

    def make_topic(self) -> None:
        from kourou.engine.control import decide_start

        self._perform(
            self.core.start(0, 1, decide_start(self.parts.control, self.site.rules), "start")
        )

    async def send(self, body: bytes) -> None:
        now_ms = self.clock.monotonic_ms()
        self._perform(self.core.handle(now_ms, [Received(TO, send_to(), [body], 1)]))
        await asyncio.sleep(0)

    async def pass_ms(self, ms: int) -> None:
        """Time passes, and every thread finishes what it began."""
        self.clock.advance(ms)
        self.executor.tick()
        await self.settled()

    async def settled(self) -> None:
        await settled(self.executor)

    @property
    def answered(self) -> int:
        return sum(reply.code == Code.SUCCESS for reply in self.replies)

    @property
    def readable(self) -> int:
        """How many messages a consumer can get."""
        self.executor.dispatch_written()  # as a request for them causes
        low, high = self.store.queue_range("orders", 0) or (0, 0)
        if low == high:
            return 0
        read = self.store.read_queue(
            "orders",
            0,
            low,
            max_messages=100,
            max_bytes=1 << 20,
            codes=None,
            below=self.parts.confirmations.confirmed,
        )
        return len(read.records)

    def in_file(self) -> int:
        """How many messages of the topic a kill now would leave."""
        return self._count(self.site.disk.kill())

    def on_device(self) -> int:
        """How many a power loss now would leave, if it takes all that it may."""
        return self._count(self.site.disk.crash())

    def _count(self, disk) -> int:
        found, at = 0, 0
        data = disk.read(self.store.paths.segment(0))
        while size := int.from_bytes(data[at : at + 4], "big"):
            found += decode_record(data, at).topic == "orders"
            at += size
        return found

    def kinds(self) -> list[type]:
        about = (LogWritten, Dispatched, Flushed)
        return [type(item) for item in self.said if isinstance(item, about)]


@pytest.fixture
async def broker(site):
    made: list[Broker] = []

    async def make(**options) -> Broker:
        one = Broker(site, **options)
        made.append(one)
        one.make_topic()
        await one.settled()
        if one.store.staged:
            one.executor._write_out.write_now()
            one.executor.dispatch()
        one.said.clear()
        return one

    yield make
    for each in made:
        await each.settled()
        await each.executor.settle()


@pytest.mark.feature("F092", "F094", "F106")
async def test_sync_flush_appends_then_flushes_then_answers(broker) -> None:
    one = await broker(sync=True, flush=RARELY)
    await one.send(b"x")
    assert one.store.end == one.store.flushed + one.store.dirty_bytes
    await one.settled()
    assert one.answered == 1
    assert one.store.flushed == one.store.end
    assert one.readable == 1


@pytest.mark.feature("F092", "F096", "F097", "F106")
async def test_async_flush_without_a_pool_writes_at_once_and_flushes_by_the_clock(broker) -> None:
    one = await broker()
    await one.send(bytes(PAGE * 4))
    assert (one.answered, one.readable) == (1, 1)
    assert one.store.unwritten_bytes == 0
    flushed = one.store.flushed
    await one.pass_ms(499)
    assert one.store.flushed == flushed
    await one.pass_ms(1)
    assert one.store.flushed == one.store.end
    assert LogWritten not in one.kinds()


@pytest.mark.feature("F092", "F102", "F103", "F106")
async def test_async_flush_with_a_pool_writes_by_one_clock_and_flushes_by_the_other(broker) -> None:
    one = await broker(pool=2)
    before = one.store.flushed
    await one.send(bytes(PAGE * 5))
    assert one.answered == 1, "answered when it is in memory, as RocketMQ does"
    assert one.readable == 0
    await one.pass_ms(199)
    assert (one.readable, one.store.unwritten_bytes > PAGE * 5) == (0, True)
    await one.pass_ms(1)
    assert (one.readable, one.store.unwritten_bytes) == (1, 0)
    assert one.store.flushed == before
    await one.pass_ms(300)
    assert one.store.flushed == one.store.end
    assert one.kinds() == [LogWritten, Dispatched, Flushed]


@pytest.mark.feature("F098", "F102", "F106")
async def test_writing_wakes_the_flush_that_is_not_timed(broker) -> None:
    flush = FlushPolicy(interval_ms=10**9, least_pages=4, thorough_ms=10**9, timed=False)
    one = await broker(pool=2, flush=flush)
    await one.send(bytes(PAGE * 5))
    await one.settled()
    assert one.kinds() == [], "what is in memory only cannot be flushed"
    await one.pass_ms(200)
    assert one.kinds().index(LogWritten) < one.kinds().index(Flushed)
    assert one.store.flushed == one.store.end


@pytest.mark.feature("F104", "F105")
async def test_less_than_four_pages_wait_for_the_thorough_interval(broker) -> None:
    one = await broker(pool=2)
    await one.send(b"little")
    for _ in range(4):
        await one.pass_ms(200)
        assert one.readable == 0
    await one.pass_ms(200)
    assert one.readable == 1


@pytest.mark.fault
@pytest.mark.feature("F102", "F106")
async def test_what_a_kill_leaves(broker) -> None:
    one = await broker(pool=2)
    await one.send(bytes(PAGE * 4))
    await one.pass_ms(200)
    await one.send(b"in memory only")
    assert (one.answered, one.readable) == (2, 1)
    assert one.in_file() == 1


@pytest.mark.fault
@pytest.mark.feature("F106")
async def test_what_was_written_and_flushed_survives_a_power_loss(broker) -> None:
    one = await broker(pool=2)
    await one.send(bytes(PAGE * 4))
    await one.pass_ms(200)
    await one.pass_ms(300)
    await one.send(b"in memory only")
    assert one.on_device() == 1


@pytest.mark.feature("F102")
async def test_a_full_pool_is_written_before_its_time(broker) -> None:
    one = await broker(pool=2, commit=RARELY)
    count = 0
    while not one.kinds() and count < 20:  # a segment is of 16 pages
        await one.send(bytes(PAGE))
        await one.settled()
        count += 1
    assert one.kinds()[0] is LogWritten, "a finished segment has one buffer, the newest the other"
    assert 13 <= count < 20
    assert (one.readable, one.store.unwritten_bytes) == (count, 0)
    await one.send(b"x")
    await one.settled()
    assert one.readable == count, "and now there is time again"


async def test_with_a_single_buffer_the_append_that_needs_it_writes(broker) -> None:
    one = await broker(pool=1, commit=RARELY)
    for _ in range(40):
        await one.send(bytes(PAGE))
        await one.settled()
        one.store.allocate_next()
        one.parts.appends.space(*one.store.space[:1], full=False)
    assert one.store.unwritten_bytes < 17 * PAGE < one.store.end


async def test_a_deleted_topic_does_not_come_back_with_what_was_staged(broker) -> None:
    one = await broker(pool=2)
    await one.send(b"x")
    one.performers[DropTopic](DropTopic("orders"))
    await one.pass_ms(200)
    assert one.store.queue_ids("orders") == []
    assert one.store.queue_range(CONTROL_TOPIC, 0) is not None


@pytest.mark.fault
async def test_a_write_that_fails_ends_the_process(broker, monkeypatch) -> None:
    one = await broker(pool=2)
    await one.send(bytes(PAGE * 5))

    def broken() -> int:
        raise StoreFaulted("EIO")

    monkeypatch.setattr(one.store, "write_out", broken)
    await one.pass_ms(200)
    monkeypatch.undo()
    assert one.parts.confirmations.failed is not None
    await one.send(b"y")
    assert one.replies[-1].code == Code.STORE_FAULTED


def test_the_shortest_interval_says_how_often_to_look() -> None:
    def every(ms: int) -> FlushPolicy:
        return FlushPolicy(interval_ms=ms, least_pages=1, thorough_ms=1)

    assert tick_ms_of([every(500), every(1_000)]) == 100
    assert tick_ms_of([every(500), every(200)]) == 50
    assert tick_ms_of([every(500), every(1)]) == 10
