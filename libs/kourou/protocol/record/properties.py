"""A message's properties as one byte string.

    properties = *( name 0x01 value 0x02 )      the last 0x02 may be missing

There is no escaping, so a name or value cannot contain either separator, and an empty value cannot
be stored: RocketMQ's parser drops such pieces. Encoding refuses them; decoding drops them as
RocketMQ does. If a name occurs twice, the last value counts, which RocketMQ's own batches rely on.

Encoding omits `__CRC32#`: it protects one record's bytes and means nothing in another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kourou.errors import MessageIllegal
from kourou.model.message import Property

Values: TypeAlias = "tuple[bytes | None, ...]"
"""The stored values of some properties of one message; None for a missing one."""

NAME_END = 1
PROPERTY_END = 2
_NAME_END = b"\x01"
_PROPERTY_END = b"\x02"
_CRC_NAME = Property.CRC32.value


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The string for these properties, in their order, without a trailing separator.

    Raises MessageIllegal for an empty name or value, for one that contains a separator and for text
    that is not Unicode (a lone surrogate).
    """
    if _CRC_NAME in properties:
        properties = {name: value for name, value in properties.items() if name != _CRC_NAME}
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    count = len(properties)
    if text.count("\x01") != count or (count and text.count("\x02") != count - 1):
        _refuse(properties)
    if "" in properties or "" in properties.values():
        _refuse(properties)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(
            "a property is not valid Unicode", hint="encode the value, for example as base64"
        ) from error


def _refuse(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not name or not value:
            raise MessageIllegal(
                f"the property {name!r} is empty", hint="leave it out; it cannot be stored"
            )
        for text in (name, value):
            if "\x01" in text or "\x02" in text:
                raise MessageIllegal(
                    f"the property {name!r} contains the separator 0x01 or 0x02",
                    hint="encode the value",
                )


def decode_properties(raw: bytes | bytearray | memoryview) -> dict[str, str]:
    """Every well-formed property; pieces without a name or a value are dropped; the last one
    counts.

    Bytes that are not UTF-8 become U+FFFD, as in Java: a message must not be lost for a label.
    """
    text = str(raw, "utf-8", "replace")
    if not text:
        return {}
    if text[-1] == "\x02":
        text = text[:-1]
    try:
        # The fast path for well-formed strings; dict() fails on a piece without a separator.
        properties = dict([piece.split("\x01", 1) for piece in text.split("\x02")])
        if "" not in properties and "" not in properties.values():
            return properties
    except ValueError:
        pass
    return _decode_leniently(text)


def _decode_leniently(text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find_property(raw: bytes | bytearray | memoryview, name: bytes) -> bytes | None:
    """The value of the last property of this name, without parsing the others; None without one."""
    text = bytes(raw)
    marker = name + _NAME_END
    at = text.rfind(_PROPERTY_END + marker)
    while at >= 0:
        value = _value_at(text, at + 1 + len(marker))
        if value:
            return value
        at = text.rfind(_PROPERTY_END + marker, 0, at)
    return _value_at(text, len(marker)) or None if text.startswith(marker) else None


def find_properties(raw: bytes | bytearray | memoryview, names: Sequence[bytes]) -> Values:
    """The values of `find_property` for several names."""
    return tuple(find_property(raw, name) for name in names)


def labels(properties: bytes) -> tuple[bytes, list[bytes]]:
    """The tags (b"" for none) and the keys of these encoded properties: the unique key, then the
    business keys. If a name occurs twice, its last non-empty value counts.
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
    keys += [key for key in business.split(b" ") if key]
    return tag, keys


def _value_at(text: bytes, start: int) -> bytes:
    end = text.find(_PROPERTY_END, start)
    return text[start:] if end < 0 else text[start:end]
