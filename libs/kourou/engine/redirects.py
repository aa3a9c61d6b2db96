"""Is a message stored where it was sent, or first elsewhere?

State: none; whoever takes the halves keeps theirs.

    asks for                          is stored in                   keeps in its properties
    TRAN_MSG=true                     RMQ_SYS_TRANS_HALF_TOPIC 0     REAL_TOPIC, REAL_QID
    DELAY above 0                     SCHEDULE_TOPIC_XXXX level-1    the same, DELAY at most the
                                                                     highest level

A message that failed before and waits for another attempt (reconsumeTimes, DELAY) carries the
properties of the transaction that once made it. It is not one again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from kourou.engine.appends import Lane, Numbers, Written
from kourou.errors import MessageIllegal
from kourou.model.message import Property
from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from kourou.protocol import kernel
from kourou.protocol.properties import find_property
from kourou.protocol.record_columns import RecordColumns
from kourou.protocol.record_layout import parts_of
from kourou.protocol.record_moves import Changes, moved_draft
from kourou.runtime.inputs import Buffer

HALF_LANE: Lane = (HALF_TOPIC, 0)
"""Where the halves of transactions wait."""

_DELAY = Property.DELAY.encode()
_TRANSACTION = Property.TRAN_MSG.encode()
_DELAY_MARK = _DELAY + b"\x01"
_TRANSACTION_MARK = _TRANSACTION + b"\x01"
_REASONS = (_DELAY, _TRANSACTION)
_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QID = Property.REAL_QID.encode()
_LEVEL = re.compile(rb"[+-]?[0-9]{1,10}")


class Halves(Protocol):
    """Who takes the first halves of transactions."""

    @property
    def takes_halves(self) -> bool:
        """May they be stored, without anything to be made first?"""
        ...

    def half(self, draft: Buffer, lane: Lane, wall_ms: int) -> bytes:
        """The half of a message for `lane` as a draft for `HALF_LANE`. Raises Rejected."""
        ...

    def stored(self, offset: int, position: int, half: Buffer, wall_ms: int) -> None:
        """This half has this offset in `HALF_LANE` and this position in the log now."""
        ...


class HalfFrames(Protocol):
    """Who takes whole frames of first halves."""

    def store(
        self, drafts: RecordColumns, lanes: Sequence[Lane], lane_of: Numbers | None, wall_ms: int
    ) -> Written | None:
        """Store checked drafts that are halves, every one; None if they go one by one."""
        ...


class Redirects:
    """Decides where drafts go; `delay_levels_ms` are the delays of the levels from 1 on."""

    def __init__(self, delay_levels_ms: tuple[int, ...], halves: Halves | None = None) -> None:
        self._levels = len(delay_levels_ms)
        self.halves = halves
        self.half_frames: HalfFrames | None = None

    def are_ready(self, drafts: Iterable[Buffer]) -> bool:
        """Does `moved` change nothing? The first half of all makes the topics of transactions."""
        halves = self.halves
        if halves is None or halves.takes_halves:
            return True
        return not any(_TRANSACTION_MARK in bytes(draft) for draft in drafts)

    def moved(self, draft: Buffer, lane: Lane, wall_ms: int) -> tuple[Buffer, Lane]:
        """The draft and the lane it goes to; those given, if it stays.

        Raises MessageIllegal if it asks for what cannot be, and what `Halves.half` raises.
        """
        ((delay, transaction),) = kernel.values((draft,), _REASONS)
        level = _level_of(delay)
        if _is_true(transaction) and not (level > 0 and _failed_before(draft)):
            if self.halves is None:
                raise MessageIllegal("this broker does not accept transactional messages")
            return self.halves.half(draft, lane, wall_ms), HALF_LANE
        return self.delayed(draft, lane, level) if level > 0 else (draft, lane)

    def delayed(
        self,
        record: Buffer,
        lane: Lane,
        level: int,
        changes: Changes = (),
        *,
        reconsume_times: int = -1,
    ) -> tuple[bytes, Lane]:
        """The record as a draft that waits at `level`, above 0, and then goes to `lane`.

        With these changes of its properties; `reconsume_times` unless it is negative. Raises
        MessageIllegal if they grow beyond what fits.
        """
        level = min(level, self._levels)
        waiting = (SCHEDULE_TOPIC, level - 1)
        changes += (
            (_DELAY, b"%d" % level),
            (_REAL_TOPIC, lane[0].encode()),
            (_REAL_QID, b"%d" % lane[1]),
        )
        return moved_draft(record, waiting, changes, reconsume_times=reconsume_times), waiting

    def stored(self, lane: Lane, offset: int, position: int, draft: Buffer, wall_ms: int) -> None:
        """A draft that `moved` returned was stored there: tell whom it concerns."""
        if lane == HALF_LANE and self.halves is not None:
            self.halves.stored(offset, position, draft, wall_ms)


def may_go_elsewhere(properties: bytes) -> bool:
    """Might a message of these encoded properties have to wait in another topic first? Answers
    fast, and too often yes."""
    return _DELAY_MARK in properties or _TRANSACTION_MARK in properties


def delay_level(properties: bytes) -> int:
    """The delay level that encoded properties ask for, as it stands there; 0 if they do not.

    Raises MessageIllegal for one that is no number: delivered at once it would come too early.
    """
    return _level_of(find_property(properties, _DELAY))


def is_transactional(properties: bytes) -> bool:
    """Do encoded properties say that a transaction decides about the message?"""
    return _is_true(find_property(properties, _TRANSACTION))


def _failed_before(draft: Buffer) -> bool:
    return parts_of(draft, 0, len(draft)).reconsume_times > 0


def _is_true(raw: bytes | None) -> bool:
    return raw is not None and raw.lower() == b"true"


def _level_of(raw: bytes | None) -> int:
    if raw is None:
        return 0
    if _LEVEL.fullmatch(raw) is None:
        text = raw[:40].decode("utf-8", "replace")
        raise MessageIllegal(
            f"the property DELAY is {text!r}; it must be the number of a delay level; "
            "nothing was stored"
        )
    return int(raw)
