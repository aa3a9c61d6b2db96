"""Converts an Arrow batch to drafts, column by column.

State: none; the round-robin position and the unique keys are kept by Messages.

Batches with special rows (a null body, a body to compress, a delay, properties in a map, a
separator inside a text) return None for the whole batch, before a queue or a key is assigned. Then
the batch is converted row by row, and errors contain the row's number. Both ways create the same
drafts, byte for byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kourou.client.producer.drafts import joined_keys
from kourou.errors import BadRequest, Rejected
from kourou.filtering.tags import check_tag
from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property
from kourou.protocol.record.hashes import java_hash
from kourou.protocol.record.layout import BODY_CRC_AT, CRC_MASK, CRC_PLACEHOLDER, parts_of
from kourou.protocol.record.properties import encode_properties
from kourou_spark_etl.sink.messages import DraftBuilder, DraftTarget
from kourou_spark_etl.sink.options import QueueBy

_KEY_BYTES = 32
"""The number of hexadecimal digits of a unique key."""

ROWS_MIN = 16
"""Fewer rows are faster one by one."""

TAGS_MAX = 1_024
"""The maximum number of distinct tags to check; batches with more are converted row by row."""

Longs = npt.NDArray[np.int64]
Texts: TypeAlias = Any  # Arrow has no type annotations
"""A column, one text for all rows, or None; null and an empty text mean no value."""

_NOT_PLAIN = r"[^\x21-\x7f]"
"""Keys with spaces or non-ASCII characters are normalised by Python, which knows all spaces."""

_BY_ROWS = ("properties", "delay_level", "delay_ms")
_BODY_LENGTH_BYTES = 4


class Drafts(NamedTuple):
    """Drafts for one broker in row order; `queue_target_of` has the index of each target."""

    broker_name: str
    address: str
    queue_targets: Sequence[tuple[str, int]]
    queue_target_of: Longs
    drafts: list[bytes]


def topics_of(batch: pa.RecordBatch, columns: Sequence[str], messages: DraftBuilder) -> list[str]:
    """The distinct topics of the rows; empty if a row has no topic or an invalid one."""
    if batch.num_rows < ROWS_MIN:
        return []
    topic = _present_columns(batch, columns).get("topic")
    named = [None] if topic is None else topic.unique().to_pylist()
    found = list(dict.fromkeys(name or messages.options.topic for name in named))
    try:
        for name in found:
            if not messages.knows(name):
                messages.check_topic(name)
    except Rejected:
        return []
    return found


def drafts_of(
    batch: pa.RecordBatch, columns: Sequence[str], messages: DraftBuilder
) -> list[Drafts] | None:
    """The rows as drafts, by broker; None if they must be converted row by row.

    `messages` must know the routes of all topics of `topics_of`.
    """
    given = _present_columns(batch, columns)
    values = given.get("value")
    if batch.num_rows < ROWS_MIN or values is None or values.null_count:
        return None
    if any(name in given for name in _BY_ROWS):
        return None
    values = values.cast(pa.binary())
    lengths = _lengths(values)
    settings = messages.settings
    if int(lengths.max()) >= min(settings.compress_over_bytes, settings.message_size_bytes_max):
        return None
    targets = _Targets(batch.num_rows, given, messages)
    if not targets.found:
        return None
    texts = _texts(given, messages)
    if texts is None:
        return None
    drafts = _drafts(values, lengths, texts, targets, messages)
    if drafts is None:
        return None
    targets.take_turns()
    return targets.by_broker(drafts)


def _present_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The columns with at least one value."""
    pairs = zip(columns, batch.columns, strict=True)
    return {name: column for name, column in pairs if column.null_count < len(column)}


# -- queues ---------------------------------------------------------------------------------------


