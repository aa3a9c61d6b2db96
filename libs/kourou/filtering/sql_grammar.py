"""Parses the text of a SQL92 filter into terms.

State: none. Importing this module builds the parser's tables, which takes 60 ms including the
library's import; so it is imported with the first filter.

The grammar is RocketMQ 4.9's with one difference: the text must end where the expression ends.
RocketMQ stops reading there, so to RocketMQ `a = 1 garbage` is `a = 1`, `a LIKE 'x%'` is `a`, and
`a = 007` is `a = 0`. Also, `--` always begins a comment; RocketMQ treats it as two signs in a last
line without a line end.

NOT binds tighter than comparisons: `NOT a = 1` is `(NOT a) = 1`, as in RocketMQ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken

from kourou.errors import Code, Rejected
from kourou.filtering import sql_terms as terms
from kourou.filtering.sql_terms import Constant, Misfit, PropertyTerm, Term, Text, shown

GRAMMAR = r"""
    start: alternatives

    ?alternatives: demands
        | demands (_OR demands)+                -> either

    ?demands: equality
        | equality (_AND equality)+             -> every

    ?equality: sized
        | equality _EQUAL sized                 -> equal
        | equality _UNEQUAL sized               -> unequal
        | equality _IS NULL                     -> is_null
        | equality _IS _NOT NULL                -> is_not_null

    ?sized: signed
        | sized _GREATER signed                 -> greater
        | sized _GREATER_OR_EQUAL signed        -> greater_or_equal
        | sized _LESS signed                    -> less
        | sized _LESS_OR_EQUAL signed           -> less_or_equal
        | sized _BETWEEN signed _AND signed     -> between
        | sized _NOT _BETWEEN signed _AND signed -> outside
        | sized _IN values                      -> member
        | sized _NOT _IN values                 -> no_member

    values: _OPEN TEXT (_COMMA TEXT)* _CLOSE

    ?signed: single
        | _PLUS signed                          -> plus
        | _MINUS signed                         -> minus
        | _NOT signed                           -> denied

    ?single: TEXT                               -> text
        | WHOLE                                 -> whole
        | DOUBLE                                -> double
        | TRUE                                  -> true
        | FALSE                                 -> false
        | NULL                                  -> null
        | NAME                                  -> name
        | _OPEN alternatives _CLOSE

    _OR: "OR"i
    _AND: "AND"i
    _NOT: "NOT"i
    _IS: "IS"i
    _IN: "IN"i
    _BETWEEN: "BETWEEN"i
    TRUE: "TRUE"i
    FALSE: "FALSE"i
    NULL: "NULL"i
    _EQUAL: "="
    _UNEQUAL: "<>"
    _LESS: "<"
    _LESS_OR_EQUAL: "<="
    _GREATER: ">"
    _GREATER_OR_EQUAL: ">="
    _PLUS: "+"
    _MINUS: "-"
    _OPEN: "("
    _CLOSE: ")"
    _COMMA: ","

    DOUBLE.3: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    WHOLE.2: /0|[1-9][0-9]*[lL]?/
    TEXT: /'(''|[^'])*'/
    NAME: /[A-Za-z_$][A-Za-z0-9_$]*/

    %ignore /[ \t\n\r\f]+/
    %ignore /--[^\n\r]*/
    %ignore /\/\*[^*]*\*+([^*\/][^*]*\*+)*\//
