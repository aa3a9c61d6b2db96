"""The hashes that files and filters are built on: Java's string hash and the masked CRC-32.

Lives here: scalar and vectorised forms. Vectors: fact sheet §11.

Java hashes UTF-16 code units: h = 31·h + unit, wrapping at 32 bits. Over keys of equal length that
is a dot product with powers of 31, which numpy does for a whole batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MASK = 0x7FFFFFFF
_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """`String.hashCode()`: signed 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=256)
def _powers(length: int) -> npt.NDArray[np.uint32]:
    powers = np.ones(length, dtype=np.uint32)
    with np.errstate(over="ignore"):
        for at in range(length - 2, -1, -1):
            powers[at] = powers[at + 1] * np.uint32(31)
    return powers


def java_hash_rows(rows: npt.NDArray[np.uint8], seed: int = 0) -> npt.NDArray[np.int32]:
    """Hashes of ASCII texts of equal length, one a row; `seed` is the hash of a common prefix."""
    length = rows.shape[1]
    with np.errstate(over="ignore"):
        sums = rows.astype(np.uint32) @ _powers(length)
        if seed:
            sums = sums + np.uint32((seed * pow(31, length, 2**32)) & 0xFFFFFFFF)
    return sums.astype(np.uint32).view(np.int32)


def java_hashes(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """Hashes of UTF-8 texts; those that are ASCII and share a length are hashed together."""
    hashes = np.empty(len(texts), dtype=np.int32)
    by_length: dict[int, list[int]] = {}
    for at, text in enumerate(texts):
        if text and text.isascii():
            by_length.setdefault(len(text), []).append(at)
        else:
            hashes[at] = java_hash(text.decode("utf-8", "replace"))
    for length, places in by_length.items():
        if len(places) < 4:
            for at in places:
                hashes[at] = java_hash(texts[at].decode("ascii"))
            continue
        joined = b"".join([texts[at] for at in places])
        rows = np.frombuffer(joined, dtype=np.uint8).reshape(len(places), length)
        hashes[places] = java_hash_rows(rows)
    return hashes


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


def index_hashes_of(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """`index_hash_of` for many."""
    positive = np.abs(values.astype(np.int64))
    positive[values == _INT_MIN] = 0
    return positive.astype(np.int32)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of a stored body without its top bit; 0 for an empty one."""
    return zlib.crc32(body) & MASK
