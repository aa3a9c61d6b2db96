"""The door to filters: compiled once, bounded, and counting what cannot be compared."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Code, Rejected
from kourou.filtering import sql
from kourou.filtering import sql_terms as terms
from kourou.filtering.sql import (
    NoNumber,
    Unmatchable,
    compiled,
    double,
    double_order,
    int32,
    int64,
    sql_filter,
)
from kourou.filtering.sql_grammar import parse
from kourou.filtering.sql_terms import (
    INT32_TOP,
    INT64_TOP,
    Bare,
    Constant,
    Every,
    Not,
    Number,
    PropertyTerm,
    Text,
)
from kourou.model.limits import FILTER_CONDITIONS_MAX, FILTER_DEPTH_MAX


@pytest.mark.feature("F237")
def test_a_filter_chooses_by_properties():
    status = sql_filter("status = 1")
    assert status.matches(b"status\x011")
    assert not status.matches(b"status\x012")
    assert not status.matches(b"status\x01one"), "what cannot be compared does not match"
    assert not status.matches(b"")


def test_only_what_is_true_matches():
    for text in ("a", "NULL", "FALSE", "b = 1"):
        assert not sql_filter(text).matches(b"a\x01true")


def test_a_text_is_compiled_once():
    assert sql_filter("a = 1 AND b = 2") is sql_filter("a = 1 AND b = 2")


def test_a_refusal_is_remembered_and_new_every_time():
    """A client may bring the same wrong text with every pull."""
    errors = []
    for _ in range(2):
        with pytest.raises(Rejected, match="at position 5") as refused:
            sql_filter("a = @")
        errors.append(refused.value)
    assert errors[0] is not errors[1]
    assert errors[0].wire_code == Code.SUBSCRIPTION_PARSE_FAILED
    assert sql._remembered.cache_info().maxsize is not None


def test_a_text_has_a_limit():
    with pytest.raises(Rejected, match="at most 16384"):
        sql_filter("a = 1" + " " * 16_384)


def test_a_predicate_says_what_cannot_be_compared():
    predicate = sql_filter("a > 5").predicate()
    assert predicate.names == (b"a",)
    verdicts = [predicate((text,)) for text in (b"6", b"x", b"5", None, b"7.5", b"70")]
    assert verdicts == [True, None, False, False, None, True]
    assert "7.5" in predicate.reason
    assert predicate.failed == 0, "its caller counts"


PAGE = Path(__file__).parents[3] / "docs/formats/sql-filter.md"


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table below a heading of the page."""
    part = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def test_the_examples_of_the_page() -> None:
    examples = rows("Examples")
    assert len(examples) == 14
    for text, properties, verdict in examples:
        pairs = re.findall(r"`(\w+)=([^`]*)`", properties)
        raw = "".join(f"\x02{name}\x01{value}" for name, value in pairs).encode()
        try:
            found = str(compiled(parse(text.strip("`"))).evaluate_stored(raw)).lower()
        except Unmatchable:
            found = "cannot be compared"
        assert found.replace("none", "unknown") == verdict, text


def test_the_page_lists_what_rocketmq_takes_and_we_refuse() -> None:
    for text, rest in rows("Differences to RocketMQ"):
        with pytest.raises(Rejected):
            parse(text.strip("`"))
        parse(rest.strip("`"))


# -- three-valued logic and comparison; RocketMQ's own verdicts are in tests/golden ----------------


FAILED = "failed"


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
        ("a = b", b"", True),
        ("a = b", b"b\x011", None),
        ("a = b", b"a\x011", False),
        ("a < b", b"a\x01NaN\x02b\x019.5", False),
        ("a > 5 AND b = 'x'", b"a\x01q", FAILED),
        ("b = 'x' AND a > 5", b"a\x01q\x02b\x01y", False),
    ],
)
def test_verdicts(text: str, properties: bytes, verdict: object):
    """Beside those of RocketMQ's own filter, in tests/golden/test_sql_vectors.py."""
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


# -- expressions become terms, or an error names the place and what was expected -------------------


A, B = PropertyTerm("a"), PropertyTerm("b")