class _Targets:
    """The queue of each row. `found` is False if a row names a queue that does not exist."""

    def __init__(self, rows: int, given: dict[str, pa.Array], messages: DraftBuilder) -> None:
        self._messages = messages
        self.all: list[DraftTarget] = []
        self.of = np.zeros(rows, np.int64)
        self.found = True
        queue, order_key = given.get("queue"), given.get("order_key")
        if messages.options.queue_by is QueueBy.KEY and "key" in given:
            key = given["key"]
            order_key = key if order_key is None else order_key.fill_null(key)
        by_turn = np.ones(rows, np.bool_)
        chosen = np.zeros(rows, np.int64)
        if order_key is not None:
            hashes = map(java_hash, order_key.fill_null("").to_pylist())
            chosen = np.abs(np.fromiter(hashes, np.int64, rows))
            by_turn = _nulls(order_key)
        if queue is not None:
            named = ~_nulls(queue)
            wanted = queue.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
            chosen, by_turn = np.where(named, wanted, chosen), by_turn & ~named
        self._turns = int(by_turn.sum())
        chosen = np.where(by_turn, messages.turn + by_turn.cumsum(), chosen)
        names, topic_of = _topics(rows, given.get("topic"), messages.options.topic)
        for number, name in enumerate(names):
            here = messages.targets(name) if name else []
            mine = topic_of == number
            places = chosen[mine]
            if queue is not None:
                indexes = places[named[mine]]
                self.found &= not ((indexes < 0) | (indexes >= len(here))).any()
            if not here:
                self.found = False
                return
            self.of[mine] = len(self.all) + places % len(here)
            self.all += here

    def take_turns(self) -> None:
        """Advance the round-robin position by the rows that used it."""
        self._messages.turn += self._turns

    def by_broker(self, drafts: pa.Array) -> list[Drafts]:
        """Split the drafts by broker."""
        queue_targets = [(target.topic, target.queue_id) for target in self.all]
        brokers = {target.broker_name: target.address for target in self.all}
        if len(brokers) == 1:
            [(name, address)] = brokers.items()
            return [Drafts(name, address, queue_targets, self.of, drafts.to_pylist())]
        broker_of = np.asarray([list(brokers).index(one.broker_name) for one in self.all])[self.of]
        found: list[Drafts] = []
        for number, (name, address) in enumerate(brokers.items()):
            mine = np.flatnonzero(broker_of == number)
            if len(mine):
                own = drafts.take(pa.array(mine)).to_pylist()
                found.append(Drafts(name, address, queue_targets, self.of[mine], own))
        return found


def _topics(rows: int, topic: pa.Array | None, otherwise: str) -> tuple[list[str], Longs]:
    """The distinct topics, and the index of each row's topic."""
    if topic is None:
        return [otherwise], np.zeros(rows, np.int64)
    coded = topic.fill_null("").dictionary_encode()
    names = [name or otherwise for name in coded.dictionary.to_pylist()]
    different = {name: number for number, name in enumerate(dict.fromkeys(names))}
    number_of = np.asarray([different[name] for name in names])
    return list(different), number_of[coded.indices.to_numpy()]


# -- properties -----------------------------------------------------------------------------------


def _texts(given: dict[str, pa.Array], messages: DraftBuilder) -> list[tuple[str, Texts]] | None:
    """The properties after the unique key: names and values; None if row by row is required."""
    options = messages.options
    tags = _with_default(given.get("tags"), options.tags)
    keys = _with_default(given.get("key"), options.key)
    found = [
        (Property.TAGS.value, tags),
        (Property.KEYS.value, keys),
        (Property.TRACEPARENT.value, given.get("trace_parent")),
    ]
    if any(isinstance(text, pa.Array) and _has_separator(text) for _, text in found):
        return None
    if isinstance(keys, str):
        found[1] = Property.KEYS.value, joined_keys(keys)
    elif keys is not None and pc.any(pc.match_substring_regex(keys, _NOT_PLAIN)).as_py():
        own = [joined_keys(key) if key else "" for key in keys.to_pylist()]
        found[1] = Property.KEYS.value, pa.array(own, pa.string())
    different = [tags] if isinstance(tags, str) else [] if tags is None else tags.unique()
    if len(different) > TAGS_MAX:
        return None
    try:
        for tag in different if isinstance(different, list) else different.to_pylist():
            if tag:
                check_tag(tag)
    except BadRequest:
        return None
    return found


def _with_default(column: pa.Array | None, otherwise: str) -> Texts:
    if column is None:
        return otherwise or None
    return column.fill_null(otherwise) if otherwise and column.null_count else column


def _has_separator(texts: pa.Array) -> bool:
    found = pc.or_(pc.match_substring(texts, "\x01"), pc.match_substring(texts, "\x02"))
    return bool(pc.any(found).as_py())


