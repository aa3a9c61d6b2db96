"""From the terms of a filter to functions that look at a message's properties.

Lives here: three-valued logic and comparison, as RocketMQ 4.9 evaluates them (fact sheet §8.3).
May not live here: reading text (sql_grammar), how a text becomes a number (sql_values).

State: none. What is made here are closures over constants.

A function takes the properties as they are stored, with 0x02 before the first name, and looks up
only what its expression names: a search through the bytes is cheaper than taking them apart. Types
are known when the filter is compiled, so that what is left to do per message is to search, to read
one number and to compare.

Parts are evaluated from left to right, and a part that cannot be (`Unmatchable`) ends it all: with
a = `q`, `a >= 5 OR b = 'x'` matches nothing, `b = 'x' OR a >= 5` what has such a b. That is
RocketMQ's rule; a group that moves to Kourou gets the same messages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

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

Judge: TypeAlias = Callable[[bytes], bool | None]
"""True, False, or None for unknown. Raises Unmatchable."""

Lookup: TypeAlias = Callable[[bytes], bytes | None]
Value: TypeAlias = Callable[[bytes], Any]


class Unmatchable(Exception):
    """This message's properties cannot be compared so; RocketMQ counts it as not matched."""


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBERS: dict[int, Callable[[bytes], int | float]] = {32: int32, 64: int64, 0: double}


def compiled(term: Truth) -> Judge:
    """The function that judges a message by its properties (0x02 comes before the first)."""
    match term:
        case Constant(value):
            return lambda _: value
        case Bare(Property(name)):
            return _bare(_lookup(name))
        case Comparison():
            return _comparison(term)
        case Equality(left, right):
            return _equality(left, right)
        case Membership(Property(name), values):
            return _membership(_lookup(name), frozenset(map(_encoded, values)))
        case Not(operand):
            return _not(compiled(operand))
        case Every(parts):
            return _every([compiled(part) for part in parts])
        case Either(parts):
            return _either([compiled(part) for part in parts])


# -- properties -----------------------------------------------------------------------------------


def _lookup(name: str) -> Lookup:
    """The text of the last property of this name that has one; None where it is missing."""
    marker = f"\x02{name}\x01".encode()
    skip = len(marker)

    def look(properties: bytes) -> bytes | None:
        at = properties.rfind(marker)
        while at >= 0:
            start = at + skip
            end = properties.find(b"\x02", start)
            text = properties[start:] if end < 0 else properties[start:end]
            if text:
                return text
            at = properties.rfind(marker, 0, at + 1)
        return None

    return look


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _bare(look: Lookup) -> Judge:
    """A text is no truth: false, whatever it says."""

    def judge(properties: bytes) -> bool | None:
        return None if look(properties) is None else False

    return judge


def _membership(look: Lookup, values: frozenset[bytes]) -> Judge:
    def judge(properties: bytes) -> bool | None:
        text = look(properties)
        return None if text is None else text in values

    return judge


# -- logic ----------------------------------------------------------------------------------------


def _not(inner: Judge) -> Judge:
    def judge(properties: bytes) -> bool | None:
        found = inner(properties)
        return None if found is None else not found

    return judge


def _every(parts: list[Judge]) -> Judge:
    def judge(properties: bytes) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(properties)
            if not found:
                if found is not None:
                    return False
                result = None
        return result

    return judge


def _either(parts: list[Judge]) -> Judge:
    def judge(properties: bytes) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(properties)
            if found:
                return True
            if found is None:
                result = None
        return result

    return judge


# -- by size --------------------------------------------------------------------------------------


def _comparison(term: Comparison) -> Judge:
    match term.left, term.right:
        case Property(name), Number(value, bits):
            return _sized(_lookup(name), term.sign, value, bits)
        case Number(value, bits), Property(name):
            return _sized(_lookup(name), _MIRRORED[term.sign], value, bits)
        case Property(name), Property(other):
            return _both_sized(_lookup(name), term.sign, _lookup(other))
        case Number() as left, Number() as right:
            result = _SIGNS[term.sign](_number_order(left, right), 0)
            return lambda _: result
        case left, right:
            # One of them has a minus before what is no number, which is unknown.
            return _unknown(_value(left), _value(right))