def is_one(name: str) -> terms.Truth:
    return terms.equal(PropertyTerm(name), Number(1, 32))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a = 1", is_one("a")),
        ("a=1", is_one("a")),
        ("((a)) = ((1))", is_one("a")),
        ("a <> 1", Not(is_one("a"))),
        ("a", Bare(A)),
        ("TRUE", Constant(True)),
        ("nUlL", Constant(None)),
        ("+a = +1", is_one("a")),
        ("a = - - 1", terms.equal(A, Number(1, 32, signed=True))),
        ("a = 'it''s'", terms.equal(A, Text("it's"))),
        ("a = ''", terms.equal(A, Text(""))),
        ("_a$1 = 1", is_one("_a$1")),
        ("ANDY = 1", is_one("ANDY")),
        ("a = 1AND b = 1", terms.every((is_one("a"), is_one("b")))),
        ("a IS NULL", terms.is_null(A)),
        ("a IS NOT NULL", Not(terms.is_null(A))),
        ("a IN ('x', 'y', 'x')", terms.member(A, ("x", "y"))),
        ("a NOT IN ('x')", Not(terms.member(A, ("x",)))),
        ("a BETWEEN 1 AND b", terms.between(A, Number(1, 32), B)),
        ("a NOT BETWEEN b AND 5", terms.outside(A, B, Number(5, 32))),
        ("a BETWEEN 1 AND 1", terms.between(A, Number(1, 32), Number(1, 32))),
        ("a BETWEEN 1 AND -1", terms.between(A, Number(1, 32), Number(-1, 32, signed=True))),
        ("a = 2147483647", terms.equal(A, Number(INT32_TOP, 32))),
        ("a = 2147483648", terms.equal(A, Number(INT32_TOP + 1, 64))),
        ("a = 9223372036854775807", terms.equal(A, Number(INT64_TOP, 64))),
        ("a = -2147483648", terms.equal(A, Number(-INT32_TOP - 1, 64, signed=True))),
        ("a = 5L", terms.equal(A, Number(5, 32))),
        ("a = 5.", terms.equal(A, Number(5.0, 0))),
        ("1 = TRUE", terms.equal(Number(1, 32), Constant(True))),
        ("'true' = TRUE", terms.equal(Text("true"), Constant(True))),
        ("TRUE = -1", terms.equal(Constant(True), Number(-1, 32, signed=True))),
        ("a /* c **/ = -- x\n 1 -- the end", is_one("a")),
        ("a\t=\r\n\f1", is_one("a")),
    ],
)
def test_expressions(text: str, term: terms.Term):
    assert parse(text) == term


