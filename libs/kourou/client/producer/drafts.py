"""Encoding of messages as drafts: complete records except for what the broker assigns.

A draft has placeholders for the fields that the broker writes (queue offset, position, store time,
store host, record CRC). The broker copies the draft once and does not encode it again. The order of
properties is UNIQ_KEY, TAGS, KEYS, the application's, CLUSTER, CRC.

State: soft: encoded properties, cached in the `DraftDestination` that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from kourou.client.codecs import encode_body
from kourou.client.settings.client_settings import CompressionKind, ProducerSettings
from kourou.errors import BadRequest, MessageIllegal
from kourou.filtering.tags import check_tag
from kourou.model.message import (
    COMPRESSION_SHIFT,
    RESERVED_PROPERTIES,
    Compression,
    Message,
    Property,
    SysFlag,
)
from kourou.protocol import kernel
from kourou.protocol.record.compression import compress
from kourou.protocol.record.layout import QUEUE_ID_AT
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties

_LEVELS = {level: {Property.DELAY.value: str(level)} for level in range(1, 33)}

_KINDS = {
    CompressionKind.ZLIB: Compression.ZLIB,
    CompressionKind.LZ4: Compression.LZ4,
    CompressionKind.ZSTD: Compression.ZSTD,
}
_UNIQ_KEY = Property.UNIQ_KEY.value
_TAGS = Property.TAGS.value
_KEYS = Property.KEYS.value
_CLUSTER = Property.CLUSTER.value
_ENDINGS_MAX = 64
"""The number of tags that are cached per queue."""

_UNIQ_KEY_IS = _UNIQ_KEY.encode() + b"\x01"
_checked_tag = lru_cache(maxsize=1_024)(check_tag)  # few tags, many messages


def delay_property(
    levels_ms: Sequence[int], delay_level: int, delay: timedelta | None = None
) -> Mapping[str, str] | None:
    """Return the property that delays a message, or None without a delay.

    `delay` must equal one of `levels_ms`, the delays of the levels from 1 on. Raises BadRequest if
    it does not, if both arguments are set, or if the level is not a non-negative integer.
    """
    if delay is not None:
        if delay_level:
            raise BadRequest("delay and delay_level are both set", hint="set one of them")
        delay_level = level_of(levels_ms, delay)
    if not isinstance(delay_level, int) or delay_level < 0:
        raise BadRequest(
            f"delay_level is {delay_level!r}; it must be a whole number of at least 1",
            hint="levels count from 1",
        )
    if not delay_level:
        return None
    return _LEVELS.get(delay_level) or {Property.DELAY.value: str(delay_level)}


def level_of(levels_ms: Sequence[int], delay: timedelta) -> int:
    """Return the level with this delay; 0 for a delay of zero.

    Raises BadRequest, which names the nearest levels, if there is none.
    """
    if not isinstance(delay, timedelta):
        raise BadRequest(
            f"delay is {delay!r}, which is not a timedelta",
            hint="for example timedelta(seconds=10)",
        )
    wanted_ms = delay / timedelta(milliseconds=1)
    if not wanted_ms:
        return 0
    for level, level_ms in enumerate(levels_ms, 1):
        if level_ms == wanted_ms:
            return level
    nearest = sorted(enumerate(levels_ms, 1), key=lambda known: abs(known[1] - wanted_ms))[:2]
    named = " or ".join(f"{timedelta(milliseconds=ms)} (level {level})" for level, ms in nearest)
    raise BadRequest(
        f"{delay} is not a delay level of the brokers",
        hint=f"nearest: {named}; the producer setting delay_levels lists them all",
    )


@dataclass(frozen=True, slots=True)
class DraftDestination:
    """The destination of a draft: what its bytes contain of the queue and the broker.

    `endings` is a cache of `Drafting`. It maps a tag to the encoded properties that follow the
    unique key in a message without other properties.
    """

    topic: bytes
    queue_id: int
    cluster: str
    store_host_v6: bool = False
    endings: dict[str | None, bytes] = field(default_factory=dict, compare=False, repr=False)


class Drafting:
    """Encodes the drafts of one producer."""

    __slots__ = (
        "_born_host",
        "_compress_over",
        "_kind",
        "_level",
        "_size_max",
        "_sys_flag",
    )

    def __init__(self, settings: ProducerSettings, born_host: bytes) -> None:
        self._born_host = born_host
        self._size_max = settings.message_size_bytes_max
        self._compress_over = settings.compress_over_bytes
        self._kind = _KINDS[settings.compression]
        self._level = settings.compression_level
        self._sys_flag = int(SysFlag.COMPRESSED) | int(self._kind) << COMPRESSION_SHIFT

    def draft(
        self,
        place: DraftDestination,
        body: bytes,
        unique_key: str,
        born_ms: int,
        tag: str | None = None,
        keys: str = "",
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        own: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the bytes of one draft; `keys` are already joined by spaces.

        `own` are properties that the client sets; their names are reserved. Raises MessageIllegal
        if the body exceeds the limit or the properties cannot be stored, and BadRequest for a
        reserved property name or a tag that no consumer could subscribe to.
        """
        sys_flag = 0
        if len(body) >= self._compress_over or len(body) > self._size_max:
            body, sys_flag = self._squeezed(body)
        if keys or properties or own:
            encoded = self._properties(place, unique_key, tag, keys, properties, own)
        else:
            ending = place.endings.get(tag) or self._ending(place, tag)
            encoded = _UNIQ_KEY_IS + unique_key.encode() + ending
        try:
            made = kernel.draft(
                place.topic,
                place.queue_id,
                body,
                encoded,
                flag,
                sys_flag,
                born_ms,
                self._born_host,
                place.store_host_v6,
                0,
                0,
                True,
            )
        except (OverflowError, ValueError):
            made = None
        if made is None:
            made = self._encoded_draft(place, body, encoded, flag, sys_flag, born_ms)
        return made

    def drafts(
        self,
        place: DraftDestination,
        messages: Sequence[Message],
        unique_keys: Sequence[str],
        born_ms: int,
        all_keys: Sequence[str],
        properties: Sequence[Mapping[str, str] | None],
    ) -> tuple[bytes, list[int]]:
        """Return the adjacent drafts of messages to one queue, and their sizes; see `draft`."""
        bodies = [
            body if type(body := message.body) is bytes else encode_body(body)
            for message in messages
        ]
        flags, sys_flags = [message.flag for message in messages], [0] * len(messages)
        for index, length in enumerate(map(len, bodies)):
            if length >= self._compress_over or length > self._size_max:
                bodies[index], sys_flags[index] = self._squeezed(bodies[index])
        ending_of, ending_made = place.endings.get, self._ending
        encoded = [
            self._properties(place, unique_key, message.tag, keys, some, None)
            if keys or some
            else _UNIQ_KEY_IS
            + unique_key.encode()
            + (ending_of(message.tag) or ending_made(place, message.tag))
            for message, unique_key, keys, some in zip(
                messages, unique_keys, all_keys, properties, strict=True
            )
        ]
        try:
            made = kernel.drafts(
                place.topic,
                place.queue_id,
                bodies,
                encoded,
                flags,
                sys_flags,
                born_ms,
                self._born_host,
                place.store_host_v6,
            )
        except (OverflowError, ValueError):
            made = None
        if made is not None:
            return made
        each = [
            self._encoded_draft(place, *fields, born_ms)
            for fields in zip(bodies, encoded, flags, sys_flags, strict=True)
        ]
        return b"".join(each), list(map(len, each))

    def _encoded_draft(
        self,
        place: DraftDestination,
        body: bytes,
        encoded: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
    ) -> bytes:
        """Return a draft that the kernel refused; raises the error that says why."""
        return encode_draft(
            topic=place.topic,
            queue_id=place.queue_id,
            body=body,
            properties=encoded,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_ms,
            born_host=self._born_host,
            store_host_v6=place.store_host_v6,
        )

    def _properties(
        self,
        place: DraftDestination,
        unique_key: str,
        tag: str | None,
        keys: str,
        properties: Mapping[str, str] | None,
        own: Mapping[str, str] | None,
    ) -> bytes:
        named = {_UNIQ_KEY: unique_key}
        if tag:
            _checked_tag(tag)
            named[_TAGS] = tag
        if keys:
            named[_KEYS] = keys
        if properties:
            _refuse_reserved(properties)
            named.update(properties)
        if own:
            named.update(own)
        if place.cluster:
            named[_CLUSTER] = place.cluster
        return encode_properties(named)

    def _ending(self, place: DraftDestination, tag: str | None) -> bytes:
        """Return the encoded properties after the unique key, for messages with only this tag.

        The unique key is ASCII.
        """
        whole = self._properties(place, "0", tag, "", None, None)
        if len(place.endings) >= _ENDINGS_MAX:
            place.endings.clear()
        ending = place.endings[tag] = whole[len(_UNIQ_KEY_IS) + 1 :]
        return ending

    def _squeezed(self, body: bytes) -> tuple[bytes, int]:
        """Return the body, compressed if that makes it smaller, and the matching system flag."""
        if len(body) > self._size_max:
            raise MessageIllegal(
                f"the body has {len(body)} bytes; at most {self._size_max} are allowed",
                hint="store large content elsewhere and send a reference, or raise "
                "max_message_size (maxMessageSize)",
            )
        squeezed = compress(self._kind, body, self._level)
        return (squeezed, self._sys_flag) if len(squeezed) < len(body) else (body, 0)


