"""The message as a filter sees it: a read-only view of one stored record.

Creating a view costs next to nothing. A batch of records is one bytes object; a view has the start
and the end of its record. The first access reads the fixed fields with one `struct` call;
properties, body and JSON are decoded on first use. The rules are those of
kourou.protocol.record.message_record, and for bodies those of kourou.protocol.record.compression.
They are implemented again because the sandbox contains no other code of Kourou; tests compare the
two. Checksums are not verified: the broker does that when it reads.

Bodies are decompressed with zlib, LZ4 frames or Zstandard. LZ4 and Zstandard are not in the
standard library: they are available if the zygote found them. A body whose codec is missing causes
an error that names the codec.

State: soft; the codecs are loaded before the first worker is forked, decoded values are kept as
long as the view.

Invariants:  no length from the bytes is used before it was checked against the record's size
             whatever the bytes are, only BadRecord is raised (ValueError for `json`)
             decompressing allocates no more than the limit; it raises only BadRecord, MemoryError
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

# -- bodies ---------------------------------------------------------------------------------------

BODY_SIZE_BYTES_MAX = 4 * 1024 * 1024
DECOMPRESS_RATIO_MAX = 100
DECOMPRESS_FACTOR_MAX = 8
"""The same value as in kourou.model.limits."""

_SHIFT = 8
_KIND_MASK = 7
_ZLIB_UNMARKED, _LZ4, _ZSTD, _ZLIB = range(4)

_modules: dict[int, Any] = {}


class BadRecord(Exception):
    """The bytes are not a valid record, or cannot be decompressed here."""


def load_codecs(paths: Sequence[str]) -> None:
    """Import lz4.frame and zstandard from `paths`, if they exist; once, outside the sandbox."""
    before = list(sys.path)
    sys.path.extend(paths)
    try:
        for kind, name in ((_LZ4, "lz4.frame"), (_ZSTD, "zstandard")):
            try:
                _modules[kind] = importlib.import_module(name)
            except ImportError:
                # Not installed: `decompress` reports it for the first body that needs it.
                _modules.pop(kind, None)
    finally:
        sys.path[:] = before


def decompress(sys_flag: int, body: bytes) -> bytes:
    """The decompressed body; bits 8 to 10 of `sys_flag` are the codec.

    Raises BadRecord if the bytes are not of that codec, end early or exceed the limit, and if the
    codec is unknown or not installed.
    """
    kind = (sys_flag >> _SHIFT) & _KIND_MASK
    by_ratio = max(len(body) * DECOMPRESS_RATIO_MAX, BODY_SIZE_BYTES_MAX)
    limit = min(by_ratio, BODY_SIZE_BYTES_MAX * DECOMPRESS_FACTOR_MAX)
    try:
        data, whole = _inflater(kind)(body, limit)
    except (MemoryError, BadRecord):
        raise
    except Exception as error:  # noqa: BLE001 - of third-party codecs, see below
        # Each codec has its own errors, and two of the three cannot be imported by name here.
        raise BadRecord(f"body: it cannot be decompressed: {error}") from None
    if len(data) > limit:
        raise BadRecord(f"body: it would grow beyond {limit} bytes when it is decompressed")
    if not whole:
        raise BadRecord("body: its compressed form is cut off")
    return data


_Inflate = Callable[[bytes, int], tuple[bytes, bool]]
"""Returns up to limit + 1 bytes, and whether the compressed data was complete."""


def _inflater(kind: int) -> _Inflate:
    if kind in (_ZLIB, _ZLIB_UNMARKED):
        return _inflate
    found = {_LZ4: ("LZ4", "lz4", _unlz4), _ZSTD: ("Zstandard", "zstandard", _unzstd)}.get(kind)
    if found is None:
        raise BadRecord(f"body: it is compressed in an unknown way ({kind})")
    name, package, inflate = found
    if kind not in _modules:
        raise BadRecord(
            f"body: it is compressed with {name}, but this filter server has no "
            f"{package}: install the Python package {package}"
        )
    return inflate


def _inflate(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit + 1)
    if not inflater.eof and len(data) <= limit:
        data += inflater.decompress(inflater.unconsumed_tail, limit + 1 - len(data))
    return data, inflater.eof


def _unlz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = _modules[_LZ4].LZ4FrameDecompressor()
    data = bytes(inflater.decompress(body, max_length=limit + 1))
    return data, bool(inflater.eof)


def _unzstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    codec = _modules[_ZSTD]
    declared = codec.frame_content_size(body)
    if declared > limit:
        raise BadRecord(f"body: it would grow to {declared} bytes; at most {limit} are allowed")
    if declared > 0:
        # Allocates exactly the declared size; raises if the frame, including its checksum, is
        # incomplete.
        return bytes(codec.ZstdDecompressor().decompress(body)), True
    with codec.ZstdDecompressor().stream_reader(body) as reader:
        data = bytes(reader.read(limit + 1))
    if len(data) > limit:
        return data, False
    # Without a declared size, the reader does not report an incomplete stream. Decompress again to
    # check this; the size is known to be within the limit now.
    whole = codec.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    return data, bool(whole.eof)


# -- records --------------------------------------------------------------------------------------

MAGIC = 0xDAA320A7
RECORD_FIXED_BYTES = 91
TOPIC_LENGTH_MAX = 127
PROPERTIES_BYTES_MAX = 0x7FFF
V6_EXTRA_BYTES = 12
"""The same value as in kourou.protocol.record.layout."""

_COMPRESSED = 1
_BORN_V6 = 16
_STORE_V6 = 32
_ANY_V6 = _BORN_V6 | _STORE_V6

_START = struct.Struct(">II")

# queue ID, offset, SYSFLAG, born, stored, reconsume times, body length
_HEAD = struct.Struct(">12xi4xq8xiq8xq8xi8xi")
_HEADS_V6 = {
    _BORN_V6: struct.Struct(">12xi4xq8xiq20xq8xi8xi"),
    _STORE_V6: struct.Struct(">12xi4xq8xiq8xq20xi8xi"),
    _ANY_V6: struct.Struct(">12xi4xq8xiq20xq20xi8xi"),
}
assert _HEAD.size == RECORD_FIXED_BYTES - 3

_UNREAD = object()
_unpack_start = _START.unpack_from
_unpack_head = _HEAD.unpack_from


def next_record(data: bytes, at: int) -> int:
    """The end of the record that starts at `at`. Raises BadRecord if it is not a whole one."""
    left = len(data) - at
    if left < RECORD_FIXED_BYTES:
        raise BadRecord(f"size: {left} bytes are too few for a record")
    size, magic = _unpack_start(data, at)
    if magic != MAGIC:
        raise BadRecord(f"magic: {magic:#010x}, not {MAGIC:#010x}")
    if not RECORD_FIXED_BYTES <= size <= left:
        raise BadRecord(f"size: {size} does not lie between {RECORD_FIXED_BYTES} and {left}")
    return at + int(size)


class MessageView:
    """One message, read-only. Each value is decoded at first use, and only once.

    All views of a batch share its bytes: a filter that keeps a view keeps the batch.
    """

    __slots__ = ("_at", "_body", "_data", "_end", "_head", "_json", "_places", "_properties")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end
        self._head: tuple[int, int, int, int, int, int, int] | None = None
        self._places: tuple[int, int, int] | None = None
        self._properties: Mapping[str, str] | None = None
        self._body: bytes | None = None
        self._json: Any = _UNREAD

    def __repr__(self) -> str:
        return f"<message {self.topic}/{self.queue_id}@{self.offset}>"

    # -- fixed fields -----------------------------------------------------------------------------

    def _read_head(self) -> tuple[int, int, int, int, int, int, int]:
        """Read the fixed fields, and find the positions of body, topic and properties."""
        data, at, end = self._data, self._at, self._end
        head = _unpack_head(data, at)
        fixed = RECORD_FIXED_BYTES
        if head[2] & _ANY_V6:
            wide = _HEADS_V6[head[2] & _ANY_V6]
            fixed = wide.size + 3
            if end - at < fixed:
                raise BadRecord(f"size: {end - at} bytes are too few for a record with IPv6 hosts")
            head = wide.unpack_from(data, at)
        length = head[6]
        spare = end - at - fixed - length
        if length < 0 or spare < 0:
            raise BadRecord(f"body length: {length} does not fit into {end - at} bytes")
        body_at = at + fixed - 3
        body_end = body_at + length
        topic_length = data[body_end]
        if not 0 < topic_length <= min(spare, TOPIC_LENGTH_MAX):
            raise BadRecord(f"topic length: {topic_length} does not fit into {end - at} bytes")
        topic_end = body_end + 1 + topic_length
        declared = data[topic_end] << 8 | data[topic_end + 1]
        if declared != spare - topic_length or declared > PROPERTIES_BYTES_MAX:
            raise BadRecord(
                f"properties length: {declared}, but {spare - topic_length} bytes are left"
            )
        self._places = (body_at, body_end, topic_end)
        self._head = head
        return head

    @property
    def queue_id(self) -> int:
        """The number of the queue in its topic."""
        head = self._head
        return head[0] if head is not None else self._read_head()[0]

    @property
    def offset(self) -> int:
        """The offset of the message in its queue."""
        head = self._head
        return head[1] if head is not None else self._read_head()[1]

    @property
    def born_ms(self) -> int:
        """When the producer created it, epoch ms by the producer's clock."""
        head = self._head
        return head[3] if head is not None else self._read_head()[3]

    @property
    def stored_ms(self) -> int:
        """When the broker stored it, epoch ms by the broker's clock."""
        head = self._head
        return head[4] if head is not None else self._read_head()[4]

    @property
    def reconsume_times(self) -> int:
        """How many times it was redelivered to the group; 0 for the first delivery."""
        head = self._head
        return head[5] if head is not None else self._read_head()[5]

    # -- fields of variable length ----------------------------------------------------------------

    def _read_places(self) -> tuple[int, int, int]:
        places = self._places
        if places is None:
            self._read_head()
            places = self._places
            assert places is not None
        return places

    @property
    def topic(self) -> str:
        """The topic as stored: for redelivered messages, the group's retry topic."""
        _, body_end, topic_end = self._read_places()
        try:
            return self._data[body_end + 1 : topic_end].decode()
        except UnicodeDecodeError:
            raise BadRecord("topic: it is not UTF-8") from None

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including the reserved ones (TAGS, KEYS, UNIQ_KEY, …); read-only."""
        properties = self._properties
        if properties is None:
            topic_end = self._read_places()[2]
            decoded = _decode_properties(self._data[topic_end + 2 : self._end])
            decoded.pop("__CRC32#", None)
            properties = self._properties = MappingProxyType(decoded)
        return properties

    def _property(self, name: str, marker: bytes) -> str | None:
        """One property, without decoding all of them: a tenth of the cost for most filters.

        `marker` is what precedes its value, including the separator after the previous property.
        """
        if self._properties is None:
            data, end = self._data, self._end
            start = self._read_places()[2] + 2
            at = data.rfind(marker, start, end)
            if at < 0 and data.startswith(marker[1:], start, end):
                at = start - 1
            if at < 0:
                return None
            value_at = at + len(marker)
            value_end = data.find(b"\x02", value_at, end)
            value = data[value_at : end if value_end < 0 else value_end]
            if value:
                return str(value, "utf-8", "replace")
        # An empty value counts as missing; then an earlier property of the same name is valid.
        return self.properties.get(name)

    @property
    def tag(self) -> str | None:
        """The tag; None if there is none."""
        return self._property("TAGS", b"\x02TAGS\x01")

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys, in the producer's order."""
        return tuple((self._property("KEYS", b"\x02KEYS\x01") or "").split())

    @property
    def key(self) -> str | None:
        """The first of the keys; None if there is none."""
        keys = self.keys
        return keys[0] if keys else None

    @property
    def message_id(self) -> str:
        """The producer's unique ID, the same for all retries; empty if the producer set none."""
        return self._property("UNIQ_KEY", b"\x02UNIQ_KEY\x01") or ""

    @property
    def body(self) -> bytes:
        """The decompressed body. Raises BadRecord if it cannot be decompressed."""
        body = self._body
        if body is None:
            head = self._head or self._read_head()
            body_at, body_end, _ = self._read_places()
            body = self._data[body_at:body_end]
            if head[2] & _COMPRESSED:
                body = decompress(head[2], body)
            self._body = body
        return body

    @property
    def json(self) -> Any:
        """The body as JSON, decoded once. Raises ValueError if it is not valid JSON."""
        if self._json is _UNREAD:
            self._json = json.loads(self.body)
        return self._json


def _decode_properties(raw: bytes) -> dict[str, str]:
    """Decode as kourou.protocol.record.properties does.

    Pieces without name or value are dropped, and of equal names the last one is used. Bytes that
    are not UTF-8 become U+FFFD.
    """
    text = str(raw, "utf-8", "replace")
    if not text:
        return {}
    if text[-1] == "\x02":
        text = text[:-1]
    try:
        # Works for all well-formed strings; dict() raises if a piece has no separator.
        properties = dict([piece.split("\x01") for piece in text.split("\x02")])
        if "" not in properties and "" not in properties.values():
            return properties
    except ValueError:
        pass
    properties = {}
    for piece in text.split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            properties[name] = value
    return properties
