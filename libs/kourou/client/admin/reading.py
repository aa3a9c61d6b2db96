"""Reading of queues without joining a consumer group; for tools, not for consumers.

State: none, except which broker replied last for a queue.
"""

from __future__ import annotations

from kourou.protocol.messages.pulls import GetAllDelayOffset

from kourou.client.admin.base_api import ADMIN_TIMEOUT_MS, AdminApi
from kourou.client.consumer.pull_consumer import PullResult, result_of
from kourou.client.consumer.puller import Puller, PullParams
from kourou.client.filters.expressions import Sql, Wanted, check_wanted, subscription_of
from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest, Unavailable
from kourou.model.limits import PULL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.config_bodies import decode_delay_offsets

READER_GROUP = "TOOLS_CONSUMER"
"""RocketMQ's group name for tools that pull."""

HOLD_MS = 15_000
"""The longest long poll of a read, in milliseconds."""


class Reading(AdminApi):
    """Queue reading for tools: `client.admin.reading`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._puller = Puller(READER_GROUP, session.connections, session.routes, session.clock)

    @on_io_thread
    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues in order, as the name servers have them now.

        Raises TopicNotFound.
        """
        leaders = await self._leaders_of(topic)
        known = await self._session.routes.find(topic)
        return [queue for queue in known.readable if queue.broker_name in leaders]

    @on_io_thread
    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the minimum offset that is stored, and the next offset that will be assigned."""
        facts = self._session.facts
        return await facts.min_offset(queue), await facts.max_offset(queue)

    @on_io_thread
    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        return await self._session.facts.offset_by_time(queue, timestamp_ms)

    @on_io_thread
    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset, or None if there is none."""
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
        """Return messages from `offset` on; the broker waits up to `wait_ms` for a first one.

        Raises the errors of `PullConsumer.pull`. An offset outside the queue is reported in the
        result's status.
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
        params = PullParams(count_max, size_bytes_max, hold_ms, hold_ms + ADMIN_TIMEOUT_MS)
        pulled = await self._puller.pull(queue, offset, subscription, params)
        return result_of(queue, pulled, subscription)

    @on_io_thread
    async def delay_offsets(self, broker_name: str) -> dict[int, int]:
        """Return by delay level up to which offset of its queue a broker has delivered.

        A level at which nothing was delivered yet may be left out. Raises Unavailable if the broker
        is unknown or has no leader.
        """
        address = (await self._leaders()).get(broker_name)
        if address is None:
            raise Unavailable(f"broker {broker_name} has no leader")
        return decode_delay_offsets(body_of(await self._ask(address, GetAllDelayOffset())))
