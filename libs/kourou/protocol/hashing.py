"""The hashes that files and filters are built on: Java's string hash and the masked CRC-32.

Lives here: scalar and vectorised forms. Vectors: fact sheet §11.

Java hashes UTF-16 code units: h = 31·h + unit, wrapping at 32 bits. That is a dot product with
powers of 31, which numpy does for a whole batch; zeros in front of a text leave its hash as it is,
so texts of different lengths are hashed together, right-aligned.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

import numpy as np
import numpy.typing as npt

MASK = 0x7FFFFFFF
_WORD = 0xFFFFFFFF
_INT_MIN = -(2**31)
_POWERS_MAX = 256
_POWERS = [pow(31, exponent, 2**32) for exponent in range(_POWERS_MAX)]
_POWERS_DOWN = [tuple(reversed(_POWERS[:length])) for length in range(_POWERS_MAX)]
_VECTOR_FROM = 4
"""Below so many texts a loop is faster."""
_PADDED_MAX = 8
"""Texts of very different lengths are hashed one by one: the padding would cost more."""


def java_hash(text: str) -> int:
    """`String.hashCode()`: signed 32 bits."""
    if text.isascii():
        value = _hash_units(text.encode())
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        value = _hash_units(
            [high << 8 | low for high, low in zip(raw[::2], raw[1::2], strict=True)]
        )
    return value - 2**32 if value >= 2**31 else value


def _hash_units(units: bytes | list[int]) -> int:
    if len(units) < _POWERS_MAX:
        total: int = sum(map(mul, units, _POWERS_DOWN[len(units)]))
        return total & _WORD
    value = 0
    for unit in units:
        value = (31 * value + unit) & _WORD
    return value


@lru_cache(maxsize=256)
def _powers(length: int) -> npt.NDArray[np.uint32]:
    return np.asarray(
        [pow(31, exponent, 2**32) for exponent in range(length - 1, -1, -1)], dtype=np.uint32
    )


def java_hash_rows(
    rows: npt.NDArray[np.uint8], seeds: int | npt.NDArray[np.int64] = 0
) -> npt.NDArray[np.int32]:
    """Hashes of ASCII texts of equal length, one a row; `seeds` are their prefixes' hashes."""
    length = rows.shape[1]
    sums: npt.NDArray[np.uint32] = rows.astype(np.uint32) @ _powers(length)
    moved = np.atleast_1d(np.asarray(seeds, dtype=np.int64)).astype(np.uint32)
    return (sums + moved * np.uint32(pow(31, length, 2**32))).view(np.int32)


def java_hashes(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """Hashes of UTF-8 texts; bytes that are not UTF-8 count as U+FFFD, as in Java."""
    count = len(texts)
    if count < _VECTOR_FROM:
        return np.asarray([_hash_of(text) for text in texts], dtype=np.int32)
    lengths = list(map(len, texts))
    longest = max(lengths)
    if longest * count > _PADDED_MAX * sum(lengths) + 4096:
        return np.asarray([_hash_of(text) for text in texts], dtype=np.int32)
    if longest == 0:
        return np.zeros(count, dtype=np.int32)
    if min(lengths) < longest:
        joined = b"".join([text.rjust(longest, b"\0") for text in texts])
    else:
        joined = b"".join(texts)
    hashes = java_hash_rows(np.frombuffer(joined, dtype=np.uint8).reshape(count, longest))
    if not joined.isascii():
        for index, text in enumerate(texts):
            if not text.isascii():
                hashes[index] = _hash_of(text)
    return hashes


def _hash_of(text: bytes) -> int:
    return java_hash(text.decode("utf-8", "replace"))


@lru_cache(maxsize=65_536)
def tags_code(tag: str | None) -> int:
    """What a queue unit keeps of a tag; 0 for none."""
    return java_hash(tag) if tag else 0


def index_hash(key: str) -> int:
    """The hash of `topic#key` in a key index: not negative."""
    return index_hash_of(java_hash(key))


def index_hash_of(value: int) -> int:
    """A Java hash as a key index stores it: its absolute value, 0 for the one that has none."""
    return 0 if value == _INT_MIN else abs(value)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of a stored body without its top bit; 0 for an empty one."""
    return zlib.crc32(body) & MASK
