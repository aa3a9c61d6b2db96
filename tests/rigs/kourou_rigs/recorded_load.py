"""Producers and consumers that record all their observations, to be checked by history_rules.

    async with RecordedLoad(address, "T1") as load:
        ...                          faults
        await load.finish()          the last sends, and all consumers have caught up
    broken_rules(load.history, load.log, groups=load.groups)

Four producers send one message after the other: two to a fixed queue, two to any queue. A message
that was rejected before it was stored is FAIL, SEND_OK is OK, every other outcome is UNKNOWN and
not retried.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from kourou import Client, ClientSettings, ConsumerSettings, MessageQueue, ProducerSettings
from kourou.errors import KourouError, Rejected, Unavailable
from kourou.model.message import SendStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou_rigs.history_rules import Place
from kourou_rigs.reading import read_topic
from kourou_rigs.send_history import History, Outcome

PRODUCERS = 4
QUEUES = 2
PACE_S = 0.004
SEND_TIMEOUT_MS = 8_000
BEGIN_TIMEOUT_S = 30.0
CATCH_UP_S = 20.0
"""A consumer with a backlog that receives nothing new for this time is stuck."""

SETTINGS = ClientSettings(persist_consumer_offset_interval_ms=200)
"""As in applications; in particular, routes are refreshed every 30 s, or after a failure."""

PATIENT = ProducerSettings(send_timeout_ms=SEND_TIMEOUT_MS, retry_times_when_send_failed=10)


class RecordedLoad:
    """Load on one topic, from entering the block until `finish`."""

    def __init__(self, address: str, topic: str, *, broker: str = "broker-a") -> None:
        self.topic = topic
        self.history = History()
        self.groups = (f"{topic}-audit", f"{topic}-billing")
        #: The final content of the queues.
        self.log: dict[Place, str] = {}
        self._address = address
        self._broker = broker
        self._number = 0
        self._over = False
        self._handed: dict[str, set[str]] = {group: set() for group in self.groups}
        self._read_more, self._answered = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._client = Client(address, settings=SETTINGS, producer=PATIENT)

    # -- lifecycle --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._client.open()
        await self._client.admin.topics.create(self.topic, queues=QUEUES)
        reading = [self._consume(group) for group in self.groups]
        producing = [self._produce(number) for number in range(PRODUCERS)]
        self._tasks = [asyncio.create_task(each) for each in (*reading, *producing)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def finish(self) -> None:
        """After all faults: send one more message from each producer, and let consumers catch up.

        Consumers that are stuck are not waited for: the rules report `unseen`.
        """
        self._over = True
        await asyncio.gather(*self._tasks[len(self.groups) :])
        wanted = {row.value for row in self.history.acknowledged()}
        with contextlib.suppress(TimeoutError):
            while any(not wanted <= handed for handed in self._handed.values()):
                self._read_more.clear()
                await asyncio.wait_for(self._read_more.wait(), CATCH_UP_S)
        read = await read_topic(self._client, self.topic, f"{self.topic}-looking")
        self.log = {
            (self._named(queue_id), offset): one.raw_body.decode()
            for (queue_id, offset), one in read.items()
        }

    async def until_acknowledged(self, count: int, *, within_s: float = BEGIN_TIMEOUT_S) -> None:
        """Wait until `count` more sends are acknowledged."""
        wanted = len(self.history.acknowledged()) + count
        async with asyncio.timeout(within_s):
            while len(self.history.acknowledged()) < wanted:
                self._answered.clear()
                await self._answered.wait()

    @staticmethod
    def now_ms() -> float:
        """The clock of all rows."""
        return asyncio.get_running_loop().time() * 1_000

    def _named(self, queue_id: int) -> str:
        return f"{self._broker}/{queue_id}"

    # -- producers --------------------------------------------------------------------------------

    async def _produce(self, number: int) -> None:
        keeps = MessageQueue(self.topic, self._broker, number % QUEUES)
        queue = keeps if number < PRODUCERS // 2 else None
        while not self._over:
            await self._send(f"p{number}", queue)
            await asyncio.sleep(PACE_S)
        await self._send(f"p{number}", queue)

    async def _send(self, producer: str, queue: MessageQueue | None) -> None:
        self._number += 1
        value = f"{producer}-{self._number}"
        began = self.now_ms()
        outcome, place = Outcome.UNKNOWN, ("", -1)
        try:
            sent = await self._client.send(self.topic, value.encode(), queue=queue)
        except (Rejected, Unavailable):
            outcome = Outcome.FAIL
        except KourouError:
            pass  # the outcome is unknown
        else:
            if sent.status is SendStatus.SEND_OK:
                outcome, place = Outcome.OK, (self._named(sent.queue.queue_id), sent.offset)
        self.history.sent(producer, value, began, self.now_ms(), outcome, *place)
        self._answered.set()

    # -- consumers --------------------------------------------------------------------------------

    async def _consume(self, group: str) -> None:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = ConsumerSettings(consumer_group=group, consume_from_where=first)
        handed = self._handed[group]
        async with (
            Client(self._address, settings=SETTINGS, consumer=consumer) as mq,
            mq.subscribe(self.topic) as stream,
        ):
            async for message in stream:
                value = message.raw_body.decode()
                place = self._named(message.queue.queue_id), message.offset
                self.history.read(group, self.now_ms(), *place, value)
                handed.add(value)
                self._read_more.set()
