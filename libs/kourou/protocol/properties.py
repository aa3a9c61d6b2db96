"""A message's properties as one string of bytes (fact sheet §4.5).

    properties = *( name 0x01 value 0x02 )      the last 0x02 may be missing

There is no escaping, so a name or value can hold neither separator, and an empty value cannot
survive: RocketMQ's parser drops such pieces. Encoding refuses them; decoding drops them as RocketMQ
does.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import MessageIllegal

NAME_END = 1
PROPERTY_END = 2
_NAME_END = b"\x01"
_PROPERTY_END = b"\x02"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The string for these properties, in their order, without a trailing separator.

    Raises MessageIllegal for an empty name or value and for one with a separator in it.
    """
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    count = len(properties)
    if text.count("\x01") != count or (count and text.count("\x02") != count - 1):
        _refuse(properties)
    if "" in properties or "" in properties.values():
        _refuse(properties)
    return text.encode()


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
    """Every well-formed property; pieces without name or value are dropped; the last one wins."""
    properties: dict[str, str] = {}
    for piece in bytes(raw).decode("utf-8", "replace").split("\x02"):
        name, separator, value = piece.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def find_property(raw: bytes | bytearray | memoryview, name: bytes) -> bytes | None:
    """The value of the last property of this name, without parsing the others; None if there is none."""
    text = bytes(raw)
    marker = name + _NAME_END
    at = text.rfind(_PROPERTY_END + marker)
    if at >= 0:
        start = at + 1 + len(marker)
    elif text.startswith(marker):
        start = len(marker)
    else:
        return None
    end = text.find(_PROPERTY_END, start)
    return (text[start:] if end < 0 else text[start:end]) or None
