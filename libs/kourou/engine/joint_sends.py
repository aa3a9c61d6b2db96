"""Sends that arrive together are stored together.

Lives here: which sends of one turn of the loop may become one append, and what each of their
senders is told of it.
May not live here: the rules of a send (kourou.engine.sending), numbering (kourou.engine.appends).

Most of the cost of a small send does not depend on how many messages it has. So those that wait for
the same turn share it: their records are checked, numbered, stamped and written as one batch.

Invariants: records are stored in the order in which their sends arrived; every sender is told what
it would have been told alone; if anything at all is wrong with one of them, nothing was done, and
each is dealt with by itself.

State: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kourou.engine.appends import Appends, Lane, Written
from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect, Reply
from kourou.engine.inputs import Buffer, Received
from kourou.engine.policy import BrokerPolicy
from kourou.engine.repeats import Repeats
from kourou.engine.send_frames import check_lane_bytes, open_send
from kourou.engine.sending import Sending
from kourou.errors import Code, KourouError
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.protocol.messages.sending import SendRecords, SendRecordsResponse
from kourou.protocol.record_batch import check_drafts
from kourou.protocol.single_draft import may_go_elsewhere

_PROPERTIES_SEEN_BYTES = 512

RECORDS_MIN = 24
"""Fewer records are quicker stored one by one."""


class JointSends:
    """Makes one append of several sends."""

    def __init__(
        self,
        sending: Sending,
        appends: Appends,
        confirmations: Confirmations,
        repeats: Repeats,
        policy: BrokerPolicy,
    ) -> None:
        self._sending = sending
        self._appends = appends
        self._confirmations = confirmations
        self._repeats = repeats
        self._policy = policy

    def groups(self, now_ms: int, sends: Sequence[Received]) -> Iterator[list[Received]]:
        """The sends in their order, cut into groups that may be stored together."""
        group: list[Received] = []
        room_count = room_bytes = 0
        watchful = self._policy.deduplicate_retried_sends
        for received in sends:
            request = received.request
            assert isinstance(request, SendRecords)
            count = len(request.sizes) // 4
            size = len(received.body[0]) if len(received.body) == 1 else 0
            alone = (
                (watchful and self._repeats.watching)  # perhaps only since the group before
                or not size
                or request.attempt != 1
                or received.to.traced
                or 0 < received.deadline_ms <= now_ms
            )
            if group and (alone or count > room_count or size > room_bytes):
                yield group
                group = []
            if alone:
                yield [received]
                continue
            if not group:
                room_count, room_bytes = BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
            group.append(received)
            room_count -= count
            room_bytes -= size
        if group:
            yield group

    def store(self, now_ms: int, group: Sequence[Received]) -> list[Effect] | None:
        """Store a group as one append and answer each; None if they must go one by one."""
        if len(group) < 2:
            return None
        try:
            return self._store(now_ms, group)
        except KourouError:
            return None  # whose fault it was is found when each is looked at by itself

    def _store(self, now_ms: int, group: Sequence[Received]) -> list[Effect] | None:
        if any(_ends_elsewhere(received) for received in group):
            return None  # as below, before all is checked twice
        numbers: dict[Lane, int] = {}
        parts = [_part(received, numbers) for received in group]
        if sum(len(part.lane_of) for part in parts) < RECORDS_MIN:
            return None
        if not all(self._sending.knows(topic) for topic, _ in numbers):
            return None  # who comes first creates it, behind those that came before
        sizes = np.concatenate([part.sizes for part in parts])
        lane_of = np.concatenate([part.lane_of for part in parts])
        blob = bytearray().join([part.blob for part in parts])
        drafts = check_drafts(blob, sizes, self._policy.body_size_max)
        if drafts.elsewhere:
            return None  # each place of theirs is answered by itself
        lanes = list(numbers)
        check_lane_bytes(drafts, lanes, lane_of)
        for part in parts:
            for number in part.lanes:
                self._sending.require_lane(part.received, part.request, lanes[number])
        wall_ms = max(received.wall_ms for received in group)
        written = self._appends.write(blob, drafts, lanes, lane_of, wall_ms)
        self._confirmations.append(written.end)
        self._sending.count(lanes, lane_of, drafts)
        effects = self._appends.take_done()
        for part, header in zip(parts, _headers(parts, written), strict=True):
            reply = Reply(part.received.to, Code.SUCCESS, "", header)
            wait = part.request.wait
            effects += self._confirmations.owe(now_ms, written.end, reply, wait=wait)
        return effects


def _ends_elsewhere(received: Received) -> bool:
    """Does the last record of a send, at least, look as if it were delayed or half of something?"""
    return may_go_elsewhere(bytes(received.body[0][-_PROPERTIES_SEEN_BYTES:]))


class _Part(NamedTuple):
    """One send of a group. `lanes` are the numbers of its lanes among those of the group."""

    received: Received
    request: SendRecords
    blob: Buffer
    sizes: npt.NDArray[np.int64]
    lanes: list[int]
    lane_of: npt.NDArray[np.uint16]


def _part(received: Received, numbers: dict[Lane, int]) -> _Part:
    request = received.request
    assert isinstance(request, SendRecords)
    blob, sizes, own_lane_of = open_send(received, request)
    lanes = [
        numbers.setdefault((lane.topic, lane.queue_id), len(numbers)) for lane in request.lanes
    ]
    if own_lane_of is None:
        lane_of = np.full(len(sizes), lanes[0], np.uint16)
    else:
        lane_of = np.asarray(lanes, np.uint16)[own_lane_of]
    return _Part(received, request, blob, sizes, lanes, lane_of)


def _headers(parts: Sequence[_Part], written: Written) -> Iterator[SendRecordsResponse]:
    """What each sender is told: its part of the append, numbered from its own first record."""
    next_offsets = list(written.lane_offsets)
    first = 0
    for part in parts:
        end = first + len(part.lane_of)
        offsets = [next_offsets[number] for number in part.lanes]
        if len(part.lanes) == 1:
            next_offsets[part.lanes[0]] += end - first
        else:
            counts = np.bincount(part.lane_of, minlength=len(next_offsets))
            for number in part.lanes:
                next_offsets[number] += int(counts[number])
        runs = [(0, int(written.positions[first]))]
        runs += [(at - first, position) for at, position in written.runs if first < at < end]
        yield SendRecordsResponse(
            lane_codes=[int(Code.SUCCESS)] * len(offsets),
            lane_remarks=[""] * len(offsets),
            lane_offsets=offsets,
            runs=runs,
        )
        first = end
