"""Records every pull whose offset the broker had to correct, in topic OFFSET_MOVED_EVENT.

State: soft: which queues were recorded lately. Each record is an ordinary message in the log.

A consumer that does not follow the correction pulls again at once. So a group's corrections in one
queue are recorded once a second, and the table of recent ones is bounded: when it is full, nothing
is recorded. The consumer gets its reply in any case: a record that cannot be stored is omitted.
"""

from __future__ import annotations

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.errors import KourouError
from kourou.model.limits import OFFSET_MOVED_QUEUES_MAX
from kourou.model.message import Property
from kourou.model.names import OFFSET_MOVED_TOPIC
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import OffsetMoved, encode_offset_moved
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.runtime import LogWarning, Received

AGAIN_AFTER_MS = 1_000
"""The shortest time between two records for the same group and queue."""


class MovedOffsets:
    """Stores the records; `host` is the broker's own encoded address."""

    def __init__(self, context: BrokerContext) -> None:
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._pressure = context.pressure
        self._broker_name = context.policy.broker_name
        self._host = context.host
        self._noted_ms: dict[tuple[str, str, int], int] = {}
        self._left_out = False

    def note(
        self, now_ms: int, received: Received, request: PullMessage, offset_new: int
    ) -> list[Effect]:
        """Record that a pull must continue at `offset_new`, unless that was recorded just now.

        The core takes the append. Returns a warning for the first of several records that cannot be
        stored.
        """
        if not self._is_due(now_ms, (request.consumer_group, request.topic, request.queue_id)):
            return []
        try:
            self._store(received.wall_ms, request, offset_new)
        except KourouError as error:
            reported, self._left_out = self._left_out, True
            if reported:
                return []
            return [
                LogWarning(
                    "corrections-unrecorded: corrected offsets are not recorded: %(error)s",
                    {"error": error},
                )
            ]
        self._left_out = False
        return []

    def _is_due(self, now_ms: int, whose: tuple[str, str, int]) -> bool:
        noted = self._noted_ms
        last_ms = noted.get(whose)
        if last_ms is not None and now_ms - last_ms < AGAIN_AFTER_MS:
            return False
        while noted:  # ordered by time, so an expired entry for `whose` is deleted, too
            oldest = next(iter(noted))
            if now_ms - noted[oldest] < AGAIN_AFTER_MS:
                break
            del noted[oldest]
        if len(noted) >= OFFSET_MOVED_QUEUES_MAX:
            return False
        noted[whose] = now_ms
        return True

    def _store(self, wall_ms: int, request: PullMessage, offset_new: int) -> None:
        if self._pressure.refusing:
            self._pressure.check_writable()
        group = request.consumer_group
        at_ms = max(self._appends.store_ms, wall_ms)
        moved = OffsetMoved(
            group,
            MessageQueue(request.topic, self._broker_name, request.queue_id),
            request.queue_offset,
            offset_new,
        )
        draft = encode_draft(
            topic=OFFSET_MOVED_TOPIC.encode(),
            queue_id=0,
            body=encode_offset_moved(moved),
            properties=encode_properties({Property.KEYS: group, Property.TAGS: group}),
            born_timestamp=at_ms,
            born_host=self._host,
        )
        self._appends.write_one(draft, (OFFSET_MOVED_TOPIC, 0), at_ms)
        self._confirmations.append(self._appends.end)
