"""Three-valued logic and comparison, beside a reference that does the same the slow way."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Rejected
from kourou.filtering import sql_terms as terms
from kourou.filtering.sql import (
    NoNumber,
    Unmatchable,
    compiled,
    double,
    double_order,
    int32,
    int64,
)
from kourou.filtering.sql_grammar import parse
from kourou.protocol.record.properties import decode_properties

FAILED = "failed"
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


# -- the reference --------------------------------------------------------------------------------


class Failed(Exception):
    """What RocketMQ throws."""


def evaluate(term: terms.Term, given: dict[str, str]) -> object:
    """One term after the other, values as they are; a dictionary of properties."""
    match term:
        case terms.PropertyTerm(name):
            return given.get(name)
        case terms.Text(value) | terms.Constant(value) | terms.Number(value):
            return value
        case terms.Negative(operand):
            evaluate(operand, given)
            return None
        case terms.Bare(operand):
            return None if evaluate(operand, given) is None else False
        case terms.Not(operand):
            found = evaluate(operand, given)
            return None if found is None else not found
        case terms.InList(operand, values):
            found = evaluate(operand, given)
            return None if found is None else found in values
        case terms.Every(parts) | terms.Either(parts):
            decisive = isinstance(term, terms.Either)
            result: object = not decisive
            for part in parts:
                found = evaluate(part, given)
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result
        case terms.Comparison(sign, left, right):
            one = evaluate(left, given)
            other = None if one is None else evaluate(right, given)
            if other is None:
                return None
            return SIGNS[sign](order(term.left, one, term.right, other), 0)
        case terms.Equality(left, right):
            one, other = evaluate(left, given), evaluate(right, given)
            if one is None or other is None:
                return True if one is other else None if one is None else False
            return same(left, one, right, other)
    raise AssertionError(term)


def order(left: terms.Term, one: object, right: terms.Term, other: object) -> int:
    bits = [side.bits for side in (left, right) if isinstance(side, terms.Number)]
    wide = 0 if not bits or 0 in bits else max(bits)
    read = {0: double, 32: int32, 64: int64}[wide]
    try:
        values = [read(v.encode()) if isinstance(v, str) else v for v in (one, other)]
    except NoNumber as error:
        raise Failed from error
    if wide == 0:
        return double_order(float(values[0]), float(values[1]))
    return (values[0] > values[1]) - (values[0] < values[1])


def same(left: terms.Term, one: object, right: terms.Term, other: object) -> bool:
    kinds = (type(one), type(other))
    if kinds in ((str, str), (bool, bool)):
        return one == other
    if kinds == (str, bool):
        return (one.lower() == "true") is other
    if kinds == (bool, str):
        raise Failed
    if bool in kinds:
        return False
    return order(left, one, right, other) == 0


def reference(text: str, properties: bytes) -> object:
    try:
        return evaluate(parse(text), decode_properties(properties))
    except Failed:
        return FAILED


def judged(text: str, properties: bytes) -> object:
    try:
        return compiled(parse(text)).evaluate_stored(properties)
    except Unmatchable:
        return FAILED


# -- random expressions and messages --------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "TAGS", "_x$1"])
NUMBERS = st.sampled_from(["0", "1", "5", "2147483648", "5.0", ".5", "1e3", "-1", "-2147483648"])
TEXTS = st.sampled_from(["'x'", "'1'", "''", "'true'", "'it''s'"])
VALUES = st.sampled_from(
    [
        *(
            "1",
            "5",
            "5.0",
            " 2",
            "x",
            "",
            "true",
            "TrUe",
            "it's",
            "-1",
            "-0.0",
            "0.0",
            "NaN",
            "1e3",
        ),
        *("2147483648", "-2147483648", "9223372036854775808", "Infinity", "1.5f", "0x1p3"),
        "1\x015",
    ]
)
PROPERTIES = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
)


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sides = inner.map("({})".format) | NAMES | NUMBERS | TEXTS
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return st.one_of(
        st.tuples(sides, signs, sides).map(" ".join),
        st.tuples(sides, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
        st.tuples(sides, st.sampled_from(["AND", "OR"]), sides).map(" ".join),
        st.tuples(NAMES, st.sampled_from(["IN ('x', '1')", "NOT IN ('x', '5')"])).map(" ".join),
        st.tuples(sides, st.just("BETWEEN"), sides, st.just("AND"), sides).map(" ".join),
        sides.map("NOT {}".format),
        sides.map("- {}".format),
    )


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "TRUE", "NULL", "a = 1", "b > 5", "TAGS = 'x'"]), grow, max_leaves=8
)


@pytest.mark.feature("F237")
@given(EXPRESSIONS, PROPERTIES)
def test_the_compiled_form_says_what_the_reference_says(text: str, properties: bytes):
    try:
        expected = reference(text, properties)
    except Rejected:
        return
    assert judged(text, properties) == expected
    assert judged(text, properties + b"\x02") == expected, "the last separator may be there"


@given(EXPRESSIONS, EXPRESSIONS, PROPERTIES)
def test_laws_of_logic(one: str, other: str, properties: bytes):
    try:
        parse(f"({one}) AND ({other})")
    except Rejected:
        return
    value = judged(f"NOT (({one}) AND ({other}))", properties)
    assert value == judged(f"NOT ({one}) OR NOT ({other})", properties)
    assert judged(f"NOT NOT ({one})", properties) in (
        judged(one, properties),
        judged(f"({one}) AND TRUE", properties),  # a bare property is first made a truth
    )
    assert judged(f"({one}) OR TRUE", properties) in (True, FAILED)
    assert judged(f"({one}) AND FALSE", properties) in (False, FAILED)


# -- single facts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "properties", "verdict"),
    [
        ("status = 1", b"status\x011", True),
        ("status = 1", b"status\x012", False),
        ("status = 1", b"", None),
        ("a = b", b"", True),
        ("a = b", b"b\x011", None),
        ("a = b", b"a\x011", False),
        ("a = b", b"a\x011\x02b\x011.0", False),
        ("a > b", b"a\x0110\x02b\x019.5", True),
        ("a < b", b"a\x01NaN\x02b\x019.5", False),
        ("a > 5 OR b = 'x'", b"a\x01q\x02b\x01x", FAILED),
        ("b = 'x' OR a > 5", b"a\x01q\x02b\x01x", True),
        ("a > 5 AND b = 'x'", b"a\x01q", FAILED),
        ("b = 'x' AND a > 5", b"a\x01q\x02b\x01y", False),
        ("5 > a", b"a\x014", True),
        ("a = TRUE", b"a\x01tRuE", True),
        ("TRUE = a", b"a\x01true", FAILED),
        ("a", b"a\x01true", False),
        ("NOT a", b"a\x01true", True),
        ("-a = 1", b"a\x01-1", None),
        ("a IN ('x', 'y')", b"a\x01y", True),
        ("a NOT IN ('x')", b"", None),
    ],
)
def test_verdicts(text: str, properties: bytes, verdict: object):
    assert judged(text, properties) == verdict


@pytest.mark.parametrize(
    ("properties", "verdict"),
    [
        (b"a\x01x", True),
        (b"a\x01x\x02", True),
        (b"b\x01y\x02a\x01x\x02c\x01z", True),
        (b"a\x01y\x02a\x01x", True),
        (b"a\x01x\x02a\x01y", False),
        (b"a\x01x\x02a\x01", True),  # an empty one is none
        (b"a\x01x\x02a\x01\x02", True),
        (b"aa\x01x", None),
        (b"A\x01x", None),
        (b"b\x01a\x01x", None),
        (b"a", None),
        (b"\x01x", None),
        (b"a\x01\xff", False),
    ],
)
def test_the_last_property_of_that_name_counts(properties: bytes, verdict: object):
    assert judged("a = 'x'", properties) is verdict


def test_text_beyond_ascii():
    assert judged("a = 'été ä主😀'", "a\x01été ä主😀".encode()) is True
