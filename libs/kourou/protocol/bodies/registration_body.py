"""The body of REGISTER_BROKER (103): a broker's topics and filter servers, plain or compressed.

    plain      = JSON {topicConfigSerializeWrapper, filterServerList}
    compressed = zlib of: sized DataVersion JSON, topic count(4), sized topic line each,
                 sized JSON list of filter servers              sized = length(4) bytes, big-endian
    topic line = name read write perm filterType [attributes]   single spaces

The compressed form loses `order` and the system flag of every topic, as RocketMQ's does; so Kourou
sends the plain form. Brokers before version 37 send only the table of topics instead.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import msgspec

from kourou.errors import BadRequest
from kourou.model.limits import FRAME_SIZE_BYTES_MAX
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies.config_bodies import (
    TopicConfigsShape,
    decode_data_version,
    decode_topic_configs,
    encode_data_version,
    topics_shape,
)
from kourou.protocol.wire.json_bodies import Buffer, Shape, malformed, shape_decoder

BARE_TABLE_BELOW_VERSION = 37
_WHAT = "broker registration"
_INT = struct.Struct(">i")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker sends to name servers about itself every 30 s."""

    topics: tuple[TopicConfig, ...] = ()
    version: DataVersion = field(default_factory=DataVersion)
    filter_servers: tuple[str, ...] = ()


class _RegistrationShape(Shape, kw_only=True):
    filter_server_list: list[str] | None = None
    topic_config_serialize_wrapper: TopicConfigsShape | None = None


_decode_plain = shape_decoder(_RegistrationShape, _WHAT)
_decode_servers = shape_decoder(list[str], "list of filter servers")


def body_checksum(body: Buffer) -> int:
    """The checksum of the body as sent, for `body_crc32`: CRC-32 without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def check_body_checksum(body: Buffer, expected: int) -> None:
    """Raise BadRequest if a body differs from what was sent; an expected 0 skips the check."""
    if expected and body_checksum(body) != expected:
        raise BadRequest("the registration's body does not match its checksum")


def encode_registration(registration: BrokerRegistration, *, compressed: bool = False) -> bytes:
    """The body of a registration."""
    if compressed:
        return _compressed(registration)
    return _encode(
        _RegistrationShape(
            filter_server_list=list(registration.filter_servers),
            topic_config_serialize_wrapper=topics_shape(registration.topics, registration.version),
        )
    )


def decode_registration(
    body: Buffer, *, compressed: bool = False, sender_version: int | None = None
) -> BrokerRegistration:
    """The registration in a body. `sender_version`: the broker's remoting version, or None."""
    if sender_version is not None and sender_version < BARE_TABLE_BELOW_VERSION:
        topics, version = decode_topic_configs(body)
        return BrokerRegistration(tuple(topics), version)
    if compressed:
        return _decompressed(body)
    if not body:  # a broker without topics may send an empty body
        return BrokerRegistration()
    shape = _decode_plain(body)
    wrapper = shape.topic_config_serialize_wrapper
    topics, version = ([], DataVersion()) if wrapper is None else wrapper.model()
    return BrokerRegistration(tuple(topics), version, tuple(shape.filter_server_list or ()))


# -- the compressed form --------------------------------------------------------------------------


def _compressed(registration: BrokerRegistration) -> bytes:
    pieces = [_sized(encode_data_version(registration.version))]
    pieces.append(_INT.pack(len(registration.topics)))
    for topic in registration.topics:
        line = (
            f"{topic.name} {topic.read_queue_nums} {topic.write_queue_nums} "
            f"{topic.perm} {topic.topic_filter_type}"
        )
        pieces.append(_sized(line.encode()))
    pieces.append(_sized(_encode(list(registration.filter_servers))))
    return zlib.compress(b"".join(pieces), 9)


def _sized(piece: bytes) -> bytes:
    return _INT.pack(len(piece)) + piece


def _decompressed(body: Buffer) -> BrokerRegistration:
    reader = _SizedReader(_inflate(body))
    version = decode_data_version(reader.piece())
    topics = tuple(_topic_of(reader.piece()) for _ in range(reader.count()))
    servers = tuple(_decode_servers(reader.piece()))
    return BrokerRegistration(topics, version, servers)


def _inflate(body: Buffer) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, FRAME_SIZE_BYTES_MAX)
    except zlib.error as error:
        raise malformed(_WHAT, error) from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise malformed(_WHAT, "it is cut short, or longer than a frame when decompressed")
    return data


class _SizedReader:
    """Reads pieces that follow their lengths."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        """A number of pieces; each has at least its length field."""
        number = self._number()
        if number * _INT.size > len(self._data) - self._at:
            raise malformed(_WHAT, f"it claims {number} topics")
        return number

    def piece(self) -> bytes:
        """The next piece."""
        size = self._number()
        start = self._at
        if start + size > len(self._data):
            raise malformed(_WHAT, f"a piece claims {size} bytes at byte {start}")
        self._at = start + size
        return self._data[start : self._at]

    def _number(self) -> int:
        if self._at + _INT.size > len(self._data):
            raise malformed(_WHAT, f"it ends at byte {self._at}")
        number: int = _INT.unpack_from(self._data, self._at)[0]
        self._at += _INT.size
        if number < 0:
            raise malformed(_WHAT, f"a negative length at byte {self._at}")
        return number


def _topic_of(line: bytes) -> TopicConfig:
    try:
        fields = line.decode().split(" ")
        name, read, write, perm, filter_type = fields[:5]
        numbers = (int(read), int(write), int(perm))
    except ValueError as error:
        raise malformed(_WHAT, f"the topic line {line[:80]!r}: {error}") from error
    if any(not -(2**31) <= number < 2**31 for number in numbers):
        raise malformed(_WHAT, f"the topic line {line[:80]!r} has a number out of range")
    return TopicConfig(name, *numbers, filter_type)
