"""The encoded properties of many records, as far as they are written the usual way.

Lives here: is every one of these strings what `encode_properties` makes of some properties, and the
search for one name in all of them. May not live here: one string (kourou.protocol.properties).

State: none.

*Plain* properties end with the record's checksum, have no name twice, none that is empty, no empty
value and no bytes that are not UTF-8. Then reading them and writing them again changes nothing, so
that whoever adds or takes away one can do it to the bytes. All records of a sender are plain, as a
rule, and have the same few sequences of names; only these are looked at one by one. Where it is one
sequence for all, the search is arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Self

import numpy as np

from kourou.model.limits import CRC_PROPERTY_BYTES
from kourou.protocol.properties import NAME_END, PROPERTY_END
from kourou.protocol.record_columns import Bytes, Longs, sliding
from kourou.protocol.record_keys import distinct
from kourou.protocol.record_layout import CRC_MARK, CRC_VALUE_BYTES

_VALUES = re.compile(rb"\x01[^\x01\x02]+\x02")
_CRC_NAME = CRC_MARK[:-1]

Shape = tuple[bytes, ...]
"""The names that a record has, in their order, but for the checksum's, which is last."""


class PlainProperties:
    """Plain properties of many records; `shapes` are the different ones."""

    __slots__ = ("_blob", "_places", "shapes", "texts")

    def __init__(
        self,
        texts: Sequence[bytes],
        blob: Bytes,
        shapes: Sequence[Shape],
        places: tuple[Longs, Longs] | None = None,
    ) -> None:
        self.texts = texts
        self.shapes = shapes
        self._blob = blob
        self._places = places

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Self | None:
        """These encoded properties, of at least one record; None unless all of them are plain."""
        if {text[-CRC_PROPERTY_BYTES:-CRC_VALUE_BYTES] for text in texts} != {CRC_MARK}:
            return None
        if {text[-1] for text in texts} != {PROPERTY_END}:
            return None
        joined = b"".join(texts)
        try:
            joined.isascii() or joined.decode()
        except UnicodeDecodeError:
            return None
        blob = np.frombuffer(joined, np.uint8)
        alike = _places_alike(blob, texts)
        if alike is not None:
            shape, *places = alike
            return cls(texts, blob, [shape], (places[0], places[1]))
        shapes = _shapes(joined, len(texts))
        return None if shapes is None else cls(texts, blob, shapes)

    def all_have(self, names: frozenset[bytes]) -> bool:
        """Does every record have all of these properties?"""
        return all(names.issubset(shape) for shape in self.shapes)

    def some_have(self, names: frozenset[bytes]) -> bool:
        """Is there a record with one of these?"""
        return any(not names.isdisjoint(shape) for shape in self.shapes)

    def values(self, name: bytes) -> tuple[list[bytes], Longs] | None:
        """The different values of a property, and the number of each record's among them; None
        where some record has none.
        """
        if not self.all_have(frozenset((name,))):
            return None
        if self._places is not None:
            which = self.shapes[0].index(name)
            names_end, ends = self._places
            at = names_end[:, which] + 1
            return distinct(self._blob, at, ends[:, which] - at)
        # A separator in front, so that a name is not found at the end of another.
        mark = b"\x02%s\x01" % name
        found = [(b"\x02" + text).partition(mark)[2].partition(b"\x02")[0] for text in self.texts]
        numbers = {value: number for number, value in enumerate(dict.fromkeys(found))}
        return list(numbers), np.fromiter(map(numbers.__getitem__, found), np.int64, len(found))


def _places_alike(blob: Bytes, texts: Sequence[bytes]) -> tuple[Shape, Longs, Longs] | None:
    """The shape that all records have, and where names and properties of each end, a row a record.

    None if the shapes differ, or one is not plain.
    """
    count = len(texts)
    ends = np.flatnonzero(blob <= PROPERTY_END)
    wide = texts[0].count(b"\x02")
    if len(ends) != 2 * wide * count:
        return None
    pairs = ends.reshape(count, wide, 2)
    names_end, values_end = pairs[:, :, 0], pairs[:, :, 1]
    if (blob[names_end] != NAME_END).any() or (blob[values_end] != PROPERTY_END).any():
        return None
    sizes = np.fromiter(map(len, texts), np.int64, count)
    if (values_end[:, -1] != sizes.cumsum() - 1).any() or (values_end - names_end < 2).any():
        return None
    begins = np.empty_like(names_end)
    begins[:, 1:] = values_end[:, :-1] + 1
    begins[:, 0] = sizes.cumsum() - sizes
    lengths = names_end - begins
    names: list[bytes] = []
    for which, length in enumerate(lengths[0].tolist()):
        name = blob[begins[0, which] : begins[0, which] + length].tobytes()
        if not length or (lengths[:, which] != length).any():
            return None
        if sliding(blob, f"V{length}")[begins[:, which]].tobytes() != name * count:
            return None
        names.append(name)
    if names.pop() != _CRC_NAME or _CRC_NAME in names or len(set(names)) < len(names):
        return None
    return tuple(names), names_end, values_end


def _shapes(joined: bytes, count: int) -> list[Shape] | None:
    """The shapes of so many records that end with their checksums; None if one is not plain."""
    if joined.count(b"\x01") != joined.count(b"\x02"):
        return None
    # Of a plain string this leaves its names, each with a 0x01 behind it.
    pieces = _VALUES.sub(b"\x01", joined).split(CRC_MARK)
    # Each string ends with the mark, so as many marks as strings are one in each.
    if pieces.pop() or len(pieces) != count:
        return None
    shapes: list[Shape] = []
    for piece in set(pieces):
        names = piece.split(b"\x01")
        # Left are no separators that no name or value explains, and no name that ends with it.
        if names.pop() or b"\x02" in piece or b"" in names or len(set(names)) < len(names):
            return None
        shapes.append(tuple(names))
    return shapes
