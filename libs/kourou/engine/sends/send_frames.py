"""Decodes the header of a coalesced send, and checks its records against it."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from kourou.engine.sends.appends import Numbers, Target
from kourou.errors import BadRequest, MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX
from kourou.protocol import kernel
from kourou.protocol.kernel_python import OTHER_QUEUE
from kourou.protocol.messages.sending import SendRecords
from kourou.protocol.record.columns import RecordColumns
from kourou.runtime.core import Buffer, Received


class Frame(NamedTuple):
    """The records of a send, back to back, and their sizes.

    `target_of` has the index of each record's queue, None if there is only one queue.
    """

    records: Buffer
    sizes: Numbers
    target_of: Numbers | None


def open_send(received: Received, request: SendRecords) -> Frame:
    """Return the records of a send. Raises BadRequest if the header contradicts itself.

    The records are not checked.
    """
    if len(received.body) != 1:
        raise BadRequest(f"a send must have one body part, this one has {len(received.body)}")
    if not request.targets:
        raise BadRequest("a send must name at least one queue")
    sizes = _numbers(request.sizes, "I", 4, "sizes")
    count, targets = len(sizes), len(request.targets)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise BadRequest(
            f"a send must have 1 to {BATCH_MESSAGES_MAX} records, this one has {count}"
        )
    if targets > count or (targets > 1 and len(set(request.targets)) < targets):
        # Each queue is numbered separately: one listed twice would assign offsets twice.
        raise BadRequest("a send must name each of its queues once, and only queues with records")
    if request.target_of:
        target_of = _numbers(request.target_of, "H", 2, "lane_of")
        if len(target_of) != count or max(target_of) >= targets:
            raise BadRequest("lane_of must assign each record to one of the queues")
        return Frame(received.body[0], sizes, target_of)
    if targets != 1:
        raise BadRequest(
            "a send to several queues must have lane_of, which assigns each record to a queue"
        )
    return Frame(received.body[0], sizes, None)


def check_target_bytes(
    drafts: RecordColumns, targets: Sequence[Target], target_of: Numbers | None
) -> None:
    """Raise MessageIllegal if a record's topic or queue ID differs from its queue's."""
    topics = [topic.encode() for topic, _ in targets]
    queue_ids = array("q", [queue_id for _, queue_id in targets])
    problem = kernel.check_targets(drafts.raw, drafts.raw_table, topics, queue_ids, target_of)
    if problem:
        what = "queue id" if problem == OTHER_QUEUE else "topic"
        raise MessageIllegal(
            f"the {what} of a record differs from that of its queue; nothing was stored"
        )


def _numbers(raw: bytes, kind: str, size: int, name: str) -> Numbers:
    if len(raw) % size:
        raise BadRequest(f"{name} is not a whole number of {size}-byte integers")
    return array("q", struct.unpack(f"<{len(raw) // size}{kind}", raw))


def without_refused(
    drafts: RecordColumns, target_of: Numbers | None, codes: Sequence[int]
) -> Frame | None:
    """Return only the records of accepted queues, back to back; None if there are none."""
    if target_of is None:
        return None
    kept = [row for row, number in enumerate(target_of) if not codes[number]]
    if not kept:
        return None
    pieces = [drafts.record(row) for row in kept]
    targets = array("q", [target_of[row] for row in kept])
    return Frame(b"".join(pieces), array("q", map(len, pieces)), targets)
