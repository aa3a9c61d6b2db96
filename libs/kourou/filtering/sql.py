"""Filters in SQL92 over message properties: compiled once, evaluated for every message.

State: none, except a cache of compiled filters, which is derived from their texts.
"""

from __future__ import annotations

from functools import lru_cache

from kourou.errors import Code, KourouError, Rejected
from kourou.filtering.sql_compile import Compiled, Unmatchable, compiled
from kourou.model.limits import FILTERS_REMEMBERED_MAX, SUBSCRIPTION_EXPRESSION_LENGTH_MAX
from kourou.protocol.record.properties import Values


class SqlFilter:
    """One compiled expression, shared by all users of the same text."""

    __slots__ = ("_compiled", "expression")

    def __init__(self, expression: str, compiled: Compiled) -> None:
        self.expression = expression
        self._compiled = compiled

    def matches(self, properties: bytes) -> bool:
        """True if a message with these stored properties matches; a failed comparison does not."""
        try:
            return self._compiled.judge_stored(properties) is True
        except Unmatchable:
            return False

    def predicate(self) -> Predicate:
        """A new predicate for the messages of one read."""
        return Predicate(self._compiled)


class Predicate:
    """Tests the messages of one read and counts those that could not be compared.

    Call it with a message's values of the properties in `names`.
    """

    __slots__ = ("_judge", "failed", "names", "reason")

    def __init__(self, compiled: Compiled) -> None:
        self.names = compiled.names
        self._judge = compiled.judge
        self.failed = 0
        self.reason = ""

    def __call__(self, values: Values, /) -> bool:
        """True if the message matches."""
        try:
            return self._judge(values) is True
        except Unmatchable as error:
            self.failed += 1
            self.reason = str(error)
            return False


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
