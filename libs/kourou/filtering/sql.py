"""Filters in SQL92 over message properties: compiled once, evaluated for every message.

State: none, except a cache of compiled filters, which is derived from their texts.

A compiled filter consists of closures over constants. Its function gets the values of the
properties that the expression uses, as they are stored, in a fixed order: the record kernel finds
them for many messages at once. Types are known when the filter is compiled, so for each message
only a number is parsed and compared.

Conditions are evaluated from left to right, and one that cannot be evaluated (`Unmatchable`) ends
the evaluation: with a = `q`, `a >= 5 OR b = 'x'` matches nothing, while `b = 'x' OR a >= 5` matches
messages with such a b. That is RocketMQ's rule; a group that moves to Kourou gets the same
messages.

A property is compared in the width of the number it is compared with: compared with `5`, the texts
`5.0`, ` 5` and `2147483648` are not numbers. If a text is not a number, the whole filter does not
match.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from kourou.errors import Code, KourouError, Rejected
from kourou.filtering.sql_terms import (
    INT32_TOP,
    INT64_TOP,
    Bare,
    Comparison,
    Constant,
    Either,
    Equality,
    Every,
    InList,
    Negative,
    Not,
    Number,
    PropertyTerm,
    Term,
    Text,
    Truth,
)
from kourou.model.limits import FILTERS_REMEMBERED_MAX, SUBSCRIPTION_EXPRESSION_LENGTH_MAX
from kourou.protocol.record.properties import Values, find_properties

# -- numbers: the text of a property as RocketMQ's comparisons read it ----------------------------


# A producer chooses the text, so each pattern takes linear time: no two repetitions of the same
# characters follow each other.
_PLAIN = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_WHOLE = re.compile(r"[+-]?\d+").fullmatch
_DECIMAL = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
).fullmatch
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
    re.ASCII,
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


# -- terms to functions that test a message's properties ------------------------------------------


Evaluate: TypeAlias = Callable[[Values], bool | None]
"""True, False, or None for unknown. Raises Unmatchable."""

Value: TypeAlias = Callable[[Values], Any]
Places: TypeAlias = dict[str, int]
"""The index of each name among the values; a new name gets the next one."""


class Compiled(NamedTuple):
    """A filter: the names of the properties that it uses, and the function for their values."""

    names: tuple[bytes, ...]
    evaluate: Evaluate

    def evaluate_stored(self, properties: bytes) -> bool | None:
        """The result of `evaluate` for a message with these stored properties."""
        return self.evaluate(find_properties(properties, self.names))


class Unmatchable(Exception):
    """This message's properties cannot be compared; as in RocketMQ, it does not match."""


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBERS: dict[int, Callable[[bytes], int | float]] = {32: int32, 64: int64, 0: double}


def compiled(term: Truth) -> Compiled:
    """The filter that evaluates the values of a message's properties."""
    places: Places = {}
    evaluate = _compiled(term, places)
    return Compiled(tuple(map(_encoded, places)), evaluate)


def _compiled(term: Truth, places: Places) -> Evaluate:
    match term:
        case Constant(value):
            return lambda _: value
        case Bare(operand):
            return _bare(_place(operand, places))
        case Comparison():
            return _comparison(term, places)
        case Equality(left, right):
            return _equality(left, right, places)
        case InList(operand, values):
            return _membership(_place(operand, places), frozenset(map(_encoded, values)))
        case Not(operand):
            return _not(_compiled(operand, places))
        case Every(parts):
            return _every([_compiled(part, places) for part in parts])
        case Either(parts):
            return _either([_compiled(part, places) for part in parts])


# -- properties -----------------------------------------------------------------------------------


def _place(operand: PropertyTerm, places: Places) -> int:
    return places.setdefault(operand.name, len(places))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _bare(place: int) -> Evaluate:
    """A text is not a boolean: false, whatever its value."""

    def evaluate(values: Values) -> bool | None:
        return None if values[place] is None else False

    return evaluate


def _membership(place: int, wanted: frozenset[bytes]) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        text = values[place]
        return None if text is None else text in wanted

    return evaluate


# -- logic ----------------------------------------------------------------------------------------


