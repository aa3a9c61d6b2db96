"""Finds the half messages that were open when the log ended.

From the committed offset of the half queue on, every half message that no op record ends is open. A
copy that was put back replaces the half message that it was made of. Progress is recorded only
every few seconds, so both may come after the committed offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.engine.groups.progress import Commits
from kourou.engine.ports import ANYWHERE, StoreView
from kourou.engine.transactions.half_messages import (
    HALF_TARGET,
    OP_TARGET,
    HalfRecord,
    Identity,
    ended_by,
    read_half,
)
from kourou.engine.transactions.open_halves import TRANSACTION_GROUP, OpenHalf, OpenHalves
from kourou.errors import BadRequest, Corrupt
from kourou.model.transaction import BatchMark
from kourou.protocol.record.layout import parts_of

READ_MESSAGES = 1_024
READ_BYTES = 4 * 1024 * 1024


def open_halves(view: StoreView, commits: Commits, now_ms: int, wall_ms: int) -> OpenHalves:
    """Return the open half messages of a recovered store; O(messages after the progress)."""
    half_low, half_end = _range(view, commits, HALF_TARGET)
    op_low, _ = _range(view, commits, OP_TARGET)
    halves = OpenHalves(half_low, op_low)
    ended: set[int] = set()
    for raw in _records(view, OP_TARGET, op_low):
        parts = parts_of(raw, 0, len(raw))
        offsets = ended_by(bytes(raw[parts.body_at : parts.body_end]))
        ended.update(offsets)
        halves.noted(parts.queue_offset, max(offsets, default=-1))
    gone: set[Identity] = set()
    seen: dict[Identity, OpenHalf] = {}
    for raw in _records(view, HALF_TARGET, half_low):
        try:
            half = read_half(raw)
        except Corrupt:  # intact, but not a half message: it can never be resolved
            continue
        identity, again = half.identity, half.was_put_back
        offset, former = half.queue_offset, None
        if identity is not None and again:
            former = seen.pop(identity, None)
        if former is not None:
            halves.close(former, identity)
        if offset in ended or half.first_offset in ended or (again and identity in gone):
            halves.passed(offset)
            if identity is not None:
                gone.add(identity)
            continue
        mark = _mark(half)
        if mark is not None:
            age_ms = max(wall_ms - half.store_ms, 0)
            halves.open_batch(mark, offset, half.position, now_ms - age_ms, proven=False)
            continue
        one = _opened(half, now_ms, wall_ms)
        if again:
            halves.open_copy(one, identity)
        else:
            halves.open(one)
        if identity is not None:
            seen[identity] = one
    halves.passed(half_end - 1)
    return halves


def _mark(half: HalfRecord) -> BatchMark | None:
    try:
        return half.mark
    except BadRequest:  # another broker accepted it; it gets check-backs like any other
        return None


def _opened(half: HalfRecord, now_ms: int, wall_ms: int) -> OpenHalf:
    since_ms = half.store_ms
    if half.was_put_back:  # its first store time is unknown; RocketMQ uses its birth, too
        since_ms = min(since_ms, half.born_ms)
    return OpenHalf(
        half.queue_offset,
        half.position,
        now_ms - max(wall_ms - since_ms, 0),
        half.checks,
        half.immunity_ms,
        proven=False,
    )


def _range(view: StoreView, commits: Commits, target: tuple[str, int]) -> tuple[int, int]:
    low, high = view.queue_range(*target) or (0, 0)
    committed = commits.offset(TRANSACTION_GROUP, *target)
    # An offset outside the queue belongs to a deleted queue, or to a truncated log.
    return (low if committed is None else min(max(committed, low), high)), high


def _records(view: StoreView, target: tuple[str, int], offset: int) -> Iterator[memoryview]:
    _, high = view.queue_range(*target) or (0, 0)
    while offset < high:
        read = view.read_queue(
            *target,
            offset,
            max_messages=READ_MESSAGES,
            max_bytes=READ_BYTES,
            codes=None,
            below=ANYWHERE,
        )
        yield from read.records
        if read.next_offset <= offset:
            return
        offset = read.next_offset
