"""Dead letters: list the messages that a group could not process, redeliver or discard them.

The log deletes no single message on demand. A dead letter is marked as handled by advancing the
handled offset: the group's own committed offset in its dead-letter topic, which has no other use. A
redelivered dead letter is sent to the retry topic of its group only, with its attempt count reset
to 0. Other groups that already consumed the message do not receive it again.

State: none here; the broker records, replicates and keeps the handled offset like any committed
offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kourou.client.admin.base_api import AdminApi
from kourou.client.consumer.received import ReceivedMessage, from_records
from kourou.client.consumer.send_back import INNER_PRODUCER, squeezed
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest, Code, KourouError, TopicNotFound, Unavailable
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.message import COMPRESSION_MASK, Property, SysFlag
from kourou.model.names import AUTO_CREATE_TOPIC, check_group, dlq_topic, retry_topic
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import LockBatch, decode_locked_queues, encode_lock_batch
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq
from kourou.protocol.messages.pulls import (
    GetMinOffset,
    GetMinOffsetResponse,
    PullFlag,
    PullMessage,
    PullResponse,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.properties import encode_properties

PULL_COUNT = 64
PULL_BYTES = 1 << 20

_LEFT_BEHIND = frozenset(
    {
        Property.DELAY,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.TRAN_MSG,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.DLQ_REASON,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        Property.CRC32,
        Property.CLUSTER,
    }
)
_DIFFERING = re.compile(r"\b(?=[\w-]*\d)[\w-]+\b")
"""Matches a word that contains a digit: a number, an ID, a time."""

_NOTHING = frozenset({int(Code.PULL_NOT_FOUND), int(Code.PULL_RETRY_IMMEDIATELY)})
_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """One dead letter: the stored message, and the properties that tell its origin."""

    message: ReceivedMessage

    @property
    def topic(self) -> str | None:
        """The topic that the message came from, if its properties contain it."""
        found = self.message.properties
        return found.get(Property.DLQ_ORIGIN_TOPIC) or found.get(Property.RETRY_TOPIC)

    @property
    def reason(self) -> str | None:
        """The reason that the consumer gave, if any."""
        return self.message.properties.get(Property.DLQ_REASON)

    @property
    def cause(self) -> str:
        """The reason with numbers and IDs replaced by `#`, so that equal causes compare equal.

        Empty for a dead letter without a reason: its delivery attempts were used up.
        """
        return _DIFFERING.sub("#", (self.reason or "")[:FAILURE_REASON_LENGTH_MAX]).strip()

    @property
    def attempts(self) -> int:
        """The number of delivery attempts that failed."""
        return self.message.reconsume_times


class DeadLettersApi(AdminApi):
    """Dead letters of a group: `client.admin.dead_letters`."""

    @on_io_thread
    async def of(self, group: str, *, count_max: int = PULL_COUNT) -> tuple[StoredDeadLetter, ...]:
        """Return the oldest unhandled dead letters of a group, at most `count_max`."""
        return tuple(await self._open(group, count_max))

    @on_io_thread
    async def resend(
        self, group: str, dead_letters: Iterable[StoredDeadLetter]
    ) -> dict[str, KourouError | None]:
        """Send these dead letters to their group again; returns None or the error by message ID.

        The handled offset does not change. Call `deal_with` to mark dead letters as handled.
        """
        outcomes: dict[str, KourouError | None] = {}
        for dead_letter in dead_letters:
            try:
                await self._send(group, dead_letter)
            except KourouError as error:
                outcomes[dead_letter.message.message_id] = error
            else:
                outcomes[dead_letter.message.message_id] = None
        return outcomes

    @on_io_thread
    async def deal_with(
        self, group: str, dead_letters: Iterable[StoredDeadLetter]
    ) -> dict[MessageQueue, int]:
        """Mark these dead letters, and all before them in their queues, as handled.

        Returns the new handled offset of each queue. Every queue is tried; then the first error is
        raised, if there was one.
        """
        marks: dict[MessageQueue, int] = {}
        for dead_letter in dead_letters:
            queue = dead_letter.message.queue
            marks[queue] = max(marks.get(queue, 0), dead_letter.message.offset + 1)
        leaders = await self._dead_leaders(group)
        failure: KourouError | None = None
        for queue, offset in marks.items():
            request = UpdateConsumerOffset(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset,
            )
            address = leaders.get(queue.broker_name)
            try:
                if address is None:
                    raise Unavailable(
                        f"the handled offset of {queue!s} was not advanced: no "
                        f"route contains broker {queue.broker_name}",
                        hint="its dead letters stay listed; discard them when the "
                        "broker is online again",
                    )
                await self._ask(address, request)
            except KourouError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return marks

    @on_io_thread
    async def lock(self, group: str) -> list[MessageQueue]:
        """Lock a group's dead-letter queues; returns those that another client has locked.

        The locks are those of orderly consumers. A lock expires after QUEUE_LOCK_MS unless `lock`
        is called again; `unlock` releases it. The locks are advisory: `resend` and `deal_with` do
        not check them.
        """
        refused: list[MessageQueue] = []
        for address, queues in await self._dead_queues(group):
            batch = LockBatch(group, self._session.client_id, tuple(queues))
            reply = await self._ask(address, LockBatchMq(), body=encode_lock_batch(batch))
            held = set(decode_locked_queues(body_of(reply)))
            refused += [queue for queue in queues if queue not in held]
        return refused

    @on_io_thread
    async def unlock(self, group: str) -> None:
        """Release this client's locks; locks of other clients are not affected."""
        for address, queues in await self._dead_queues(group):
            batch = LockBatch(group, self._session.client_id, tuple(queues))
            await self._ask(address, UnlockBatchMq(), body=encode_lock_batch(batch))

    async def _dead_queues(self, group: str) -> list[tuple[str, list[MessageQueue]]]:
        """Return the queues together with their leader's address."""
        leaders = await self._dead_leaders(group)
        if not leaders:
            return []
        readable = (await self._session.routes.find(dlq_topic(group))).readable
        return [
            (address, [queue for queue in readable if queue.broker_name == name])
            for name, address in leaders.items()
        ]

    async def _dead_leaders(self, group: str) -> dict[str, str]:
        check_group(group)
        try:
            return await self._leaders_of(dlq_topic(group))
        except TopicNotFound:
            return {}

    async def _open(self, group: str, count_max: int) -> list[StoredDeadLetter]:
        if count_max < 1:
            raise BadRequest(f"count_max is {count_max}; it must be at least 1")
        topic = dlq_topic(group)
        found: list[StoredDeadLetter] = []
        for name, address in (await self._dead_leaders(group)).items():
            queues = (await self._session.routes.find(topic)).readable
            for queue in queues:
                if queue.broker_name == name:
                    offset = await self._mark(address, group, queue)
                    found += await self._read(address, group, queue, offset, count_max)
        found.sort(key=lambda dead_letter: dead_letter.message.store_timestamp)
        return found[:count_max]

    async def _mark(self, address: str, group: str, queue: MessageQueue) -> int:
        ask_lowest = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
        lowest = header_of(await self._ask(address, ask_lowest), GetMinOffsetResponse)
        request = QueryConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
        )
        reply = await self._ask(address, request, also=_NONE)
        if reply.code != Code.SUCCESS:
            return lowest.offset
        return max(lowest.offset, header_of(reply, QueryConsumerOffsetResponse).offset)

    async def _read(
        self, address: str, group: str, queue: MessageQueue, offset: int, count_max: int
    ) -> list[StoredDeadLetter]:
        found: list[StoredDeadLetter] = []
        while len(found) < count_max:
            request = PullMessage(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=offset,
                max_msg_nums=min(PULL_COUNT, count_max - len(found)),
                sys_flag=int(PullFlag.SUBSCRIPTION),
                subscription=MATCH_ALL,
                max_msg_bytes=PULL_BYTES,
            )
            reply = await self._ask(address, request, also=_NOTHING)
            offset = header_of(reply, PullResponse).next_begin_offset
            if reply.code == Code.SUCCESS:
                found += map(StoredDeadLetter, from_records(body_of(reply), queue.broker_name))
            elif reply.code == Code.PULL_NOT_FOUND:
                break
        return found

    async def _send(self, group: str, dead_letter: StoredDeadLetter) -> None:
        message = dead_letter.message
        known = await self._session.routes.find(retry_topic(group))
        queues = [one for one in known.writable if one.broker_name == message.queue.broker_name]
        if not (queues or known.writable):
            raise Unavailable(f"topic {known.topic} has no writable broker")
        queue = (queues or list(known.writable))[0]
        address = known.leader_address(queue.broker_name)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} has no leader")
        properties = {
            name: value for name, value in message.properties.items() if name not in _LEFT_BEHIND
        }
        if dead_letter.topic is not None:
            properties[Property.RETRY_TOPIC.value] = dead_letter.topic
        stored = message.stored()
        request = SendMessage(
            producer_group=INNER_PRODUCER,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            queue_id=queue.queue_id,
            sys_flag=stored.sys_flag & (int(SysFlag.COMPRESSED) | COMPRESSION_MASK),
            born_timestamp=stored.born_timestamp,
            flag=stored.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=0,
            bname=queue.broker_name,
        )
        await self._ask(address, request, body=squeezed(message.raw_body, stored.sys_flag))
