"""What may be compared with what."""

from __future__ import annotations

import pytest

from kourou.filtering import sql_terms as terms
from kourou.filtering.sql_terms import (
    INT32_TOP,
    INT64_TOP,
    Constant,
    Misfit,
    Negative,
    Number,
    PropertyTerm,
    Text,
)
from kourou.model.limits import FILTER_CONDITIONS_MAX, FILTER_DEPTH_MAX

A, B = PropertyTerm("a"), PropertyTerm("b", at=7)
ONE = Number(1, 32)
TRUE, NULL = Constant(True), Constant(None)
SIZED = terms.compared(">", A, ONE)


def test_a_number_is_as_wide_as_it_must_be():
    assert terms.whole("5", 0) == Number(5, 32)
    assert terms.whole("5L", 0) == Number(5, 32)
    assert terms.whole(str(INT32_TOP), 0) == Number(INT32_TOP, 32)
    assert terms.whole(str(INT32_TOP + 1), 0) == Number(INT32_TOP + 1, 64)
    assert terms.whole(str(INT64_TOP), 0) == Number(INT64_TOP, 64)
    assert terms.double("5.", 0) == Number(5.0, 0)
    assert terms.negative(Number(2**31, 64)) == Number(-(2**31), 64, signed=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: terms.whole(str(INT64_TOP + 1), 3),
        lambda: terms.whole("9" * 10_000, 3),
        lambda: terms.double("0.0", 3),
        lambda: terms.double("1e999", 3),
        lambda: terms.double("1e-999", 3),
    ],
)
def test_numbers_have_limits(make):
    with pytest.raises(Misfit) as misfit:
        make()
    assert misfit.value.at == 3
    assert len(str(misfit.value)) < 100


@pytest.mark.parametrize("term", [ONE, Text("x"), terms.negative(A)])
def test_what_is_no_truth_is_no_condition(term):
    for make in (
        terms.truth,
        terms.denied,
        lambda one: terms.every((SIZED, one)),
        lambda one: terms.either((one, SIZED)),
    ):
        with pytest.raises(Misfit, match="is not a condition"):
            make(term)


@pytest.mark.parametrize("other", [Text("5"), TRUE, NULL, SIZED, terms.truth(A)])
def test_only_numbers_and_properties_have_a_size(other):
    for left, right in ((A, other), (other, A)):
        with pytest.raises(Misfit, match="cannot be compared by size"):
            terms.compared(">", left, right)
    with pytest.raises(Misfit):
        terms.between(A, other, ONE)
    with pytest.raises(Misfit):
        terms.outside(A, ONE, other)


def test_nothing_equals_null():
    for left, right in ((A, NULL), (NULL, A)):
        with pytest.raises(Misfit, match="a comparison with NULL is never true"):
            terms.equal(left, right)
    assert terms.is_null(A).right == NULL


def test_a_boolean_on_the_left_is_compared_with_nothing_else():
    for right in (ONE, Text("true")):
        with pytest.raises(Misfit, match="neither TRUE nor FALSE"):
            terms.equal(TRUE, right)
        terms.equal(right, TRUE)
    terms.equal(TRUE, terms.negative(ONE))


def test_a_range_begins_at_its_lower_end():
    with pytest.raises(Misfit, match="no value is between 5 and 1"):
        terms.between(A, Number(5, 32), ONE)
    terms.between(A, ONE, ONE)
    terms.between(A, B, ONE)
    terms.outside(A, Number(5, 32), ONE)
    terms.between(A, ONE, terms.negative(ONE))  # RocketMQ looks at plain numbers only


def test_in_asks_for_a_property():
    assert terms.member(A, ("x", "x")).values == {"x"}
    for left in (Text("x"), SIZED, Negative(A)):
        with pytest.raises(Misfit, match="before IN"):
            terms.member(left, ("x",))


def test_nesting_has_a_limit():
    term = A
    for _ in range(FILTER_DEPTH_MAX - 1):
        term = terms.denied(term) if term is not A else terms.truth(A)
    with pytest.raises(Misfit, match="nested deeper"):
        terms.denied(term)


def test_conditions_are_counted_whatever_holds_them():
    nested = terms.equal(terms.equal(A, ONE), terms.denied(terms.is_null(Negative(SIZED))))
    assert terms.conditions(terms.either((SIZED, terms.every((SIZED, nested))))) == 6
    many = terms.every((SIZED,) * FILTER_CONDITIONS_MAX)
    assert terms.conditions(many) == FILTER_CONDITIONS_MAX
    with pytest.raises(Misfit, match="conditions"):
        terms.conditions(terms.either((many, SIZED)))


def test_places_are_no_part_of_what_a_term_is():
    assert PropertyTerm("b", at=7) == PropertyTerm("b")
    assert terms.compared("<", B, ONE).at == 7
