"""Compiles the terms of a filter to functions that test a message's properties.

State: none. The result consists of closures over constants.

A function gets the values of the properties that its expression uses, as they are stored, in a
fixed order: the record kernel finds them for many messages at once. Types are known when the filter
is compiled, so for each message only a number is parsed and compared.

Conditions are evaluated from left to right, and one that cannot be evaluated (`Unmatchable`) ends
the evaluation: with a = `q`, `a >= 5 OR b = 'x'` matches nothing, while `b = 'x' OR a >= 5` matches
messages with such a b. That is RocketMQ's rule; a group that moves to Kourou gets the same
messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kourou.filtering.sql_terms import (
    Bare,
    Comparison,
    Constant,
    Either,
    Equality,
    Every,
    Membership,
    Negative,
    Not,
    Number,
    Property,
    Term,
    Text,
    Truth,
)
from kourou.filtering.sql_values import NoNumber, double, double_order, int32, int64
from kourou.protocol.record.properties import Values, find_properties

Judge: TypeAlias = Callable[[Values], bool | None]
"""True, False, or None for unknown. Raises Unmatchable."""

Value: TypeAlias = Callable[[Values], Any]
Places: TypeAlias = dict[str, int]
"""The index of each name among the values; a new name gets the next one."""


class Compiled(NamedTuple):
    """A filter: the names of the properties that it uses, and the function for their values."""

    names: tuple[bytes, ...]
    judge: Judge

    def judge_stored(self, properties: bytes) -> bool | None:
        """The result of `judge` for a message with these stored properties."""
        return self.judge(find_properties(properties, self.names))


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
    judge = _compiled(term, places)
    return Compiled(tuple(map(_encoded, places)), judge)


def _compiled(term: Truth, places: Places) -> Judge:
    match term:
        case Constant(value):
            return lambda _: value
        case Bare(operand):
            return _bare(_place(operand, places))
        case Comparison():
            return _comparison(term, places)
        case Equality(left, right):
            return _equality(left, right, places)
        case Membership(operand, values):
            return _membership(_place(operand, places), frozenset(map(_encoded, values)))
        case Not(operand):
            return _not(_compiled(operand, places))
        case Every(parts):
            return _every([_compiled(part, places) for part in parts])
        case Either(parts):
            return _either([_compiled(part, places) for part in parts])


# -- properties -----------------------------------------------------------------------------------


def _place(operand: Property, places: Places) -> int:
    return places.setdefault(operand.name, len(places))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _bare(place: int) -> Judge:
    """A text is not a boolean: false, whatever its value."""

    def judge(values: Values) -> bool | None:
        return None if values[place] is None else False

    return judge


def _membership(place: int, wanted: frozenset[bytes]) -> Judge:
    def judge(values: Values) -> bool | None:
        text = values[place]
        return None if text is None else text in wanted

    return judge


# -- logic ----------------------------------------------------------------------------------------


def _not(inner: Judge) -> Judge:
    def judge(values: Values) -> bool | None:
        found = inner(values)
        return None if found is None else not found

    return judge


def _every(parts: list[Judge]) -> Judge:
    def judge(values: Values) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(values)
            if not found:
                if found is not None:
                    return False
                result = None
        return result

    return judge


def _either(parts: list[Judge]) -> Judge:
    def judge(values: Values) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(values)
            if found:
                return True
            if found is None:
                result = None
        return result

    return judge


# -- order ------------------------------------------------------------------------------------


def _comparison(term: Comparison, places: Places) -> Judge:
    match term.left, term.right:
        case Property() as named, Number(value, bits):
            return _sized(_place(named, places), term.sign, value, bits)
        case Number(value, bits), Property() as named:
            return _sized(_place(named, places), _MIRRORED[term.sign], value, bits)
        case Property() as named, Property() as other:
            return _both_sized(_place(named, places), term.sign, _place(other, places))
        case Number() as left, Number() as right:
            result = _SIGNS[term.sign](_number_order(left, right), 0)
            return lambda _: result
        case left, right:
            # One of them has a minus before something that is not a number, which is unknown.
            return _unknown(_value(left, places), _value(right, places))


def _sized(place: int, sign: str, limit: float, bits: int) -> Judge:
    holds = _SIGNS[sign]
    number = _NUMBERS[bits]

    def judge(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return holds(number(text), limit)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    def judge_double(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return holds(double_order(double(text), limit), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge if bits else judge_double


def _both_sized(place: int, sign: str, other: int) -> Judge:
    holds = _SIGNS[sign]

    def judge(values: Values) -> bool | None:
        left, right = values[place], values[other]
        if left is None or right is None:
            return None
        try:
            return holds(double_order(double(left), double(right)), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _unknown(left: Value, right: Value) -> Judge:
    def judge(values: Values) -> bool | None:
        if left(values) is not None:
            right(values)
        return None

    return judge


def _number_order(left: Number, right: Number) -> int:
    if left.bits and right.bits:
        return (left.value > right.value) - (left.value < right.value)
    return double_order(float(left.value), float(right.value))


# -- equality ---------------------------------------------------------------------------------


def _equality(left: Term, right: Term, places: Places) -> Judge:
    match left, right:
        case Property() as named, Text(value):
            return _text_equality(_place(named, places), _encoded(value))
        case Property() as named, Number() as number:
            return _number_equality(_place(named, places), number)
        case Property() as named, Constant(None):
            place = _place(named, places)
            return lambda values: values[place] is None
        case _:
            same = _same(left, right)
            return _general_equality(_value(left, places), _value(right, places), same)


def _text_equality(place: int, wanted: bytes) -> Judge:
    def judge(values: Values) -> bool | None:
        text = values[place]
        return None if text is None else text == wanted

    return judge


def _number_equality(place: int, wanted: Number) -> Judge:
    number, value = _NUMBERS[wanted.bits], wanted.value

    def judge(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        try:
            return number(text) == value
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _general_equality(left: Value, right: Value, same: Callable[[Any, Any], bool]) -> Judge:
    """Both sides are evaluated. A missing left side is unknown, a missing right side different."""

    def judge(values: Values) -> bool | None:
        one, other = left(values), right(values)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        try:
            return same(one, other)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _value(term: Term, places: Places) -> Value:
    """The value of one side: bytes, a number, a boolean, or None."""
    match term:
        case Property() as named:
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
    texts = (Property, Text)
    match left, right:
        case (Property() | Text(), Property() | Text()):
            return operator.eq
        case (Property() | Text(), Number(_, bits)):
            read = _NUMBERS[bits]
            return lambda text, value: read(text) == value
        case (Number(_, bits), Property() | Text()):
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