def _piece(name: str, texts: Texts) -> tuple[pa.Array | None, bytes]:
    """The property of each row as bytes with a leading separator, or the same bytes for all."""
    mark = f"\x02{name}\x01".encode()
    if not texts:
        return None, b""
    if isinstance(texts, str):
        return None, mark + texts.encode()
    said = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts.cast(pa.binary()))
    return pc.binary_join_element_wise(pa.scalar(mark), said, b""), b""


# -- bytes ----------------------------------------------------------------------------------------


def _drafts(
    values: pa.Array,
    lengths: Longs,
    texts: list[tuple[str, Texts]],
    targets: _Targets,
    messages: DraftBuilder,
) -> pa.Array | None:
    """All drafts; None if one is too large, or the brokers' host fields differ in width."""
    rows = len(values)
    own = messages.own_properties(messages.options.delay_level) or {}
    behind: list[bytes] = []
    heads: list[bytes] = []
    topics: list[bytes] = []
    for target in targets.all:
        place = target.place
        last = {**own, Property.CLUSTER.value: place.cluster} if place.cluster else own
        encoded = [encode_properties(last)] if last else []
        behind.append(b"\x02" + b"\x02".join([*encoded, CRC_PLACEHOLDER]))
        empty = messages.empty_draft(place)
        heads.append(empty[: parts_of(empty, 0, len(empty)).body_at])
        topics.append(len(place.topic).to_bytes(1, "big") + place.topic)
    width = len(heads[0])
    if any(len(head) != width for head in heads):
        return None
    pieces = [_piece(name, text) for name, text in texts]
    first = f"{Property.UNIQ_KEY}\x01".encode()
    keys_at = len(first)
    of = targets.of
    props_len = np.asarray(list(map(len, behind)))[of] + keys_at + _KEY_BYTES
    for column, same in pieces:
        props_len += len(same) if column is None else _lengths(column)
    if int(props_len.max()) > PROPERTIES_SIZE_BYTES_MAX:
        return None
    topic_len = np.asarray(list(map(len, topics)))[of]
    made = np.frombuffer(b"".join(heads), np.uint8).reshape(len(heads), width)[of]
    _put(made, 0, width + lengths + topic_len + 2 + props_len, ">i4")
    _put(made, BODY_CRC_AT, _checksums(values, lengths), ">u4")
    _put(made, width - _BODY_LENGTH_BYTES, lengths, ">i4")
    keys = "".join(messages.unique_keys(rows)).encode()
    middle = np.empty((rows, 2 + keys_at + _KEY_BYTES), np.uint8)
    _put(middle, 0, props_len, ">u2")
    middle[:, 2 : 2 + keys_at] = np.frombuffer(first, np.uint8)
    middle[:, 2 + keys_at :] = np.frombuffer(keys, np.uint8).reshape(rows, _KEY_BYTES)
    return pc.binary_join_element_wise(
        _fixed(made),
        values,
        _each(topics, of),
        _fixed(middle),
        *(pa.scalar(same) if column is None else column for column, same in pieces),
        _each(behind, of),
        b"",
        null_handling="replace",
        null_replacement=b"",
    )


def _each(kinds: list[bytes], of: Longs) -> pa.Array | pa.Scalar:
    """The element of `kinds` for each row."""
    if len(set(kinds)) == 1:
        return pa.scalar(kinds[0])
    return pa.array(kinds, pa.binary()).take(pa.array(of))


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as a binary column."""
    count, width = rows.shape
    ends = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(rows)])


def _put(rows: npt.NDArray[np.uint8], at: int, values: Longs, kind: str) -> None:
    column = values.astype(kind)
    rows[:, at : at + column.itemsize] = column.view(np.uint8).reshape(len(rows), -1)


def _checksums(values: pa.Array, lengths: Longs) -> Longs:
    crc32 = zlib.crc32
    if not len(lengths) or values.buffers()[2] is None:
        return np.zeros(len(lengths), np.int64)
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1].tolist()
    view = memoryview(values.buffers()[2])
    found = [crc32(view[begin:end]) for begin, end in pairwise(ends)]
    return np.asarray(found, np.int64) & CRC_MASK


def _lengths(column: pa.Array) -> Longs:
    """The number of bytes of each row, 0 for nulls."""
    sizes = pc.binary_length(column).fill_null(0)
    lengths: Longs = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    marks: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return marks
