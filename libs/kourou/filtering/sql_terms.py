"""The terms of a SQL92 filter, and which of them may be compared.

State: none. Terms are values.

A term is either a condition (true, false or unknown) or a plain value (a property, a literal). Only
a property may be used as a condition: it is then false, or unknown if it is missing.

Invariants:  no term is nested deeper than limits.FILTER_DEPTH_MAX
             a number has the width that RocketMQ gives it: 32 bits if it fits, else 64, or double
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from kourou.model.limits import FILTER_CONDITIONS_MAX, FILTER_DEPTH_MAX

INT32_TOP = 2**31 - 1
INT64_TOP = 2**63 - 1


class Misfit(Exception):
    """Terms that cannot be combined; `at` is the position in the text, counted from 0."""

    def __init__(self, at: int, problem: str, expected: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """`at` is the position in the text, `depth` the levels of nesting; equality ignores both."""

    at: int = field(default=0, compare=False)
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class PropertyTerm(_Placed):
    """A message's property; its value is text, or it is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class Text(_Placed):
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Number(_Placed):
    """A number. `bits`: 32 or 64 for integers, 0 for a double; `signed`: a minus precedes it.

    RocketMQ checks constants when it compiles, and a number with a minus is not a constant to it.
    """

    value: int | float
    bits: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Constant(_Placed):
    """TRUE, FALSE, or NULL (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negative(_Placed):
    """A minus before something that is not a number: evaluated, and unknown."""

    operand: Term


@dataclass(frozen=True, slots=True)
class Bare(_Placed):
    """A property used as a condition."""

    operand: PropertyTerm


@dataclass(frozen=True, slots=True)
class Comparison(_Placed):
    """A comparison by order. `sign` is one of < <= > >=."""

    sign: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Equality(_Placed):
    """Equal, or both missing. `IS NULL` is equality with NULL."""

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class InList(_Placed):
    """True if a property's text is one of these."""

    operand: PropertyTerm
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Not(_Placed):
    """Negation; unknown stays unknown."""

    operand: Truth


@dataclass(frozen=True, slots=True)
class Every(_Placed):
    """AND of two or more parts, from left to right."""

    parts: tuple[Truth, ...]


@dataclass(frozen=True, slots=True)
class Either(_Placed):
    """OR of two or more parts, from left to right."""

    parts: tuple[Truth, ...]


Truth: TypeAlias = Constant | Bare | Comparison | Equality | InList | Not | Every | Either
Term: TypeAlias = Truth | PropertyTerm | Text | Number | Negative

_TRUTHS = (Constant, Bare, Comparison, Equality, InList, Not, Every, Either)
_A_TRUTH = "a property or a condition"
_SIZED = "a number or a property"


def _deeper(*parts: Term) -> int:
    depth = max(part.depth for part in parts) + 1
    if depth > FILTER_DEPTH_MAX:
        raise Misfit(
            parts[0].at,
            f"nested deeper than {FILTER_DEPTH_MAX} levels",
            "less nesting",
        )
    return depth


# -- literals -------------------------------------------------------------------------------------


def whole(text: str, at: int) -> Number:
    """A literal like `42` or `42L`. Its width depends on its size, not on the L."""
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) <= len(str(INT64_TOP)) else INT64_TOP + 1
    if value > INT64_TOP:
        # -9223372036854775808 as well: the sign is applied after the number is parsed.
        raise Misfit(at, f"{shown(text)} is too large", f"at most {INT64_TOP}")
    return Number(value, 32 if value <= INT32_TOP else 64, at=at)


def double(text: str, at: int) -> Number:
    """A literal like `4.2`, `.5` or `1e3`."""
    value = float(text)
    if value == 0 or value == float("inf"):
        what = "zero" if value == 0 else "too large"
        raise Misfit(at, f"{shown(text)} is {what} as a double", "an integer or another double")
    return Number(value, 0, at=at)


# -- operators ------------------------------------------------------------------------------------


def truth(term: Term) -> Truth:
    """The term as a condition; a property is evaluated and never true."""
    if isinstance(term, _TRUTHS):
        return term
    if isinstance(term, PropertyTerm):
        return Bare(term, at=term.at, depth=_deeper(term))
    raise Misfit(term.at, f"{_named(term)} is not a condition", _A_TRUTH)


def negative(term: Term) -> Term:
    """Minus `term`."""
    if isinstance(term, Number):
        return Number(-term.value, term.bits, True, at=term.at)
    return Negative(term, at=term.at, depth=_deeper(term))


def denied(term: Term) -> Not:
    """NOT `term`."""
    inner = truth(term)
    return Not(inner, at=term.at, depth=_deeper(inner))


def every(parts: tuple[Term, ...]) -> Every:
    """Parts joined by AND."""
    truths = tuple(truth(part) for part in parts)
    return Every(truths, at=parts[0].at, depth=_deeper(*truths))


