"""Decides whether a message is stored where it was sent, or in another topic first.

State: none; the implementation of `HalfStore` has its own.

    the message has                   is stored in                   its new properties
    TRAN_MSG=true                     RMQ_SYS_TRANS_HALF_TOPIC 0     REAL_TOPIC, REAL_QID
    DELAY above 0                     SCHEDULE_TOPIC_XXXX level-1    the same, DELAY at most the
                                                                     highest level

A message that failed before and waits for another attempt (reconsumeTimes, DELAY) still has the
properties of the transaction that created it. It is not a transaction again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from kourou.engine.sends.appends import AppendResult, Numbers, Target
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.errors import MessageIllegal
from kourou.model.message import Property
from kourou.model.names import SCHEDULE_TOPIC
from kourou.protocol import kernel
from kourou.protocol.record.columns import RecordColumns
from kourou.protocol.record.layout import parts_of
from kourou.protocol.record.message_record import Changes, moved_draft
from kourou.protocol.record.properties import find_property
from kourou.runtime import Buffer

_DELAY = Property.DELAY.encode()
_TRANSACTION = Property.TRAN_MSG.encode()
_DELAY_MARK = _DELAY + b"\x01"
_TRANSACTION_MARK = _TRANSACTION + b"\x01"
_REASONS = (_DELAY, _TRANSACTION)
_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QID = Property.REAL_QID.encode()
_LEVEL = re.compile(rb"[+-]?[0-9]{1,10}")


class HalfStore(Protocol):
    """Accepts half messages."""

    @property
    def takes_halves(self) -> bool:
        """Whether they can be stored without creating anything first."""
        ...

    def half(self, draft: Buffer, target: Target, wall_ms: int) -> bytes:
        """Return the half message for a draft in `target`, as a draft. Raises Rejected."""
        ...

    def stored(self, offset: int, position: int, half: Buffer, wall_ms: int) -> None:
        """Note that a half message was stored at this offset and log position."""
        ...


class HalfFrames(Protocol):
    """Accepts whole frames of half messages."""

    def store(
        self,
        drafts: RecordColumns,
        targets: Sequence[Target],
        target_of: Numbers | None,
        wall_ms: int,
    ) -> AppendResult | None:
        """Store checked drafts that are all half messages; None if they must go separately."""
        ...


class Redirects:
    """Decides where drafts are stored; `delay_levels_ms` has the delays from level 1 on."""

    def __init__(self, delay_levels_ms: tuple[int, ...], halves: HalfStore | None = None) -> None:
        self._levels = len(delay_levels_ms)
        self.halves = halves
        self.half_frames: HalfFrames | None = None

    def are_ready(self, drafts: Iterable[Buffer]) -> bool:
        """Return whether `moved` has no side effect; the first half message creates topics."""
        halves = self.halves
        if halves is None or halves.takes_halves:
            return True
        return not any(_TRANSACTION_MARK in bytes(draft) for draft in drafts)

    def moved(self, draft: Buffer, target: Target, wall_ms: int) -> tuple[Buffer, Target]:
        """Return the draft to store and its queue; unchanged if it is stored where it was sent.

        Raises MessageIllegal if the message requests what is impossible, and as `HalfStore.half`.
        """
        ((delay, transaction),) = kernel.values((draft,), _REASONS)
        level = _level_of(delay)
        if _is_true(transaction) and not (level > 0 and _failed_before(draft)):
            if self.halves is None:
                raise MessageIllegal("this broker does not accept transactional messages")
            return self.halves.half(draft, target, wall_ms), HALF_TARGET
        return self.delayed(draft, target, level) if level > 0 else (draft, target)

    def delayed(
        self,
        record: Buffer,
        target: Target,
        level: int,
        changes: Changes = (),
        *,
        reconsume_times: int = -1,
    ) -> tuple[bytes, Target]:
        """Return the record as a draft that waits at `level`, above 0, and then goes to `target`.

        `changes` applies to its properties; `reconsume_times` is set unless it is negative. Raises
        MessageIllegal if the properties become too large.
        """
        level = min(level, self._levels)
        waiting = (SCHEDULE_TOPIC, level - 1)
        changes += (
            (_DELAY, b"%d" % level),
            (_REAL_TOPIC, target[0].encode()),
            (_REAL_QID, b"%d" % target[1]),
        )
        return moved_draft(record, waiting, changes, reconsume_times=reconsume_times), waiting

    def stored(
        self, target: Target, offset: int, position: int, draft: Buffer, wall_ms: int
    ) -> None:
        """Note that a draft that `moved` returned was stored."""
        if target == HALF_TARGET and self.halves is not None:
            self.halves.stored(offset, position, draft, wall_ms)


def may_be_rewritten(properties: bytes) -> bool:
    """Return whether a message with these properties may have to wait in another topic first.

    The check is fast, and may return True wrongly.
    """
    return _DELAY_MARK in properties or _TRANSACTION_MARK in properties


def delay_level(properties: bytes) -> int:
    """Return the delay level in encoded properties, unchanged; 0 if there is none.

    Raises MessageIllegal if it is not a number, because immediate delivery would be too early.
    """
    return _level_of(find_property(properties, _DELAY))


def is_transactional(properties: bytes) -> bool:
    """Return whether encoded properties mark the message as transactional."""
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
