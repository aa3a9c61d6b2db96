"""What projections look for in the properties of many records: tag codes and index keys.

Lives here: TAGS, UNIQ_KEY and KEYS of whole batches. May not live here: what is done with them.

Kourou's client writes properties in one order: UNIQ_KEY, TAGS, KEYS, the application's, CLUSTER,
checksum. Then the unique key lies at a fixed place, and what stands between it and the checksum is
often the same in a whole batch, so it is parsed once. Other records are parsed one by one.

Invariant: the result is that of `find_property`, record by record, whatever the order.
"""

from __future__ import annotations

import numpy as np

from kourou.model.limits import CRC_PROPERTY_BYTES
from kourou.protocol.hashing import (
    tags_code,
)
from kourou.protocol.properties import find_property
from kourou.protocol.record_columns import Bytes, Longs, Marks, RecordColumns, sliding
from kourou.protocol.record_layout import CRC_MARK

_UNIQ = b"UNIQ_KEY\x01"
_KEY_BYTES = 32
"""Unique keys of IPv4 producers; those of IPv6 have 56 and are found one by one."""
_REST_AT = len(_UNIQ) + _KEY_BYTES
_CACHE_MAX = 65_536
_ROUNDS_MAX = 4
_VECTOR_FROM = 32
"""Below so many records numpy's fixed costs are higher than those of a loop."""
_codes: dict[bytes, int] = {}


# -- equal strings --------------------------------------------------------------------------------


def distinct(blob: Bytes, at: Longs, length: Longs) -> tuple[list[bytes], Longs]:
    """The different strings at these places, and the number of each place's string among them."""
    count = len(at)
    numbers = np.zeros(count, dtype=np.int64)
    found: list[bytes] = []
    left = np.arange(count)
    if count >= _VECTOR_FROM:
        for _ in range(_ROUNDS_MAX):
            first = int(left[0])
            text = _text(blob, int(at[first]), int(length[first]))
            same = _equal_to(blob, at[left], length[left], text)
            numbers[left[same]] = len(found)
            found.append(text)
            matched = np.count_nonzero(same)
            left = left[~same]
            if not len(left):
                return found, numbers
            if matched == 1:
                break
    known = {text: number for number, text in enumerate(found)}
    view = blob.data
    for index, start, size in zip(
        left.tolist(), at[left].tolist(), length[left].tolist(), strict=True
    ):
        text = view[start : start + size].tobytes()
        number = known.get(text)
        if number is None:
            number = known[text] = len(found)
            found.append(text)
        numbers[index] = number
    return found, numbers


def _text(blob: Bytes, at: int, length: int) -> bytes:
    return blob[at : at + length].tobytes()


def _equal_to(blob: Bytes, at: Longs, length: Longs, text: bytes) -> Marks:
    same: Marks = length == len(text)
    if not text:
        return same
    places = at if same.all() else np.where(same, at, at[0])
    rows = _rows(blob, places, len(text))
    same &= (rows == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return same


def _rows(blob: Bytes, at: Longs, length: int) -> Bytes:
    return sliding(blob, f"V{length}")[at].view(np.uint8).reshape(len(at), length)


# -- strings of properties ------------------------------------------------------------------------


class _Properties:
    """Where the properties of each record are, less what is its own: unique key and checksum.

    `unique_first` marks records whose properties begin with a unique key of the usual length; for
    these the string begins with the separator behind that key, for others it is everything.
    """

    __slots__ = ("at", "blob", "length", "unique_at", "unique_first")

    def __init__(self, found: RecordColumns) -> None:
        blob, at, length = found.blob, found.props_at, found.props_len
        ends = at + length
        long = length >= _REST_AT + CRC_PROPERTY_BYTES
        usual = bool(long.all())
        # Too short ones are compared with their record's first bytes, which are neither name.
        places = at if usual else np.where(long, at, found.starts)
        head = _rows(blob, places, _REST_AT + 1)
        first: Marks = (head[:, : len(_UNIQ)] == _UNIQ_ROW).all(axis=1)
        first &= head[:, _REST_AT] == 2
        marks = ends - CRC_PROPERTY_BYTES if usual else np.where(long, ends - 20, found.starts)
        marked: Marks = (_rows(blob, marks, len(CRC_MARK)) == _MARK_ROW).all(axis=1)
        self.blob = blob
        self.unique_first = first
        self.unique_at = at + len(_UNIQ)
        skip = first * np.int64(_REST_AT)
        self.at = at + skip
        self.length = length - skip - marked * np.int64(CRC_PROPERTY_BYTES)


_UNIQ_ROW = np.frombuffer(_UNIQ, dtype=np.uint8)
_MARK_ROW = np.frombuffer(CRC_MARK, dtype=np.uint8)


def _tag_code(tag: bytes) -> int:
    code = _codes.get(tag)
    if code is None:
        if len(_codes) >= _CACHE_MAX:
            _codes.clear()
        code = _codes[tag] = tags_code(tag.decode("utf-8", "replace"))
    return code


def _code_in(properties: bytes) -> int:
    tag = find_property(properties, b"TAGS")
    return 0 if tag is None else _tag_code(tag)


def tag_codes(found: RecordColumns) -> Longs:
    """What the queue units of these records keep of their tags; 0 for none."""
    if len(found) < _VECTOR_FROM:
        return np.asarray([_code_in(found.properties(i)) for i in range(len(found))], np.int64)
    strings = _Properties(found)
    texts, numbers = distinct(strings.blob, strings.at, strings.length)
    codes = np.fromiter(map(_code_in, texts), dtype=np.int64, count=len(texts))
    return codes[numbers]


# -- keys of the index ----------------------------------------------------------------------------


def _business_keys(properties: bytes) -> list[bytes]:
    text = find_property(properties, b"KEYS")
    return [] if text is None else [key for key in text.split(b" ") if key]


def _keys_in(properties: bytes) -> list[bytes]:
    unique = find_property(properties, b"UNIQ_KEY")
    keys = _business_keys(properties)
    return keys if unique is None else [unique, *keys]


def index_keys(found: RecordColumns) -> list[list[bytes]]:
    """The keys of each record as the key index takes them: the unique key, then the business keys.

    A key that comes twice in one record is listed twice, as RocketMQ indexes it.
    """
    view = found.blob.data
    starts = found.props_at.tolist()
    ends = (found.starts + found.sizes).tolist()
    return [_keys_in(view[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]
