"""Fetches the last messages of a topic, over all its queues, for a dry run.

Each queue contributes the same number; if a queue has fewer, the others contribute more. Messages
are pulled with a group that always exists and commits nothing, so no consumer's progress changes.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse

from kourou.errors import Code, KourouError
from kourou.model.limits import FILTER_TRIED_BYTES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.message import StoredMessage
from kourou.model.subscription import MATCH_ALL, TAG
from kourou.protocol.bodies.statistics_bodies import decode_topic_stats
from kourou.protocol.messages.broker_admin import GetTopicStatsInfo
from kourou.protocol.record.message_record import decode_record
from kourou.runtime.core import ReplyTo
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.records import bounds_of
from kourou_filter_server.turn import Turn, trouble_of

GROUP = "FILTERSRV_CONSUMER"
"""RocketMQ's filter servers pull as this group; it always exists."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One message: its bytes, and the decoded message; None if it cannot be decoded."""

    record: memoryview
    message: StoredMessage | None


@dataclass(slots=True)
class _Tail:
    """The messages of one queue that are still to be fetched."""

    queue_id: int
    at: int
    end: int
    found: list[Sampled] = field(default_factory=list)


class Sample:
    """Fetches `count` messages of `topic`, then calls `done` with them, or with an error."""

    def __init__(
        self,
        turn: Turn,
        to: ReplyTo,
        topic: str,
        count: int,
        done: Callable[[list[Sampled], int, str], None],
    ) -> None:
        self._turn = turn
        self._to = to
        self._topic = topic
        self._count = count
        self._done = done
        self._tails: list[_Tail] = []
        self._size_bytes = 0
        self._token = turn.ask(GetTopicStatsInfo(topic=topic), self._bounds_told, to=to)

    def stop(self) -> None:
        """Cancel: `done` will not be called."""
        self._turn.forget(self._token)

    def _bounds_told(self, answer: BrokerAnswered) -> None:
        if self._ended(answer):
            return
        try:
            table = decode_topic_stats(b"".join(answer.body))
        except KourouError as error:
            self._done([], Code.SYSTEM_ERROR, str(error))
            return
        bounds = {queue.queue_id: (at.min_offset, at.max_offset) for queue, at in table.items()}
        shares = shared({queue: high - low for queue, (low, high) in bounds.items()}, self._count)
        self._tails = [
            _Tail(queue, bounds[queue][1] - share, bounds[queue][1])
            for queue, share in shares.items()
            if share
        ]
        self._go_on()

    def _go_on(self) -> None:
        """Pull from the first queue that has not contributed its share; then finish."""
        for tail in self._tails:
            if tail.at < tail.end and self._size_bytes < FILTER_TRIED_BYTES_MAX:
                self._pull(tail)
                return
        found = [one for tail in self._tails for one in tail.found]
        found.sort(key=lambda one: one.message.store_timestamp if one.message else 0)
        self._done(found, Code.SUCCESS, "")

    def _pull(self, tail: _Tail) -> None:
        def answered(answer: BrokerAnswered) -> None:
            if answer.code not in _PLACED and self._ended(answer):
                return
            self._take(tail, answer)
            self._go_on()

        self._token = self._turn.ask(
            PullMessage(
                consumer_group=GROUP,
                topic=self._topic,
                queue_id=tail.queue_id,
                queue_offset=tail.at,
                max_msg_nums=tail.end - tail.at,
                sys_flag=int(PullFlag.SUBSCRIPTION),
                subscription=MATCH_ALL,
                expression_type=TAG,
                max_msg_bytes=PULL_SIZE_BYTES_MAX,
            ),
            answered,
            to=self._to,
        )

    def _take(self, tail: _Tail, answer: BrokerAnswered) -> None:
        place = answer.header
        if isinstance(place, PullResponse) and place.next_begin_offset > tail.at:
            tail.at = place.next_begin_offset
        else:
            tail.at = tail.end  # no more messages here
        if answer.code != Code.SUCCESS:
            return
        run = memoryview(b"".join(answer.body))
        self._size_bytes += len(run)
        try:
            bounds = bounds_of(run)
        except KourouError:  # malformed reply: skip the rest of this queue
            tail.at = tail.end
            return
        for begin, end in pairwise(bounds):
            tail.found.append(Sampled(run[begin:end], _read(run[begin:end])))

    def _ended(self, answer: BrokerAnswered) -> bool:
        trouble = trouble_of(answer)
        if trouble:
            code = Code.SERVICE_NOT_AVAILABLE if answer.error is not None else answer.code
            self._done([], code, trouble)
        return bool(trouble)


_PLACED = (
    Code.SUCCESS,
    Code.PULL_NOT_FOUND,
    Code.PULL_RETRY_IMMEDIATELY,
    Code.PULL_OFFSET_MOVED,
    Code.MESSAGE_CORRUPT,
)


def _read(record: memoryview) -> StoredMessage | None:
    try:
        return decode_record(record, verify=False, decompress=False)
    except KourouError:  # the worker reports the error
        return None


def shared(lengths: Mapping[int, int], count: int) -> dict[int, int]:
    """The number of messages from each queue, together `count` if there are that many."""
    shares = dict.fromkeys(sorted(lengths), 0)
    left = count
    while left > 0:
        able = [queue for queue in shares if shares[queue] < lengths[queue]]
        if not able:
            break
        each = max(1, left // len(able))
        for queue in able:
            more = min(each, lengths[queue] - shares[queue], left)
            shares[queue] += more
            left -= more
    return shares
