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
from kourou.runtime import Peer
from kourou_filter_server.catalogue import FilterStatus
from kourou_filter_server.context import CoreContext, ServerPolicy, VersionCounts
from kourou_filter_server.interface import Buffer, SendToBroker
from kourou_filter_server.jobs import NO, YES, FilterJob, offset_of

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
class Remainder:
    """The filtered records of a run that are not sent yet: from number `at` to `end` (exclusive).

    The next pull starts at `offset`; after the last record, the broker continues at `behind`.
    `place` and `found_ms` are of the broker's reply. `committed` is the offset that the broker last
    received from the pulls served from this.
    """

    job: FilterJob
    end: int
    behind: int
    place: PullResponse
    status: FilterStatus
    peer: Peer
    found_ms: int
    committed: int | None = None
    at: int = 0
    offset: int = 0

    def note_commit(self, request: PullMessage) -> bool:
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
        run, bounds, results = job.run, job.bounds, job.results
        pieces: list[memoryview] = []
        passed = size = 0
        while True:
            first = results.find(YES, at, end)
            if first < 0:
                at = end
                break
            at = results.find(NO, first, end)
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
        active, failure = self.status.version, self.status.failure
        by_it = active is not None and active.version == self.job.version
        return by_it and failure is None and not self.job.unfiltered

    def go_to(self, number: int) -> None:
        """Continue at that record: all records before it are in a reply."""
        self.at = number
        job = self.job
        self.offset = self.behind if number == self.end else offset_of(job.run, job.bounds[number])


class Prefetch:
    """The remainders, at most one for each queue, and the prefetch size of each queue."""

    def __init__(self, context: CoreContext, policy: ServerPolicy) -> None:
        self._context = context
        self._policy = policy
        self._remainders: dict[Queue, Remainder] = {}
        self._reach: dict[Queue, int] = {}
        self.kept_bytes = 0
        self.used = 0

    def __len__(self) -> int:
        return len(self._remainders)

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

    def part(
        self, queue: Queue, remainder: Remainder, count_max: int, bytes_max: int
    ) -> tuple[Buffer, int]:
        """Take the records of one reply, and keep the remainder again if that is allowed.

        Returns the records and their number.
        """
        number, passed, body = remainder.part(count_max, bytes_max)
        remainder.go_to(number)
        if number == remainder.job.count:
            self.used_up(queue, number)
        elif number < remainder.end and remainder.may_be_kept:
            self.keep(queue, remainder)
        return body, passed

    def commit(self, remainder: Remainder, request: PullMessage) -> None:
        """Send the broker the offset commit of a pull that is served from a remainder."""
        if remainder.note_commit(request):
            self._context.do(
                SendToBroker(
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

    def keep(self, queue: Queue, remainder: Remainder) -> None:
        """Keep a remainder for the next pull of this queue."""
        self._drop(queue)
        self._remainders[queue] = remainder
        self.kept_bytes += len(remainder.job.run)
        while self.kept_bytes > self._policy.ahead_kept_bytes:
            self._drop(next(iter(self._remainders)))  # the least recently used one

    def take(self, queue: Queue, offset: int, status: FilterStatus) -> Remainder | None:
        """Remove and return the remainder for a pull at this offset.

        None if there is none, or if it cannot be used: it is expired, has another offset, or
        another version or policy is in force; then it is dropped.
        """
        remainder = self._remainders.get(queue)
        if remainder is None:
            return None
        if remainder.offset != offset or not self._holds(remainder, status):
            self._drop(queue)
            return None
        self._remove(queue)
        self.used += 1
        return remainder

    def _holds(self, remainder: Remainder, status: FilterStatus) -> bool:
        return self._context.now_ms < remainder.found_ms + KEEP_MS and remainder.status == status

    def _remove(self, queue: Queue) -> None:
        self.kept_bytes -= len(self._remainders.pop(queue).job.run)

    def _drop(self, queue: Queue) -> None:
        remainder = self._remainders.get(queue)
        if remainder is not None:
            self._reach[queue] = remainder.at
            self._remove(queue)

    # -- expiry -----------------------------------------------------------------------------------

    def lost(self, peer: Peer) -> None:
        """Drop the remainders of a closed connection."""
        for queue in [
            queue for queue, remainder in self._remainders.items() if remainder.peer.id == peer.id
        ]:
            self._drop(queue)

    def tick(self) -> None:
        """Drop the expired remainders."""
        oldest_ms = self._context.now_ms - KEEP_MS
        for queue in [
            queue
            for queue, remainder in self._remainders.items()
            if remainder.found_ms <= oldest_ms
        ]:
            self._drop(queue)

    def filters_changed(self, status_of: Callable[[FilterKey], FilterStatus]) -> None:
        """Drop the remainders of filters whose version or policy changed."""
        for queue, remainder in list(self._remainders.items()):
            if status_of(queue[0]) != remainder.status:
                self._drop(queue)

    def clear(self) -> None:
        """Drop all remainders: the connection to the broker was lost, so they may be outdated."""
        for queue in list(self._remainders):
            self._drop(queue)