def test_precedence():
    assert parse("a = 1 OR b = 1 AND c = 1") == terms.either(
        (is_one("a"), terms.every((is_one("b"), is_one("c"))))
    )
    assert parse("NOT a = 1") == terms.equal(Not(Bare(A)), Number(1, 32))
    assert parse("NOT (a = 1)") == Not(is_one("a"))
    assert parse("a = b > 1") == terms.equal(A, terms.compared(">", B, Number(1, 32)))
    assert parse("a = 1 = 1") == terms.equal(is_one("a"), Number(1, 32))
    assert parse("a BETWEEN 1 AND 2 AND b = 1") == terms.every(
        (terms.between(A, Number(1, 32), Number(2, 32)), is_one("b"))
    )
    assert isinstance(parse("a = 1 AND b = 1 AND c = 1"), Every)


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 1, "unexpected end; expected a property or a value"),
        ("a >", 4, "unexpected end; expected a property or a value"),
        ("a = 1 AND", 10, "unexpected end; expected a property or a value"),
        ("(a = 1", 7, "unexpected end; expected )"),
        ("a = 1 garbage", 7, "unexpected garbage; expected an operator, AND, OR or the end"),
        ("a = 1 )", 7, "unexpected ); expected the end"),
        ("a = 007", 6, "unexpected 0; expected an operator, AND, OR or the end"),
        ("a = 0L", 6, "unexpected L; expected"),
        (
            "a-b = 1",
            2,
            "unexpected -; expected an operator, AND, OR or the end (arithmetic is not",
        ),
        ("a + 1 > 2", 3, "unexpected +; expected an operator, AND, OR or the end (arithmetic is"),
        (
            "a LIKE 'x%'",
            3,
            "unexpected LIKE; expected an operator, AND, OR or the end (LIKE is not supported",
        ),
        ("a CONTAINS 'x'", 3, "unexpected CONTAINS"),
        ("a IN (1, 2)", 7, "unexpected 1; expected a string in single quotes"),
        ("a IN ()", 7, "unexpected ); expected a string in single quotes"),
        ("a IN ('x' 'y')", 11, "unexpected 'y'; expected ) or ,"),
        ("a IS TRUE", 6, "unexpected TRUE; expected NULL or NOT"),
        ("a NOT 1", 7, "unexpected 1; expected BETWEEN or IN"),
        ("a BETWEEN 1 OR 2", 13, "unexpected OR; expected AND"),
        ("AND = 1", 1, "unexpected AND; expected a property or a value"),
        ("a == 1", 4, "unexpected =; expected a property or a value (use = for equality and"),
        (
            "a != 1",
            3,
            "invalid character '!'; expected SQL92 (use = for equality and <> for inequality)",
        ),
        ('a = "x"', 5, "invalid character '\"'; expected SQL92 (write strings in single quotes)"),
        ("a = 'x", 5, "unterminated string; expected a closing quote"),
        ("a.b = 1", 2, "invalid character '.'"),
        ("a = 1;", 6, "invalid character ';'"),
        ("a = 1\n AND b @ 2", 14, "invalid character '@'"),
        ("a /* b", 3, "invalid character '/'"),
        ("\u212a = 1", 1, "invalid character '\u212a'"),  # KELVIN SIGN, a K without case
        (
            "a > 'x'",
            5,
            "the string 'x' cannot be compared by size; expected a number or a property",
        ),
        ("a = NULL", 5, "a comparison with NULL is never true; expected IS NULL or IS NOT NULL"),
        ("a BETWEEN 5 AND 1", 11, "no value is between 5 and 1; expected the lower value first"),
        ("'x' IN ('x')", 1, "the string 'x' before IN is not a property; expected a property"),
        ("b AND 1", 7, "the number 1 is not a condition; expected a property or a condition"),
        ("NULL = a", 1, "a comparison with NULL is never true; expected IS NULL or IS NOT NULL"),
        ("a > TRUE", 5, "TRUE cannot be compared by size"),
        ("a > NULL", 5, "NULL cannot be compared by size"),
        ("(b = 1) > a", 2, "a condition cannot be compared by size"),
        ("a BETWEEN 1 AND 'x'", 17, "the string 'x' cannot be compared by size"),
        ("a NOT BETWEEN NULL AND 1", 15, "NULL cannot be compared by size"),
        ("TRUE = 1", 8, "the number 1 is neither TRUE nor FALSE"),
        ("TRUE = 'true'", 8, "the string 'true' is neither TRUE nor FALSE"),
        ("(b = 1) IN ('x')", 2, "a condition before IN is not a property; expected a property"),
        ("NOT 'x'", 5, "the string 'x' is not a condition"),
        ("-a OR b = 1", 2, "a minus sign without a number is not a condition"),
        ("a = 0.0", 5, "0.0 is zero as a double"),
        ("a = 1e-999", 5, "1e-999 is zero as a double"),
        ("a = 1e999", 5, "1e999 is too large as a double"),
        ("a = 9223372036854775808", 5, "9223372036854775808 is too large"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, at: int, problem: str):
    with pytest.raises(Rejected) as refused:
        parse(text)
    assert f"at position {at}: {problem}" in str(refused.value)
    assert refused.value.wire_code == Code.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    "text",
    [
        "(" * 8_000,
        "NOT " * 4_000 + "a",
        "- " * 8_000 + "a = 1",
        "a" + " = a" * 4_000,
        "a" + " IS NULL" * 2_000,
        " OR ".join(["a = 1"] * (FILTER_CONDITIONS_MAX + 1)),
        " AND ".join(["(a OR b)"] * FILTER_CONDITIONS_MAX),
        "a = '" + "x" * 16_000,
        "a = " + "9" * 16_000,
        "a = 1" + "/*" * 8_000,
        "a = .5e" + "5" * 16_000,
    ],
)
def test_hostile_texts_are_refused_in_few_words(text: str):
    with pytest.raises(Rejected) as refused:
        parse(text)
    assert len(str(refused.value)) < 300


def test_conditions_are_counted_whatever_holds_them():
    assert terms.conditions(parse("a = 1 OR (b = 1) = (b > 2)")) == 4


def test_what_is_large_and_harmless_is_taken():
    parse("(" * 2_000 + "a = 1" + ")" * 2_000)
    parse("NOT " * (FILTER_DEPTH_MAX - 2) + "a")
    parse(" OR ".join(["a = 1"] * FILTER_CONDITIONS_MAX))
    parse("a IN (" + ", ".join(["'x'"] * 3_000) + ")")


PIECES = st.sampled_from(
    [
        *("a", "b", "AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "BETWEEN", "(", ")", ","),
        *("=", "<>", "<", ">=", "+", "-", "1", "2.5", "'x'", "--", "/*", "*/", ";", "\n", "é"),
    ]
)


@pytest.mark.fuzz
@given(st.lists(PIECES, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str):
    try:
        parse(text)
    except Rejected as error:
        refused = str(error)
    else:
        return
    assert "at position" in refused


# -- how Java reads numbers ------------------------------------------------------------------------


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
