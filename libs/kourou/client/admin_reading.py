"""Reading queues without being a member of anything: for those who look, not for consumers.

State: none but which broker answered for a queue last.
"""

from __future__ import annotations

from kourou.client.admin_desk import ADMIN_TIMEOUT_MS, AdminDesk
from kourou.client.connections import body_of
from kourou.client.filters import Sql, Wanted, check_wanted, subscription_of
from kourou.client.io_thread import on_io_thread
from kourou.client.pull_consumer import PullResult, result_of
from kourou.client.puller import Puller, PullWish
from kourou.client.session import Session
from kourou.errors import BadRequest, Unavailable
from kourou.model.limits import PULL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.queue import MessageQueue
from kourou.model.subscription import MATCH_ALL
from kourou.protocol.bodies import decode_delay_offsets
from kourou.protocol.messages.offsets import GetAllDelayOffset

READER_GROUP = "TOOLS_CONSUMER"
"""RocketMQ's name for tools that pull."""

HOLD_MS = 15_000
"""No broker holds a read for longer."""


class Reading(AdminDesk):
    """`client.admin.reading`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._puller = Puller(READER_GROUP, session.connections, session.routes, session.clock)

    @on_io_thread
    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, in order, as name servers have them now.

        Raises TopicNotFound.
        """
        leaders = await self._leaders_of(topic)
        known = await self._session.routes.find(topic)
        return [queue for queue in known.readable if queue.broker_name in leaders]

    @on_io_thread
    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that is kept, and the next one that is given."""
        facts = self._session.facts
        return await facts.min_offset(queue), await facts.max_offset(queue)

    @on_io_thread
    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return await self._session.facts.offset_by_time(queue, timestamp_ms)

    @on_io_thread
    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """How far a group has come; None when nothing is kept."""
        return await self._session.facts.committed(group, queue)

    @on_io_thread
    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        wanted: Wanted = MATCH_ALL,
        count_max: int = 32,
        size_bytes_max: int = PULL_SIZE_BYTES_MAX,
        wait_ms: int = 0,
    ) -> PullResult:
        """Messages from `offset` on; with `wait_ms` the broker waits so long for a first one.

        Raises as `PullConsumer.pull` does. An offset outside the queue is told by the status.
        """
        if offset < 0 or wait_ms < 0 or not 0 < count_max <= PULL_MESSAGES_MAX:
            raise BadRequest(
                "offset and wait time must be at least 0, and the number of messages at least 1"
            )
        if not isinstance(wanted, str | Sql):
            raise BadRequest(
                "reading does not support Python filters",
                hint="filter by tags or Sql, or consume in a group",
            )
        check_wanted(wanted)
        subscription = subscription_of(queue.topic, wanted, version=self._session.clock.now_ms())
        hold_ms = min(wait_ms, HOLD_MS)
        wish = PullWish(count_max, size_bytes_max, hold_ms, hold_ms + ADMIN_TIMEOUT_MS)
        pulled = await self._puller.pull(queue, offset, subscription, wish)
        return result_of(queue, pulled, subscription)

    @on_io_thread
    async def delay_offsets(self, broker_name: str) -> dict[int, int]:
        """By delay level: up to which offset of its queue a broker has delivered (45).

        A level at which nothing was delivered yet may be left out. Raises Unavailable.
        """
        address = (await self._leaders()).get(broker_name)
        if address is None:
            raise Unavailable(f"broker {broker_name} has no leader")
        return decode_delay_offsets(body_of(await self._ask(address, GetAllDelayOffset())))