"""

_STARTS = frozenset(
    {"TEXT", "WHOLE", "DOUBLE", "TRUE", "FALSE", "NULL", "NAME", "_OPEN", "_PLUS", "_MINUS", "_NOT"}
)
"""Tokens that may begin an operand."""

_COMPARES = frozenset({"_EQUAL", "_UNEQUAL", "_LESS", "_LESS_OR_EQUAL", "_GREATER"})
_WORDS = {
    "TEXT": "a string in single quotes",
    "NULL": "NULL",
    "_AND": "AND",
    "_OR": "OR",
    "_NOT": "NOT",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_OPEN": "(",
    "_CLOSE": ")",
    "_COMMA": ",",
    "$END": "the end",
}
_ABSENT = frozenset({"LIKE", "CONTAINS", "STARTSWITH", "ENDSWITH", "ESCAPE"})


class _Builder(Transformer[Token, Term]):
    """Builds terms while the text is parsed; the parser calls it, so nothing here recurses."""

    def start(self, found: list[Any]) -> Term:
        term: Term = found[0]
        return term

    def either(self, found: list[Any]) -> Term:
        return terms.either(tuple(found))

    def every(self, found: list[Any]) -> Term:
        return terms.every(tuple(found))

    def equal(self, found: list[Any]) -> Term:
        return terms.equal(*found)

    def unequal(self, found: list[Any]) -> Term:
        return terms.denied(terms.equal(*found))

    def is_null(self, found: list[Any]) -> Term:
        return terms.is_null(found[0])

    def is_not_null(self, found: list[Any]) -> Term:
        return terms.denied(terms.is_null(found[0]))

    def greater(self, found: list[Any]) -> Term:
        return terms.compared(">", *found)

    def greater_or_equal(self, found: list[Any]) -> Term:
        return terms.compared(">=", *found)

    def less(self, found: list[Any]) -> Term:
        return terms.compared("<", *found)

    def less_or_equal(self, found: list[Any]) -> Term:
        return terms.compared("<=", *found)

    def between(self, found: list[Any]) -> Term:
        return terms.between(*found)

    def outside(self, found: list[Any]) -> Term:
        return terms.outside(*found)

    def member(self, found: list[Any]) -> Term:
        return terms.member(*found)

    def no_member(self, found: list[Any]) -> Term:
        return terms.denied(terms.member(*found))

    def values(self, found: list[Any]) -> tuple[str, ...]:
        return tuple(map(_unquoted, found))

    def plus(self, found: list[Any]) -> Term:
        term: Term = found[0]
        return term

    def minus(self, found: list[Any]) -> Term:
        return terms.negative(found[0])

    def denied(self, found: list[Any]) -> Term:
        return terms.denied(found[0])

    def text(self, found: list[Any]) -> Term:
        return Text(_unquoted(found[0]), _place(found[0]))

    def whole(self, found: list[Any]) -> Term:
        return terms.whole(str(found[0]), _place(found[0]))

    def double(self, found: list[Any]) -> Term:
        return terms.double(str(found[0]), _place(found[0]))

    def true(self, found: list[Any]) -> Term:
        return Constant(True, _place(found[0]))

    def false(self, found: list[Any]) -> Term:
        return Constant(False, _place(found[0]))

    def null(self, found: list[Any]) -> Term:
        return Constant(None, _place(found[0]))

    def name(self, found: list[Any]) -> Term:
        return PropertyTerm(str(found[0]), _place(found[0]))


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _place(token: Token) -> int:
    return token.start_pos or 0


_parse: Callable[[str], Any] = Lark(
    GRAMMAR,
    parser="lalr",
    lexer="basic",  # a keyword has the same meaning everywhere, as in RocketMQ
    transformer=_Builder(),
    g_regex_flags=re.ASCII,
    maybe_placeholders=False,
).parse


def parse(text: str) -> terms.Truth:
    """The terms of an expression. Raises Rejected (23) that names position and expectation."""
    try:
        found = terms.truth(_parse(text))
        terms.conditions(found)
    except Misfit as misfit:
        raise refusal(text, misfit.at, misfit.problem, misfit.expected) from None
    except UnexpectedInput as error:
        raise _unreadable(text, error) from None
    return found


def check(text: str) -> None:
    """Raise Rejected (23) for an expression that is valid but never true."""
    try:
        terms.check_meant(parse(text))
    except Misfit as misfit:
        raise refusal(text, misfit.at, misfit.problem, misfit.expected) from None


def refusal(text: str, at: int, problem: str, expected: str, hint: str = "") -> Rejected:
    """The error for position `at`, counted from 0; the message counts from 1."""
    return Rejected(
        f"filter {shown(text)!r} is invalid at position {at + 1}: {problem}; expected {expected}",
        hint=hint,
        code=Code.SUBSCRIPTION_PARSE_FAILED,
    )


def _unreadable(text: str, error: UnexpectedInput) -> Rejected:
    if isinstance(error, UnexpectedToken):
        # `accepts` has what can follow; `expected` also has tokens that would fail later.
        wanted = _expected(error.accepts or error.expected)
        if error.token.type == "$END":
            return refusal(text, len(text), "unexpected end", wanted)
        at = error.token.start_pos or 0
        found = shown(str(error.token))
        return refusal(text, at, f"unexpected {found}", wanted, _hint(text, at))
    at = error.pos_in_stream or 0
    if text[at] == "'":
        return refusal(text, at, "unterminated string", "a closing quote")
    return refusal(text, at, f"invalid character {text[at]!r}", "SQL92", _hint(text, at))


def _expected(names: set[str]) -> str:
    """What the grammar allows at this position, as text."""
    if names >= _STARTS:
        return "a property or a value"
    words = ["an operator"] if names >= _COMPARES else []
    after = {"_BETWEEN", "_IN", "_NOT"} if words else set()
    words += [word for name, word in _WORDS.items() if name in names - after]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _hint(text: str, at: int) -> str:
    rest = text[at:]
    word = re.match(r"[A-Za-z]+", rest)
    if word and word[0].upper() in _ABSENT:
        return f"{word[0].upper()} is not supported; use =, <>, <, >, BETWEEN, IN or IS NULL"
    if rest.startswith('"'):
        return "write strings in single quotes"
    if rest.startswith(("!=", "=")) and (rest[0] == "!" or text[at - 1 : at] == "="):
        return "use = for equality and <> for inequality"
    if rest[:1] in ("+", "-", "*", "/"):
        return "arithmetic is not supported"
    return ""
