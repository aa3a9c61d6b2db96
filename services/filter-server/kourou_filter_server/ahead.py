"""Prefetching: records that were filtered before their consumer asked for them.

    upstream   1,000 messages, in one request and a few batches
    consumer   32 of them, as it asked for; its next pull, at the very next offset, gets 32 more

The number of messages to prefetch starts at what the consumer asks for and doubles whenever all of
them were used; if some were left unused, it drops to what was used. It is limited by what the
filter evaluates in AHEAD_US and by bytes.

A remainder is used only at its own offset, while the filter version and the policy that produced it
are in force, and for KEEP_MS after the broker sent it. Therefore no later change at the broker (a
deleted topic, expired messages) is ignored for longer than that. A remainder is dropped when its
consumer's connection closes or the connection to the broker was lost.

State: soft, bounded; what is dropped is read and filtered again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kourou.model.filter import FilterKey
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse, UpdateConsumerOffset
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
"""How long after the broker's reply a remainder of it may be used."""

AHEAD_US = 20_000
"""The maximum processor time of a filter for one prefetch request, by its measured speed."""

COMMIT_OFFSET = int(PullFlag.COMMIT_OFFSET)

_QUEUES_KNOWN = 16_384
"""The number of queues whose prefetch size is remembered."""

Queue = tuple[FilterKey, str, int]
"""A filter, and the topic and number of a queue that is read through it."""


@dataclass(slots=True, eq=False)
class Rest:
    """The filtered records of a run that are not sent yet: from number `at` to `end` (exclusive).

    The next pull starts at `offset`; after the last record, the broker continues at `behind`.
    `place` and `found_ms` are of the broker's reply. `committed` is the offset that the broker last
    received from the pulls served from this.
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
        """Note the offset that this pull commits; False if it commits none or no new one."""
        if not request.sys_flag & COMMIT_OFFSET or request.commit_offset == self.committed:
            return False
        self.committed = request.commit_offset
        return True

    def part(self, count_max: int, bytes_max: int) -> tuple[int, int, Buffer]:
        """The next reply: number of the first record after it, count of passing records, their
        bytes.

        It ends before the first passing record that does not fit; the first one always fits.
        Adjacent records are copied as one piece. If the result is most of the run, it is a view of
        the run; a smaller result is a copy, so that a few records do not keep megabytes in memory
        until a slow peer has read them.
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
        """Whether all results are of the version in force, without unfiltered records."""
        active, failure = self.standing.version, self.standing.failure
        by_it = active is not None and active.version == self.job.version
        return by_it and failure is None and not self.job.unfiltered

    def go_to(self, number: int) -> None:
        """Continue at that record: all records before it are in a reply."""
        self.at = number
        job = self.job
        self.offset = self.behind if number == self.end else offset_of(job.run, job.bounds[number])


class Ahead:
    """The remainders, at most one for each queue, and the prefetch size of each queue."""

    def __init__(self, turn: Turn, policy: ServerPolicy) -> None:
        self._turn = turn
        self._policy = policy
        self._rests: dict[Queue, Rest] = {}
        self._reach: dict[Queue, int] = {}
        self.kept_bytes = 0
        self.used = 0

    def __len__(self) -> int:
        return len(self._rests)

    # -- prefetch size ----------------------------------------------------------------------------

    def reach(self, queue: Queue, least: int, counts: VersionCounts) -> int:
        """How many messages to request for a consumer that asked for `least`."""
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
        """Double the prefetch size of a queue, because all of `count` messages were used."""
        known = self._reach
        if queue not in known and len(known) >= _QUEUES_KNOWN:
            del known[next(iter(known))]
        known[queue] = min(2 * count, self._policy.ahead_messages)

    def part(self, queue: Queue, rest: Rest, count_max: int, bytes_max: int) -> tuple[Buffer, int]:
        """Take the records of one reply out of `rest`, and keep the remainder if that is allowed.

        Returns the records and their number.
        """
        number, passed, body = rest.part(count_max, bytes_max)
        rest.go_to(number)
        if number == rest.job.count:
            self.used_up(queue, number)
        elif number < rest.end and rest.may_be_kept:
            self.keep(queue, rest)
        return body, passed

    def commit(self, rest: Rest, request: PullMessage) -> None:
        """Send the broker the offset commit of a pull that is served from a remainder."""
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

    # -- remainders -------------------------------------------------------------------------------

    def keep(self, queue: Queue, rest: Rest) -> None:
        """Keep a remainder for the next pull of this queue."""
        self._drop(queue)
        self._rests[queue] = rest
        self.kept_bytes += len(rest.job.run)
        while self.kept_bytes > self._policy.ahead_kept_bytes:
            self._drop(next(iter(self._rests)))  # the least recently used one

    def take(self, queue: Queue, offset: int, standing: Standing) -> Rest | None:
        """Remove and return the remainder for a pull at this offset.

        None if there is none, or if it cannot be used: it is expired, has another offset, or
        another version or policy is in force; then it is dropped.
        """
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

    # -- expiry -----------------------------------------------------------------------------------

    def lost(self, peer: Peer) -> None:
        """Drop the remainders of a closed connection."""
        for queue in [queue for queue, rest in self._rests.items() if rest.peer.id == peer.id]:
            self._drop(queue)

    def tick(self) -> None:
        """Drop the expired remainders."""
        oldest_ms = self._turn.now_ms - KEEP_MS
        for queue in [queue for queue, rest in self._rests.items() if rest.found_ms <= oldest_ms]:
            self._drop(queue)

    def filters_changed(self, standing_of: Callable[[FilterKey], Standing]) -> None:
        """Drop the remainders of filters whose version or policy changed."""
        for queue, rest in list(self._rests.items()):
            if standing_of(queue[0]) != rest.standing:
                self._drop(queue)

    def clear(self) -> None:
        """Drop all remainders: the connection to the broker was lost, so they may be outdated."""
        for queue in list(self._rests):
            self._drop(queue)
