"""Records that were judged before their consumer asked for them, and how far ahead that pays.

    upstream   1,000 messages, one question and a few batches
    consumer   32 of them, as it asked for; its next pull, at the very next offset, gets 32 more

How many are asked for ahead begins with what the consumer asks for itself, and doubles whenever all
of it was used; when something was left unused, it is no more than what was used. It is bounded by
what the filter judges in AHEAD_US and by bytes.

A rest is used only at its offset, by the verdicts of the version and under the policy that are in
force then, and for KEEP_MS after the broker sent it: so long nothing else the broker may have
decided since (a topic deleted, messages expired) is passed over. It goes with its consumer's
connection, and when the broker was away.

State: soft, bounded; what is dropped is read and judged again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kourou.model.filter import FilterKey
from kourou.protocol.messages.offsets import UpdateConsumerOffset
from kourou.protocol.messages.pulling import PullFlag, PullMessage, PullResponse
from kourou.runtime.peer import Peer
from kourou_filter_server.catalogue import Standing
from kourou_filter_server.effects import TellBroker
from kourou_filter_server.inputs import Buffer
from kourou_filter_server.jobs import Job
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.records import NO, YES, offset_of
from kourou_filter_server.statistics import VersionCounts
from kourou_filter_server.turn import Turn

KEEP_MS = 5_000
"""How long after the broker's answer a rest of it may be used."""

AHEAD_US = 20_000
"""So much of a filter's time may go into one question to the broker, before its answer is known."""

COMMIT_OFFSET = int(PullFlag.COMMIT_OFFSET)

_QUEUES_KNOWN = 16_384
"""Of so many queues it is known how far ahead pays."""

Queue = tuple[FilterKey, str, int]
"""A filter, and the topic and number of a queue that is read through it."""


@dataclass(slots=True, eq=False)
class Rest:
    """The judged records of a run that no answer had yet: those from number `at` to `end`.

    The next pull begins at `offset`; `behind` the last of them the broker goes on. `place` and
    `found_ms` are of the broker's answer. `committed` is what it was last told of the group's
    progress by the pulls that this served.
    """

    job: Job
    end: int
    behind: int
    place: PullResponse
    standing: Standing
    peer: Peer
    found_ms: int
    committed: int | None = None
    at: int = 0
    offset: int = 0

    def told(self, request: PullMessage) -> bool:
        """The broker hears of this pull, or of its offset; is that news?"""
        if not request.sys_flag & COMMIT_OFFSET or request.commit_offset == self.committed:
            return False
        self.committed = request.commit_offset
        return True

    def part(self, count_max: int, bytes_max: int) -> tuple[int, int, Buffer]:
        """What the next answer has: number behind its last record, how many pass, these records.

        It ends before the first wanted record that does not fit, so that all behind it is known;
        the first one fits always. Neighbours are cut out together. Most of a run is a view of it;
        less is a copy, so that a few records do not keep millions of bytes in memory until a slow
        peer has taken them.
        """
        job, end, at = self.job, self.end, self.at
        run, bounds, verdicts = job.run, job.bounds, job.verdicts
        pieces: list[memoryview] = []
        passed = size = 0
        while True:
            first = verdicts.find(YES, at, end)
            if first < 0:
                at = end
                break
            at = verdicts.find(NO, first, end)
            if at < 0:
                at = end
            begin = bounds[first]
            at = min(at, first + count_max - passed)
            if bounds[at] - begin > bytes_max - size:
                at = bisect_right(bounds, begin + bytes_max - size, first, at) - 1
                if at <= first and not passed:
                    at = first + 1
            if at <= first:
                at = first
                break
            pieces.append(run[begin : bounds[at]])
            passed += at - first
            size += bounds[at] - begin
        if len(pieces) == 1 and 2 * size > len(run):
            return at, passed, pieces[0]
        return at, passed, b"".join(pieces)

    @property
    def may_be_kept(self) -> bool:
        """Is it the work of the version that is in force, and of nothing else?"""
        active, failure = self.standing.version, self.standing.failure
        by_it = active is not None and active.version == self.job.version
        return by_it and failure is None and not self.job.unfiltered

    def go_to(self, number: int) -> None:
        """Everything before that record is answered."""
        self.at = number
        job = self.job
        self.offset = self.behind if number == self.end else offset_of(job.run, job.bounds[number])


