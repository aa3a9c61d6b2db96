"""Converts rows to drafts and selects their queues.

State: soft: the round-robin position, and the routes of topics.
"""

from __future__ import annotations

import os
import random
from typing import NamedTuple

from kourou.client.producer.drafts import DraftDestination, Drafting, delay_property, joined_keys
from kourou.client.producer.pending_sends import Terms
from kourou.client.producer.sender import target_to
from kourou.client.session.route_table import QueueMap
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import BadRequest, KourouError, MessageIllegal, NoPermission, Unavailable
from kourou.model.message import DELAY_LEVELS_MS, Property
from kourou.model.names import NOT_FOR_CLIENTS, check_topic
from kourou.model.transaction import BatchMark
from kourou.protocol.record.hashes import java_hash
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import UniqKeyGenerator
from kourou.protocol.record.message_record import encode_draft
from kourou_spark_etl.sink.columns import OutRow
from kourou_spark_etl.sink.options import QueueBy, WriteOptions

GROUP = "spark-sink"
"""The producer group of these half messages."""

_TERMS = Terms(1, 1)
_BORN_HOST = encode_host(("127.0.0.1", 0))


class DraftTarget(NamedTuple):
    """A queue, its broker's name and address, and the queue-specific values of a draft."""

    broker_name: str
    address: str
    topic: str
    queue_id: int
    place: DraftDestination


class DraftBuilder:
    """Creates drafts for one attempt of a task; without `mark` they are plain messages.

    `turn` is the round-robin position, which starts at a random number.
    """

    def __init__(
        self, options: WriteOptions, mark: BatchMark | None, now_ms: int, chance: random.Random
    ) -> None:
        self.options = options
        self.settings = ProducerSettings(producer_group=GROUP)
        self._drafting = Drafting(self.settings, _BORN_HOST)
        self._mark = mark
        self._now_ms = now_ms
        self.turn = chance.getrandbits(30)
        # Keys must differ between attempts on all machines: they are used for deduplication.
        self._keys = UniqKeyGenerator(
            chance.getrandbits(32).to_bytes(4, "big"), os.getpid(), chance.getrandbits(32)
        )
        self._targets: dict[str, list[DraftTarget]] = {}
        self._own: dict[int, dict[str, str]] = {}

    def knows(self, topic: str) -> bool:
        """Whether the topic's route is known."""
        return topic in self._targets

    def learn(self, known: QueueMap) -> None:
        """Add the route of a topic. Raises Unavailable if no broker is writable."""
        targets: list[DraftTarget] = []
        for queue in known.writable:
            queue_target = target_to(known, queue, known.topic.encode(), _TERMS)
            if queue_target is not None:
                targets.append(
                    DraftTarget(
                        queue.broker_name,
                        queue_target.address,
                        known.topic,
                        queue.queue_id,
                        queue_target.place,
                    )
                )
        if not targets:
            raise Unavailable(f"topic {known.topic} has no writable broker")
        self._targets[known.topic] = targets

    def topic_of(self, row: OutRow, number: int) -> str:
        """The topic of the row with this number. Raises BadRequest or NoPermission."""
        topic = row.topic or self.options.topic
        if not topic:
            raise BadRequest(f"row {number} has no topic, and the option 'topic' is not set")
        if topic not in self._targets:
            try:
                self.check_topic(topic)
            except BadRequest as error:
                raise BadRequest(f"row {number}: {error}") from None
        return topic

    def check_topic(self, topic: str) -> None:
        """Raises BadRequest or NoPermission for a topic that rows must not be written to."""
        check_topic(topic)
        if topic in NOT_FOR_CLIENTS:
            raise NoPermission(f"topic {topic} is internal: clients cannot send to it")

    def draft(self, row: OutRow, topic: str, number: int) -> tuple[DraftTarget, bytes]:
        """The draft of the row with this number. Raises Rejected, which names the row."""
        if row.value is None:
            raise MessageIllegal(
                f"row {number} has no value", hint="use an empty value instead of null"
            )
        try:
            target = self._target(row, self._targets[topic])
            options = self.options
            keys = row.key if row.key is not None else options.key
            properties = None
            if row.properties or row.trace_parent:
                properties = {name: text for name, text in row.properties or () if text is not None}
                if row.trace_parent:
                    properties[Property.TRACEPARENT.value] = row.trace_parent
            return target, self._drafting.draft(
                target.place,
                row.value,
                self._keys.next(self._now_ms),
                self._now_ms,
                (row.tags if row.tags is not None else options.tags) or None,
                joined_keys(keys) if keys else "",
                properties,
                0,
                self._own_properties_of(row),
            )
        except KourouError as error:
            raise type(error)(f"row {number}: {error.message}", hint=error.hint) from error

    def _target(self, row: OutRow, targets: list[DraftTarget]) -> DraftTarget:
        if row.queue is not None:
            if not 0 <= row.queue < len(targets):
                raise BadRequest(
                    f"queue {row.queue} is out of range: topic {targets[0].topic} has "
                    f"{len(targets)} queues"
                )
            return targets[row.queue]
        order_key = row.order_key
        if order_key is None and self.options.queue_by is QueueBy.KEY:
            order_key = row.key
        if order_key is not None:
            return targets[abs(java_hash(order_key)) % len(targets)]
        self.turn += 1
        return targets[self.turn % len(targets)]

    def targets(self, topic: str) -> list[DraftTarget]:
        """The queues of a topic that was added by `learn`."""
        return self._targets[topic]

    def unique_keys(self, count: int) -> list[str]:
        """New unique keys for `count` messages."""
        return self._keys.next_many(count, self._now_ms)

    def empty_draft(self, place: DraftDestination) -> bytes:
        """A draft for this queue, without body and properties."""
        return encode_draft(
            topic=place.topic,
            queue_id=place.queue_id,
            body=b"",
            properties=b"",
            born_timestamp=self._now_ms,
            born_host=_BORN_HOST,
            store_host_v6=place.store_host_v6,
        )

    def _own_properties_of(self, row: OutRow) -> dict[str, str] | None:
        level = row.delay_level if row.delay_level is not None else self.options.delay_level
        if row.delay_ms:
            if row.delay_ms not in DELAY_LEVELS_MS:
                delays = ", ".join(map(str, DELAY_LEVELS_MS))
                raise BadRequest(f"delay {row.delay_ms} ms is not the delay of a level: {delays}")
            level = DELAY_LEVELS_MS.index(row.delay_ms) + 1
        return self.own_properties(level)

    def own_properties(self, level: int) -> dict[str, str] | None:
        """The properties that rows must not set: the delay, and the mark of the batch."""
        if not level and self._mark is None:
            return None
        own = self._own.get(level)
        if own is None:
            own = dict(delay_property(DELAY_LEVELS_MS, level) or {})
            if self._mark is not None:
                own = {
                    Property.TRAN_MSG.value: "true",
                    Property.PGROUP.value: GROUP,
                    Property.BATCH.value: self._mark._replace(delay_level=level).text,
                }
            self._own[level] = own
        return own