def _sized(look: Lookup, sign: str, limit: float, bits: int) -> Judge:
    holds = _SIGNS[sign]
    number = _NUMBERS[bits]

    def judge(properties: bytes) -> bool | None:
        text = look(properties)
        if text is None:
            return None
        try:
            return holds(number(text), limit)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    def judge_double(properties: bytes) -> bool | None:
        text = look(properties)
        if text is None:
            return None
        try:
            return holds(double_order(double(text), limit), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge if bits else judge_double


def _both_sized(look: Lookup, sign: str, look_other: Lookup) -> Judge:
    holds = _SIGNS[sign]

    def judge(properties: bytes) -> bool | None:
        left = look(properties)
        if left is None:
            return None
        right = look_other(properties)
        if right is None:
            return None
        try:
            return holds(double_order(double(left), double(right)), 0)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _unknown(left: Value, right: Value) -> Judge:
    def judge(properties: bytes) -> bool | None:
        if left(properties) is not None:
            right(properties)
        return None

    return judge


def _number_order(left: Number, right: Number) -> int:
    if left.bits and right.bits:
        return (left.value > right.value) - (left.value < right.value)
    return double_order(float(left.value), float(right.value))


# -- by equality ----------------------------------------------------------------------------------


def _equality(left: Term, right: Term) -> Judge:
    match left, right:
        case Property(name), Text(value):
            return _text_equality(_lookup(name), _encoded(value))
        case Property(name), Number() as number:
            return _number_equality(_lookup(name), number)
        case Property(name), Constant(None):
            look = _lookup(name)
            return lambda properties: look(properties) is None
        case _:
            return _general_equality(_value(left), _value(right), _same(left, right))


def _text_equality(look: Lookup, wanted: bytes) -> Judge:
    def judge(properties: bytes) -> bool | None:
        text = look(properties)
        return None if text is None else text == wanted

    return judge


def _number_equality(look: Lookup, wanted: Number) -> Judge:
    number, value = _NUMBERS[wanted.bits], wanted.value

    def judge(properties: bytes) -> bool | None:
        text = look(properties)
        if text is None:
            return None
        try:
            return number(text) == value
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _general_equality(left: Value, right: Value, same: Callable[[Any, Any], bool]) -> Judge:
    """Both sides are looked at. Missing on the left is unknown, on the right different."""

    def judge(properties: bytes) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        try:
            return same(one, other)
        except NoNumber as error:
            raise Unmatchable(str(error)) from None

    return judge


def _value(term: Term) -> Value:
    """The value of one side: bytes, a number, a truth, or None."""
    match term:
        case Property(name):
            return _lookup(name)
        case Text(text):
            raw = _encoded(text)
            return lambda _: raw
        case Number(value):
            return lambda _: value
        case Negative(operand):
            inner = _value(operand)
            return lambda properties: _nothing(inner(properties))
        case _:
            return compiled(term)


def _nothing(_: object) -> None:
    """A minus before what is no number: it was looked at, and is unknown."""


def _same(left: Term, right: Term) -> Callable[[Any, Any], bool]:
    """How two values that are there are compared; the kinds follow from the terms."""
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
            return lambda _left, _right: False  # a truth is no number
        case _ if isinstance(left, texts):
            return lambda text, truth: _is_true(text) == truth
        case _ if isinstance(right, texts):
            return _refuse
        case _:
            return operator.eq


def _is_true(text: bytes) -> bool:
    """Boolean.valueOf."""
    return text.decode("utf-8", "replace").lower() == "true"


def _refuse(truth: object, text: bytes) -> bool:
    """RocketMQ cannot turn the text of `TRUE = a` into a truth, though that of `a = TRUE`."""
    raise Unmatchable(f"{truth} is compared with the text {text.decode('utf-8', 'replace')[:40]!r}")
