"""The broker's test of one draft, and the words for what may be wrong with a draft.

Lives here: one draft. May not live here: the rules (kourou.protocol.kernel), many drafts
(kourou.protocol.record_batch).

State: none.
"""

from __future__ import annotations

import struct

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.message import Property
from kourou.protocol import kernel
from kourou.protocol.kernel_python import (
    DAMAGED,
    FIELDS,
    NO_CRC,
    STRUCTURE,
    TOO_LARGE,
    TRANSACTIONAL,
)
from kourou.protocol.record_layout import Buffer, parts_of

_SIZE = struct.Struct("=q")
_ROW = struct.Struct(f"={len(FIELDS)}q")
_QUEUE_ID, _BODY_END, _TOPIC_END = map(FIELDS.index, ("queue_id", "body_end", "topic_end"))

_TEXTS = {
    TRANSACTIONAL: "its flags name a phase of a transaction, which only a broker writes",
    NO_CRC: "the place for its checksum is missing",
    DAMAGED: "its body does not match its checksum (BODYCRC), so it was damaged: send it again",
}

_DELAY_MARK = Property.DELAY.encode() + b"\x01"
_TRANSACTION_MARK = Property.TRAN_MSG.encode() + b"\x01"


def draft_problem_text(problem: int, draft: Buffer, body_size_max: int) -> str:
    """Words for a problem of the kernel with this draft; "" for its structure."""
    if problem == TOO_LARGE:
        parts = parts_of(draft, 0, len(draft))
        size = parts.body_end - parts.body_at
        return f"its body has {size} bytes; maxMessageSize is {body_size_max}"
    return _TEXTS.get(problem, "")


def check_draft(draft: Buffer, topic: bytes, queue_id: int, body_size_max: int) -> bool:
    """Check a draft that claims to be for this queue; raises MessageIllegal that says what is
    wrong. True if it may ask to be stored elsewhere first (`may_go_elsewhere`).

    Every length field must agree, topic and queue id must be these, the body must not exceed
    `body_size_max` bytes and must match its checksum, and the checksum property must have its
    place.
    """
    end = len(draft)
    table, moves, problem, _ = kernel.check_drafts(draft, _SIZE.pack(end), body_size_max)
    if problem:
        raise _refusal(problem, draft, body_size_max)
    row = _ROW.unpack(table)
    if row[_QUEUE_ID] != queue_id:
        raise MessageIllegal("the record's queue id is not that of its lane; nothing was stored")
    if bytes(draft[row[_BODY_END] + 1 : row[_TOPIC_END]]) != topic:
        raise MessageIllegal("the record's topic is not that of its lane; nothing was stored")
    return moves[0] == 1


def _refusal(problem: int, draft: Buffer, body_size_max: int) -> MessageIllegal:
    if problem == STRUCTURE:
        try:
            parts_of(draft, 0, len(draft))
        except Corrupt as error:
            return MessageIllegal(f"this is no message: {error}; nothing was stored")
        return MessageIllegal("the sizes do not tile the records; nothing was stored")
    text = draft_problem_text(problem, draft, body_size_max)
    return MessageIllegal(f"this message is refused: {text}; nothing was stored")


def may_go_elsewhere(properties: bytes) -> bool:
    """Might a message of these encoded properties have to wait in another topic first, since it is
    delayed or part of a transaction? Answers fast, and too often yes."""
    return _DELAY_MARK in properties or _TRANSACTION_MARK in properties