def _not(inner: Evaluate) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        found = inner(values)
        return None if found is None else not found

    return evaluate


def _every(parts: list[Evaluate]) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(values)
            if not found:
                if found is not None:
                    return False
                result = None
        return result

    return evaluate


def _either(parts: list[Evaluate]) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(values)
            if found:
                return True
            if found is None:
                result = None
        return result

    return evaluate


# -- order ------------------------------------------------------------------------------------


def _comparison(term: Comparison, places: Places) -> Evaluate:
    match term.left, term.right:
        case PropertyTerm() as named, Number(value, bits):
            return _sized(_place(named, places), term.sign, value, bits)
        case Number(value, bits), PropertyTerm() as named:
            return _sized(_place(named, places), _MIRRORED[term.sign], value, bits)
        case PropertyTerm() as named, PropertyTerm() as other:
            return _both_sized(_place(named, places), term.sign, _place(other, places))
        case Number() as left, Number() as right:
            result = _SIGNS[term.sign](_number_order(left, right), 0)
            return lambda _: result
        case left, right:
            # One of them has a minus before something that is not a number, which is unknown.
            return _unknown(_value(left, places), _value(right, places))


def _sized(place: int, sign: str, limit: float, bits: int) -> Evaluate:
    holds = _SIGNS[sign]
    number = _NUMBERS[bits]

    def evaluate(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return holds(number(text), limit)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    def evaluate_double(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return holds(double_order(double(text), limit), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return evaluate if bits else evaluate_double


def _both_sized(place: int, sign: str, other: int) -> Evaluate:
    holds = _SIGNS[sign]

    def evaluate(values: Values) -> bool | None:
        left, right = values[place], values[other]
        if left is None or right is None:
            return None
        try:
            return holds(double_order(double(left), double(right)), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return evaluate


def _unknown(left: Value, right: Value) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        if left(values) is not None:
            right(values)
        return None

    return evaluate


def _number_order(left: Number, right: Number) -> int:
    if left.bits and right.bits:
        return (left.value > right.value) - (left.value < right.value)
    return double_order(float(left.value), float(right.value))


# -- equality ---------------------------------------------------------------------------------


def _equality(left: Term, right: Term, places: Places) -> Evaluate:
    match left, right:
        case PropertyTerm() as named, Text(value):
            return _text_equality(_place(named, places), _encoded(value))
        case PropertyTerm() as named, Number() as number:
            return _number_equality(_place(named, places), number)
        case PropertyTerm() as named, Constant(None):
            place = _place(named, places)
            return lambda values: values[place] is None
        case _:
            same = _same(left, right)
            return _general_equality(_value(left, places), _value(right, places), same)


def _text_equality(place: int, wanted: bytes) -> Evaluate:
    def evaluate(values: Values) -> bool | None:
        text = values[place]
        return None if text is None else text == wanted

    return evaluate


def _number_equality(place: int, wanted: Number) -> Evaluate:
    number, value = _NUMBERS[wanted.bits], wanted.value

    def evaluate(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return number(text) == value
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return evaluate


def _general_equality(left: Value, right: Value, same: Callable[[Any, Any], bool]) -> Evaluate:
    """Both sides are evaluated. A missing left side is unknown, a missing right side different."""

    def evaluate(values: Values) -> bool | None:
        one, other = left(values), right(values)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        try:
            return same(one, other)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return evaluate


def _value(term: Term, places: Places) -> Value:
    """The value of one side: bytes, a number, a boolean, or None."""
    match term:
        case PropertyTerm() as named:
            return operator.itemgetter(_place(named, places))
        case Text(text):
            raw = _encoded(text)
            return lambda _: raw
        case Number(value):
            return lambda _: value
        case Negative(operand):
            inner = _value(operand, places)
            return lambda values: _nothing(inner(values))
        case _:
            return _compiled(term, places)


def _nothing(_: object) -> None:
    """A minus before something that is not a number: evaluated, and unknown."""


def _same(left: Term, right: Term) -> Callable[[Any, Any], bool]:
    """How two existing values are compared; the terms determine the types."""
    texts = (PropertyTerm, Text)
    match left, right:
        case (PropertyTerm() | Text(), PropertyTerm() | Text()):
            return operator.eq
        case (PropertyTerm() | Text(), Number(_, bits)):
            read = _NUMBERS[bits]
            return lambda text, value: read(text) == value
        case (Number(_, bits), PropertyTerm() | Text()):
            read = _NUMBERS[bits]
            return lambda value, text: read(text) == value
        case Number() as one, Number() as other:
            equal = _number_order(one, other) == 0
            return lambda _left, _right: equal
        case _ if isinstance(left, Number) or isinstance(right, Number):
            return lambda _left, _right: False  # a boolean is not a number
        case _ if isinstance(left, texts):
            return lambda text, truth: _is_true(text) == truth
        case _ if isinstance(right, texts):
            return _refuse
        case _:
            return operator.eq


def _is_true(text: bytes) -> bool:
    """Java's `Boolean.valueOf`."""
    return text.decode("utf-8", "replace").lower() == "true"


def _refuse(truth: object, text: bytes) -> bool:
    """RocketMQ cannot convert the text in `TRUE = a` to a boolean, but in `a = TRUE` it can."""
    raise Unmatchable(f"{truth} is compared with the text {text.decode('utf-8', 'replace')[:40]!r}")


# -- filters --------------------------------------------------------------------------------------


class SqlFilter:
    """One compiled expression, shared by all users of the same text."""

    __slots__ = ("_compiled", "expression")

    def __init__(self, expression: str, compiled: Compiled) -> None:
        self.expression = expression
        self._compiled = compiled

    def matches(self, properties: bytes) -> bool:
        """True if a message with these stored properties matches; a failed comparison does not."""
        try:
            return self._compiled.evaluate_stored(properties) is True
        except Unmatchable:
            return False

    def predicate(self) -> Predicate:
        """A new predicate for the messages of one read."""
        return Predicate(self._compiled)


class Predicate:
    """Tests the messages of one read; `failed` counts those that could not be compared.

    Call it with a message's values of the properties in `names`. The caller counts, because it may
    call once for many messages with the same values; `reason` is that of the last failure.
    """

    __slots__ = ("_evaluate", "failed", "names", "reason")

    def __init__(self, compiled: Compiled) -> None:
        self.names = compiled.names
        self._evaluate = compiled.evaluate
        self.failed = 0
        self.reason = ""

    def __call__(self, values: Values, /) -> bool | None:
        """True if the message matches; None if it cannot be compared."""
        try:
            return self._evaluate(values) is True
        except Unmatchable as error:
            self.reason = str(error)
            return None


def sql_filter(expression: str) -> SqlFilter:
    """The filter for an expression. Raises Rejected (23) that names position and expectation."""
    check_length(expression)
    found = _remembered(expression)
    if isinstance(found, SqlFilter):
        return found
    raise Rejected(found.message, hint=found.hint, code=Code.SUBSCRIPTION_PARSE_FAILED)


def check_meant(expression: str) -> None:
    """Refuse expressions that brokers accept but that are mistakes, such as `NOT a = 1`.

    For tools that help to write filters. Raises Rejected (23), as for what brokers refuse.
    """
    sql_filter(expression)
    from kourou.filtering.sql_grammar import check  # see `_remembered`

    check(expression)


def check_length(expression: str) -> None:
    """Raise Rejected (23) for an expression that is too long."""
    if len(expression) > SUBSCRIPTION_EXPRESSION_LENGTH_MAX:
        raise Rejected(
            f"the filter is {len(expression)} characters long; "
            f"at most {SUBSCRIPTION_EXPRESSION_LENGTH_MAX} are allowed",
            code=Code.SUBSCRIPTION_PARSE_FAILED,
        )


@lru_cache(maxsize=FILTERS_REMEMBERED_MAX)
def _remembered(expression: str) -> SqlFilter | KourouError:
    """A filter or its error, cached because heartbeats and pulls repeat the same texts."""
    from kourou.filtering.sql_grammar import parse  # the library takes 60 ms to import

    try:
        return SqlFilter(expression, compiled(parse(expression)))
    except KourouError as error:
        return error.with_traceback(None)
