"""What is looked for in many records at once: their topics, tag codes and index keys.

Lives here: topics, TAGS, UNIQ_KEY and KEYS of whole batches, in one pass over each record.
May not live here: what is done with them (kourou.engine.sending, kourou.store.dispatch).

State: none but a bounded cache of the codes of tags, which follow from the tags.

Invariant: the result is that of `find_property`, record by record, whatever the properties' order.
"""

from __future__ import annotations

import numpy as np

from kourou.protocol.hashing import tags_code
from kourou.protocol.properties import find_property
from kourou.protocol.record_columns import Bytes, Longs, Marks, RecordColumns, sliding
from kourou.protocol.record_layout import CRC_MARK, CRC_VALUE_BYTES

_CODES_CACHED = 65_536
_VECTOR_FROM = 16
"""Below so many strings numpy's fixed costs are higher than those of a loop ..."""
_ROUNDS_FROM = 256
"""... and below so many even if they are a few different ones."""
_ROUNDS = 4
"""So many different strings are looked for in all places at once; then a loop is cheaper."""

_UNIQ = b"UNIQ_KEY\x01"
_KEY_BYTES = 32
"""Length of the unique keys of hosts with IPv4 addresses."""
_REST_AT = len(_UNIQ) + _KEY_BYTES

_codes: dict[bytes, int] = {}


# -- topics ---------------------------------------------------------------------------------------


def topics_of(records: RecordColumns) -> tuple[list[bytes], Longs | None]:
    """The topics of a batch, and for each record which of them; None if there is only one."""
    found = records._topics  # asked by who checks them and again by who projects them
    if found is None:
        if len(records) == 1:
            found = [records.topic(0)], None
        else:
            topics, numbers = distinct(records.blob, records.topic_at, records.topic_len)
            found = topics, numbers if len(topics) > 1 else None
        records._topics = found
    return found


def distinct(blob: Bytes, at: Longs, length: Longs) -> tuple[list[bytes], Longs]:
    """The different strings at these places, and the number of each place's string among them."""
    numbers = np.zeros(len(at), dtype=np.int64)
    if len(at) >= _VECTOR_FROM and (size := int(length[0])) and (length == size).all():
        texts = sliding(blob, f"V{size}")[at].tobytes()
        if texts == texts[:size] * len(at):
            return [texts[:size]], numbers
    found: list[bytes] = []
    left = np.arange(len(at))
    if len(at) >= _ROUNDS_FROM:
        for _ in range(_ROUNDS):
            first = int(left[0])
            text = blob[int(at[first]) : int(at[first]) + int(length[first])].tobytes()
            same = _equal_to(blob, at[left], length[left], text)
            numbers[left[same]] = len(found)
            found.append(text)
            left = left[~same]
            if not len(left):
                return found, numbers
            if np.count_nonzero(same) == 1:
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


def _equal_to(blob: Bytes, at: Longs, length: Longs, text: bytes) -> Marks:
    same: Marks = length == len(text)
    if not text:
        return same
    places = at if same.all() else np.where(same, at, at[0])
    rows = sliding(blob, f"V{len(text)}")[places].view(np.uint8).reshape(len(at), len(text))
    same &= (rows == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return same


# -- properties -----------------------------------------------------------------------------------


def tag_codes(records: RecordColumns) -> Longs:
    """What the queue units of these records keep of their tags; 0 for none."""
    view = records.blob.data
    starts = records.props_at.tolist()
    ends = (records.starts + records.sizes).tolist()
    known = _codes
    codes: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        tag = find_property(view[start:end], b"TAGS")
        codes.append(0 if tag is None else known.get(tag) or _code(tag))
    return np.asarray(codes, np.int64)


def codes_and_keys(records: RecordColumns) -> tuple[Longs, list[list[bytes]]]:
    """`code_and_keys` of each record."""
    if len(records) >= _VECTOR_FROM:
        alike = _of_records_alike(records)
        if alike is not None:
            return alike
    view = records.blob.data
    starts = records.props_at.tolist()
    ends = (records.starts + records.sizes).tolist()
    codes: list[int] = []
    keys: list[list[bytes]] = []
    for start, end in zip(starts, ends, strict=True):
        code, own = code_and_keys(view[start:end].tobytes())
        codes.append(code)
        keys.append(own)
    return np.asarray(codes, np.int64), keys


def _of_records_alike(records: RecordColumns) -> tuple[Longs, list[list[bytes]]] | None:
    """The same for records that differ in nothing but their unique keys; None if these do not."""
    blob, at, count = records.blob, records.props_at, len(records)
    size = int(records.props_len[0])
    rest = size - _REST_AT - CRC_VALUE_BYTES
    if rest <= 0 or not (records.props_len == size).all():
        return None
    first = blob[int(at[0]) : int(at[0]) + size].tobytes()
    same = first[_REST_AT:-CRC_VALUE_BYTES]
    if same[:1] != b"\x02" or same[-len(CRC_MARK) :] != CRC_MARK or b"UNIQ_KEY" in same:
        return None
    if sliding(blob, f"V{len(_UNIQ)}")[at].tobytes() != _UNIQ * count:
        return None
    if sliding(blob, f"V{rest}")[at + _REST_AT].tobytes() != same * count:
        return None
    unique = sliding(blob, f"V{_KEY_BYTES}")[at + len(_UNIQ)].tobytes()
    if b"\x02" in unique:
        return None
    code, others = code_and_keys(same[1:])
    keys = [
        [unique[place : place + _KEY_BYTES], *others]
        for place in range(0, count * _KEY_BYTES, _KEY_BYTES)
    ]
    return np.full(count, code, np.int64), keys


def code_and_keys(properties: bytes) -> tuple[int, list[bytes]]:
    """What a queue unit keeps of the tags, and the keys as the key index takes them, in one pass.

    The unique key comes first, then the business keys in the producer's order; a key that comes
    twice in one record is listed twice, as RocketMQ indexes it.
    """
    tag = unique = business = b""
    for piece in properties.split(b"\x02"):
        head = piece[:5]
        if head == b"UNIQ_":
            if piece[:9] == b"UNIQ_KEY\x01":
                unique = piece[9:] or unique
        elif head == b"TAGS\x01":
            tag = piece[5:] or tag
        elif head == b"KEYS\x01":
            business = piece[5:] or business
    keys = [unique] if unique else []
    if b" " in business:
        keys += [key for key in business.split(b" ") if key]
    elif business:
        keys.append(business)
    return _codes.get(tag) or _code(tag) if tag else 0, keys


def _code(tag: bytes) -> int:
    """The code of a tag, remembered."""
    if len(_codes) >= _CODES_CACHED:
        _codes.clear()
    code = _codes[tag] = tags_code(tag.decode("utf-8", "replace"))
    return code
