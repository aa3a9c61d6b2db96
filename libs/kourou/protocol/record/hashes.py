"""The hashes in RocketMQ's files and filters: Java's string hash.

Java hashes UTF-16 code units: h = 31·h + unit, modulo 2**32, which is a dot product with powers of
31.
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul

_WORD = 0xFFFFFFFF
_INT_MIN = -(2**31)
_POWERS_MAX = 256
_POWERS = [pow(31, exponent, 2**32) for exponent in range(_POWERS_MAX)]
_POWERS_DOWN = [tuple(reversed(_POWERS[:length])) for length in range(_POWERS_MAX)]


def java_hash(text: str) -> int:
    """Java's `String.hashCode()`: signed 32 bits."""
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


@lru_cache(maxsize=65_536)
def tags_code(tag: str | None) -> int:
    """The code of a tag in a queue unit; 0 for no tag."""
    return java_hash(tag) if tag else 0


def index_hash(key: str) -> int:
    """The hash of `topic#key` in a key index: not negative."""
    return index_hash_of(java_hash(key))


def index_hash_of(value: int) -> int:
    """A Java hash in the form of a key index: its absolute value, 0 for the one that has none."""
    return 0 if value == _INT_MIN else abs(value)
