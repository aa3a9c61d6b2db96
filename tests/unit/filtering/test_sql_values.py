"""How Java reads numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.filtering.sql import NoNumber, double, double_order, int32, int64


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 5_000 + "5", 5),
        ("-" + "0" * 5_000 + "5", -5),
        ("\u0663", 3),  # ARABIC-INDIC DIGIT THREE
    ],
)
def test_whole_numbers(text: str, value: int):
    assert int32(text.encode()) == value
    assert int64(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "1_0", "5.0", "1e3", "0x1", "--5", "+", "5L", "\U0001d7dd", "x", "9" * 5_000],
)
def test_what_is_no_whole_number(text: str):
    for read in (int32, int64):
        with pytest.raises(NoNumber):
            read(text.encode())
    with pytest.raises(NoNumber):
        int32(b"\xff")


def test_each_width_has_its_ends():
    for beyond in (2**31, -(2**31) - 1):
        assert int64(b"%d" % beyond) == beyond
        with pytest.raises(NoNumber, match="32 bits"):
            int32(b"%d" % beyond)
    assert int64(b"%d" % -(2**63)) == -(2**63)
    for beyond in (2**63, -(2**63) - 1):
        with pytest.raises(NoNumber, match="64 bits"):
            int64(b"%d" % beyond)


@given(st.integers(-(2**33), 2**33))
def test_every_whole_number_is_read_or_too_large(value: int):
    if -(2**31) <= value < 2**31:
        assert int32(b"%d" % value) == value
    else:
        with pytest.raises(NoNumber):
            int32(b"%d" % value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-1.5e3", -1500.0),
        (" 5 ", 5.0),
        ("\t5\x1f", 5.0),
        ("1.5f", 1.5),
        ("1.5D", 1.5),
        ("0x1p3", 8.0),
        ("0X.8P1d", 1.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("9" * 30_000, math.inf),
    ],
)
def test_doubles(text: str, value: float):
    assert double(text.encode()) == value


def test_no_number_is_a_double_too():
    assert math.isnan(double(b"NaN"))


@pytest.mark.parametrize(
    "text",
    ["", "x", "nan", "inf", "infinity", "1_0", "0x1", "1e", ".", "+", "5L", "\u00a05", "1 2"],
)
def test_what_is_no_double(text: str):
    with pytest.raises(NoNumber):
        double(text.encode())


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_double_is_read_as_it_is_written(value: float):
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    if math.isnan(value):
        text = "NaN"
    assert double_order(double(text.encode()), value) == 0


def test_doubles_have_one_order():
    """Double.compareTo: -0.0 below 0.0, and NaN above everything."""
    rising = [-math.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, math.inf, math.nan]
    for index, left in enumerate(rising):
        for other, right in enumerate(rising):
            found = double_order(left, right)
            assert (found > 0) - (found < 0) == (index > other) - (index < other), (left, right)


@pytest.mark.fault
@pytest.mark.parametrize("head", ["", "0x"])
@pytest.mark.parametrize("tail", ["x", ".x", "." + "1" * 300_000 + "x", "e" + "1" * 300_000 + "x"])
def test_a_long_text_is_no_double(head: str, tail: str):
    """Longer than any property, so that a pattern with quadratic time needs minutes for it."""
    with pytest.raises(NoNumber):
        double((head + "1" * 300_000 + tail).encode())