def either(parts: tuple[Term, ...]) -> Either:
    """Parts joined by OR."""
    truths = tuple(truth(part) for part in parts)
    return Either(truths, at=parts[0].at, depth=_deeper(*truths))


def compared(sign: str, left: Term, right: Term) -> Comparison:
    """`left < right` and the like: numbers, and properties with numeric values."""
    for side in (left, right):
        if isinstance(side, (Text, *_TRUTHS)):
            raise Misfit(side.at, f"{_named(side)} cannot be compared by size", _SIZED)
    return Comparison(sign, left, right, at=left.at, depth=_deeper(left, right))


def equal(left: Term, right: Term) -> Equality:
    """`left = right`."""
    for side in (left, right):
        if isinstance(side, Constant) and side.value is None:
            raise Misfit(side.at, "a comparison with NULL is never true", "IS NULL or IS NOT NULL")
    boolean = isinstance(left, Constant)
    if boolean and (isinstance(right, Text) or (isinstance(right, Number) and not right.signed)):
        raise Misfit(right.at, f"{_named(right)} is neither TRUE nor FALSE", _A_TRUTH)
    return Equality(left, right, at=left.at, depth=_deeper(left, right))


def is_null(term: Term) -> Equality:
    """`term IS NULL`."""
    return Equality(term, Constant(None, at=term.at), at=term.at, depth=_deeper(term))


def between(term: Term, low: Term, high: Term) -> Every:
    """`term BETWEEN low AND high`."""
    if (
        isinstance(low, Number)
        and isinstance(high, Number)
        and not (low.signed or high.signed)
        and low.value > high.value
    ):
        raise Misfit(
            low.at, f"no value is between {low.value} and {high.value}", "the lower value first"
        )
    return every((compared(">=", term, low), compared("<=", term, high)))


def outside(term: Term, low: Term, high: Term) -> Either:
    """`term NOT BETWEEN low AND high`."""
    return either((compared("<", term, low), compared(">", term, high)))


def member(term: Term, values: tuple[str, ...]) -> InList:
    """`term IN (values)`."""
    if not isinstance(term, PropertyTerm):
        raise Misfit(term.at, f"{_named(term)} before IN is not a property", "a property")
    return InList(term, frozenset(values), at=term.at, depth=_deeper(term))


# -- expressions ------------------------------------------------------------------------------


def conditions(term: Term) -> int:
    """The maximum number of conditions evaluated; Misfit beyond FILTER_CONDITIONS_MAX."""
    count = _count(term)
    if count > FILTER_CONDITIONS_MAX:
        raise Misfit(
            term.at,
            f"{count} conditions",
            f"at most {FILTER_CONDITIONS_MAX} conditions; IN takes any number of values",
        )
    return count


def _count(term: Term) -> int:
    match term:
        case Every(parts) | Either(parts):
            return sum(map(_count, parts))
        case Not(operand) | Negative(operand):
            return _count(operand)
        case Comparison(_, left, right) | Equality(left, right):
            return 1 + _nested(left) + _nested(right)
        case _:
            return 1


def _nested(term: Term) -> int:
    return 0 if isinstance(term, (PropertyTerm, Text, Number, Constant)) else _count(term)


def check_meant(term: Term) -> None:
    """Raise Misfit for what RocketMQ accepts by mistake: it is never true for any message."""
    match term:
        case Bare(operand):
            raise Misfit(
                term.at,
                f"{_named(operand)} alone is not a condition; NOT binds tighter than =",
                "a comparison, such as a = TRUE or NOT (a = 1)",
            )
        case Negative():
            raise Misfit(term.at, f"{_named(term)} is never true", "a number")
        case Every(parts) | Either(parts):
            for part in parts:
                check_meant(part)
        case Not(operand):
            check_meant(operand)
        case Comparison(_, left, right):
            check_meant(left)
            check_meant(right)
        case Equality(left, right):
            check_meant(left)
            check_meant(right)
            for side in (left, right):
                if isinstance(side, Text) and not side.value:
                    raise Misfit(side.at, "a property is never empty", "IS NULL or IS NOT NULL")
            truths = [isinstance(side, _TRUTHS) for side in (left, right)]
            if truths == [True, False] or (truths == [False, True] and not _is_text(left)):
                raise Misfit(
                    right.at,
                    f"{_named(left)} never equals {_named(right)}",
                    "two values of the same type",
                )
        case _:
            return


def _is_text(term: Term) -> bool:
    return isinstance(term, (PropertyTerm, Text))


def shown(text: str) -> str:
    """A part of an expression, shortened for errors."""
    return text if len(text) <= 40 else f"{text[:37]}..."


def _named(term: Term) -> str:
    match term:
        case PropertyTerm(name):
            return f"the property {shown(name)}"
        case Text(value):
            return f"the string '{shown(value)}'"
        case Number(value):
            return f"the number {value}"
        case Constant(value):
            return "NULL" if value is None else str(value).upper()
        case Negative():
            return "a minus sign without a number"
        case _:
            return "a condition"