def _refuse_reserved(properties: Mapping[str, str]) -> None:
    if not isinstance(properties, Mapping):
        raise BadRequest(
            f"properties is {properties!r}; it must be a dict", hint='for example {"shop": "12"}'
        )
    reserved = RESERVED_PROPERTIES.intersection(properties)
    if reserved:
        raise BadRequest(
            f"property name {min(reserved)} is reserved",
            hint="pass tags and keys as arguments; rename other properties",
        )


def joined_keys(keys: str | Iterable[str]) -> str:
    """Return business keys as the record stores them: joined by single spaces.

    A string may contain several keys separated by spaces. An element of a list must not contain
    spaces, because it would be indexed as different keys.
    """
    if isinstance(keys, str):
        parts = keys.split()
        return parts[0] if len(parts) == 1 else " ".join(parts)
    try:
        given = list(keys)
        for key in given:
            if not key or any(character.isspace() for character in key):
                raise BadRequest(f"key {key!r} is empty or contains a space")
        return " ".join(given)
    except (TypeError, AttributeError) as error:  # not checked before: it would slow each send
        raise BadRequest(f"keys is {keys!r}; it must be a string or a list of strings") from error


def moved_to_queue(draft: bytes, queue_id: int) -> bytes:
    """Return the draft changed to another queue of its topic, for a retry on that queue."""
    return draft[:QUEUE_ID_AT] + queue_id.to_bytes(4, "big") + draft[QUEUE_ID_AT + 4 :]
