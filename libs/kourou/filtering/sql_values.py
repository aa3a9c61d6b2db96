"""Converting the text of a property to a number, as RocketMQ's comparisons do.

A property is compared in the width of the number it is compared with: compared with `5`, the texts
`5.0`, ` 5` and `2147483648` are not numbers. If a text is not a number, the whole filter does not
match.
"""

from __future__ import annotations

import math
import re

from kourou.filtering.sql_terms import INT32_TOP, INT64_TOP

_PLAIN = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_WHOLE = re.compile(r"[+-]?\d+").fullmatch
_DECIMAL = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
).fullmatch
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
).fullmatch
_NAMED = {
    "NaN": math.nan,
    "+NaN": math.nan,
    "-NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
_DIGITS_MAX = 64
"""Longer ones have leading zeros, or are too large for any width."""
_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java trims."""


class NoNumber(ValueError):
    """The text of a property is not a number of the required width."""


def int32(text: bytes) -> int:
    """Java's `Integer.valueOf`."""
    if len(text) < 10 and text.isdigit():
        return int(text)
    return _whole(text, INT32_TOP)


def int64(text: bytes) -> int:
    """Java's `Long.valueOf`."""
    if len(text) < 19 and text.isdigit():
        return int(text)
    return _whole(text, INT64_TOP)


def _whole(raw: bytes, most: int) -> int:
    text = raw.decode("utf-8", "replace")
    # Java processes UTF-16 units, so it knows only the digits of the first plane.
    if not _WHOLE(text) or not all(char < "\U00010000" for char in text):
        raise NoNumber(f"{text[:40]!r} is not a whole number")
    if len(text) > _DIGITS_MAX:
        digits = text.lstrip("+-").lstrip("0") or "0"
        text = text[0] + digits if text[0] in "+-" else digits
    if len(text) > _DIGITS_MAX or not -most - 1 <= (value := int(text)) <= most:
        raise NoNumber(f"{text[:40]!r} is too large for {'32' if most == INT32_TOP else '64'} bits")
    return value


def double(text: bytes) -> float:
    """Java's `Double.valueOf`."""
    if _PLAIN(text):
        return float(text)
    return _other_double(text)


def _other_double(raw: bytes) -> float:
    text = raw.decode("utf-8", "replace").strip(_BLANKS)
    if text in _NAMED:
        return _NAMED[text]
    if found := _DECIMAL(text):
        return float(found[1])
    if found := _HEX(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise NoNumber(f"{text[:40]!r} is not a number")


def double_order(left: float, right: float) -> int:
    """Java's `Double.compareTo`: below 0, 0 or above; NaN is the greatest, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """Orders values that < and > do not."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1