class Ahead:
    """The rests of all queues, at most one each, and how far ahead to ask."""

    def __init__(self, turn: Turn, policy: ServerPolicy) -> None:
        self._turn = turn
        self._policy = policy
        self._rests: dict[Queue, Rest] = {}
        self._reach: dict[Queue, int] = {}
        self.kept_bytes = 0
        self.used = 0

    def __len__(self) -> int:
        return len(self._rests)

    # -- how far ----------------------------------------------------------------------------------

    def reach(self, queue: Queue, least: int, counts: VersionCounts) -> int:
        """How many messages to ask for, of a consumer that asked for `least`."""
        policy, seen = self._policy, counts.seen
        if not seen:
            return least
        most = min(
            policy.ahead_messages,
            AHEAD_US * seen // max(1, counts.micros),
            policy.ahead_bytes * seen // max(1, counts.bytes_in),
        )
        return max(least, min(most, self._reach.get(queue, least)))

    def used_up(self, queue: Queue, count: int) -> None:
        """All of `count` messages was used: twice as many may be."""
        known = self._reach
        if queue not in known and len(known) >= _QUEUES_KNOWN:
            del known[next(iter(known))]
        known[queue] = min(2 * count, self._policy.ahead_messages)

    def part(self, queue: Queue, rest: Rest, count_max: int, bytes_max: int) -> tuple[Buffer, int]:
        """The records of an answer out of this, and how many; what is behind them may be kept."""
        number, passed, body = rest.part(count_max, bytes_max)
        rest.go_to(number)
        if number == rest.job.count:
            self.used_up(queue, number)
        elif number < rest.end and rest.may_be_kept:
            self.keep(queue, rest)
        return body, passed

    def commit(self, rest: Rest, request: PullMessage) -> None:
        """Tell the broker what it would have learned by this pull, which it does not see."""
        if rest.told(request):
            self._turn.do(
                TellBroker(
                    UpdateConsumerOffset(
                        consumer_group=request.consumer_group,
                        topic=request.topic,
                        queue_id=request.queue_id,
                        commit_offset=request.commit_offset,
                        bname=request.bname,
                    )
                )
            )

    # -- rests ------------------------------------------------------------------------------------

    def keep(self, queue: Queue, rest: Rest) -> None:
        """This may be asked for next."""
        self._drop(queue)
        self._rests[queue] = rest
        self.kept_bytes += len(rest.job.run)
        while self.kept_bytes > self._policy.ahead_kept_bytes:
            self._drop(next(iter(self._rests)))  # the one that nobody came for, for longest

    def take(self, queue: Queue, offset: int, standing: Standing) -> Rest | None:
        """What is there for a pull at this offset. Another offset: that consumer went elsewhere."""
        rest = self._rests.get(queue)
        if rest is None:
            return None
        if rest.offset != offset or not self._holds(rest, standing):
            self._drop(queue)
            return None
        self._remove(queue)
        self.used += 1
        return rest

    def _holds(self, rest: Rest, standing: Standing) -> bool:
        return self._turn.now_ms < rest.found_ms + KEEP_MS and rest.standing == standing

    def _remove(self, queue: Queue) -> None:
        self.kept_bytes -= len(self._rests.pop(queue).job.run)

    def _drop(self, queue: Queue) -> None:
        rest = self._rests.get(queue)
        if rest is not None:
            self._reach[queue] = rest.at
            self._remove(queue)

    # -- what ends them ---------------------------------------------------------------------------

    def lost(self, peer: Peer) -> None:
        """A connection is gone."""
        for queue in [queue for queue, rest in self._rests.items() if rest.peer.id == peer.id]:
            self._drop(queue)

    def tick(self) -> None:
        """Let go of what is too old."""
        oldest_ms = self._turn.now_ms - KEEP_MS
        for queue in [queue for queue, rest in self._rests.items() if rest.found_ms <= oldest_ms]:
            self._drop(queue)

    def filters_changed(self, standing_of: Callable[[FilterKey], Standing]) -> None:
        """Other versions may be in force."""
        for queue, rest in list(self._rests.items()):
            if standing_of(queue[0]) != rest.standing:
                self._drop(queue)

    def clear(self) -> None:
        """The broker was away: what it sent may be old."""
        for queue in list(self._rests):
            self._drop(queue)
