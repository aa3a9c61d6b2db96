"""Stores sends that arrive together in one append.

Most of the cost of a small send does not depend on its number of messages. So the sends of one
batch share it: their records are checked, numbered, stamped and written together.

Invariants:
- records are stored in the order in which their sends arrived
- every sender gets the reply that it would get separately
- if anything is wrong with one of them, nothing is stored, and each is handled separately

State: none of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from kourou.engine.effects import Effect
from kourou.engine.policy import BrokerPolicy
from kourou.engine.sends.appends import Appends, Numbers, Target, Written
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.deduplication import Repeats, identities_of
from kourou.engine.sends.send_frames import Frame, check_target_bytes, open_send
from kourou.engine.sends.send_handler import Sending
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.errors import Code, KourouError
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.protocol.messages.sending import SendRecords, SendRecordsResponse
from kourou.protocol.record.batch import check_drafts
from kourou.runtime.core import Buffer, Received, Reply


class JointSends:
    """Combines several sends into one append."""

    def __init__(
        self,
        sending: Sending,
        appends: Appends,
        confirmations: Confirmations,
        repeats: Repeats,
        policy: BrokerPolicy,
        redirects: Redirects,
    ) -> None:
        self._sending = sending
        self._appends = appends
        self._confirmations = confirmations
        self._repeats = repeats
        self._policy = policy
        self._redirects = redirects

    def groups(self, now_ms: int, sends: Sequence[Received]) -> Iterator[list[Received]]:
        """Yield the sends in order, split into groups that may be stored together."""
        group: list[Received] = []
        room_count = room_bytes = 0
        for received in sends:
            request = received.request
            assert isinstance(request, SendRecords)
            count = len(request.sizes) // 4
            size = len(received.body[0]) if len(received.body) == 1 else 0
            alone = (
                not size
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
        """Store a group in one append and reply to each; None if they must go separately."""
        if len(group) < 2:
            return None
        try:
            return self._store(now_ms, group)
        except KourouError:
            return None  # handling each separately finds the one at fault

    def _store(self, now_ms: int, group: Sequence[Received]) -> list[Effect] | None:
        numbers: dict[Target, int] = {}
        parts = [_part(received, numbers) for received in group]
        targets = list(numbers)
        if not all(self._sending.knows(topic) for topic, _ in targets):
            return None  # the first of them creates the topic, in its place in the order
        sizes, target_of = array("q"), array("q")
        for part in parts:
            sizes += part.frame.sizes
            target_of += part.target_of
        records = bytearray().join([part.frame.records for part in parts])
        drafts = check_drafts(records, sizes, self._policy.body_size_max)
        check_target_bytes(drafts, targets, target_of)
        for target in targets:
            self._sending.require_target(group[0], parts[0].request, target)
        wall_ms = max(received.wall_ms for received in group)
        own_targets = [targets[number] for number in target_of]
        moved: dict[int, tuple[Buffer, Target]] = {}
        if drafts.elsewhere:
            single = drafts.records()
            if not self._redirects.are_ready(single[row] for row in drafts.elsewhere):
                return None
            for row in drafts.elsewhere:
                moved[row] = self._redirects.moved(single[row], own_targets[row], wall_ms)
        if self._watching and self._repeats.remembers(identities_of(drafts, own_targets, moved)):
            return None
        if moved:
            written = self._sending.store_some(
                drafts, range(len(drafts)), own_targets, moved, wall_ms
            )
        else:
            written = self._appends.write(records, sizes, targets, target_of, wall_ms)
            self._confirmations.append(written.end)
            self._sending.count(targets, target_of, sizes)
        effects = self._appends.take_done()
        for part, header in zip(parts, _headers(parts, written, moved.keys()), strict=True):
            reply = Reply(part.received.to, Code.SUCCESS, "", header)
            wait = part.request.wait
            effects += self._confirmations.owe(now_ms, written.end, reply, wait=wait)
        return effects

    @property
    def _watching(self) -> bool:
        return self._policy.deduplicate_retried_sends and self._repeats.watching


class _Part(NamedTuple):
    """One send of a group. `target_of` has the index of each record's queue in the group."""

    received: Received
    request: SendRecords
    frame: Frame
    target_of: Numbers


def _part(received: Received, numbers: dict[Target, int]) -> _Part:
    request = received.request
    assert isinstance(request, SendRecords)
    frame = open_send(received, request)
    targets = [
        numbers.setdefault((target.topic, target.queue_id), len(numbers))
        for target in request.targets
    ]
    if frame.target_of is None:
        target_of = array("q", targets) * len(frame.sizes)
    else:
        target_of = array("q", [targets[number] for number in frame.target_of])
    return _Part(received, request, frame, target_of)


def _headers(
    parts: Sequence[_Part], written: Written, moved: Set[int]
) -> Iterator[SendRecordsResponse]:
    """Yield each sender's response: its part of the append, counted from its first record.

    A part that includes `moved` records lists the offset and position of each record.
    """
    offsets, positions = written.offsets.tolist(), written.positions.tolist()
    first = 0
    for part in parts:
        end = first + len(part.target_of)
        targets = part.request.targets
        if moved and not moved.isdisjoint(range(first, end)):
            queue_ids = [target.queue_id for target in targets]
            numbers = part.frame.target_of or [0] * (end - first)
            yield SendRecordsResponse(
                target_codes=[int(Code.SUCCESS)] * len(targets),
                target_remarks=[""] * len(targets),
                target_offsets=[-1] * len(targets),
                runs=[],
                offsets=offsets[first:end],
                positions=positions[first:end],
                queue_ids=[queue_ids[number] for number in numbers],
            )
        else:
            own = part.frame.target_of
            rows = [0] if own is None else map(own.index, range(len(targets)))
            runs = [(0, positions[first])]
            if len(written.runs) > 1:
                runs += [(at - first, place) for at, place in written.runs if first < at < end]
            yield SendRecordsResponse(
                target_codes=[int(Code.SUCCESS)] * len(targets),
                target_remarks=[""] * len(targets),
                target_offsets=[offsets[first + row] for row in rows],
                runs=runs,
            )
        first = end
