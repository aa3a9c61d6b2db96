"""Expressions become terms, or an error names the place and what was expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Code, Rejected
from kourou.filtering import sql_terms as terms
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
