"""What is looked for in many records at once: their topics, tag codes and index keys.

Lives here: topics, TAGS, UNIQ_KEY and KEYS of whole batches, in one pass over each record.
May not live here: what is done with them (kourou.engine.sending, kourou.store.dispatch).

State: none but a bounded cache of the codes of tags, which follow from the tags.

Invariant: the result is that of `find_property`, record by record, whatever the properties' order.
"""

from __future__ import annotations

import re

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
_USUAL = re.compile(
    rb"UNIQ_KEY\x01([^\x02]+)\x02(?:TAGS\x01([^\x02]+)\x02)?(?:KEYS\x01([^\x02]+)\x02)?"
)
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
    texts = [view[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
    if len(texts) >= _VECTOR_FROM:
        usual = _of_usual_order(texts)
        if usual is not None:
            return usual
    found = list(map(code_and_keys, texts))
    return np.asarray([code for code, _ in found], np.int64), [own for _, own in found]


def _of_usual_order(texts: list[bytes]) -> tuple[Longs, list[list[bytes]]] | None:
    """The same for records that begin with their unique key, then tag, then keys, as far as they
    have these; None if one has one of them elsewhere, or twice.

    Records without a unique key may be among them.
    """
    named = [text for text in texts if text.startswith(_UNIQ)]
    joined = b"".join(named)
    places = _USUAL.findall(joined)
    if not len(named) == len(places) == joined.count(_UNIQ):
        return None
    if not named:
        return _with_others(texts, [], [])
    uniques, tags, business = zip(*places, strict=True)
    if joined.count(b"TAGS\x01") != len(tags) - tags.count(b""):
        return None
    if joined.count(b"KEYS\x01") != len(business) - business.count(b""):
        return None
    code_of = {tag: _codes.get(tag) or _code(tag) for tag in set(tags)}
    codes = list(map(code_of.__getitem__, tags))
    keys = [
        [unique, key] if key else [unique] for unique, key in zip(uniques, business, strict=True)
    ]
    if b" " in b"".join(business):
        keys = [
            [unique, *filter(None, key[0].split(b" "))] if key else [unique]
            for unique, *key in keys
        ]
    if len(named) == len(texts):
        return np.asarray(codes, np.int64), keys
    return _with_others(texts, codes, keys)


def _with_others(
    texts: list[bytes], codes: list[int], keys: list[list[bytes]]
) -> tuple[Longs, list[list[bytes]]]:
    """What was found of records with unique keys, with those that have none between them."""
    told = zip(codes, keys, strict=True)
    known: dict[bytes, tuple[int, list[bytes]]] = {}
    found: list[tuple[int, list[bytes]]] = []
    for text in texts:
        if text.startswith(_UNIQ):
            found.append(next(told))
            continue
        # Op records differ in nothing but their checksums.
        kind = text[:-CRC_VALUE_BYTES]
        one = known.get(kind) if kind.endswith(CRC_MARK) else None
        if one is None:
            one = known[kind] = code_and_keys(text)
        found.append(one)
    return np.asarray([code for code, _ in found], np.int64), [own for _, own in found]


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
