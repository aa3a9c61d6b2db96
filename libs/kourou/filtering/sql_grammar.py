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
from functools import partial
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


def _of(make: Callable[..., Term]) -> Callable[[_Builder, list[Any]], Term]:
    """The method for a rule that becomes `make` of its parts."""
    return lambda _, found: make(*found)


class _Builder(Transformer[Token, Term]):
    """Builds terms while the text is parsed; the parser calls it, so nothing here recurses."""

    start = _of(lambda term: term)
    either = _of(lambda *parts: terms.either(parts))
    every = _of(lambda *parts: terms.every(parts))
    equal = _of(terms.equal)
    unequal = _of(lambda *sides: terms.denied(terms.equal(*sides)))
    is_null = _of(lambda term, *_: terms.is_null(term))
    is_not_null = _of(lambda term, *_: terms.denied(terms.is_null(term)))
    greater = _of(partial(terms.compared, ">"))
    greater_or_equal = _of(partial(terms.compared, ">="))
    less = _of(partial(terms.compared, "<"))
    less_or_equal = _of(partial(terms.compared, "<="))
    between = _of(terms.between)
    outside = _of(terms.outside)
    member = _of(terms.member)
    no_member = _of(lambda *parts: terms.denied(terms.member(*parts)))
    plus = _of(lambda term: term)
    minus = _of(terms.negative)
    denied = _of(terms.denied)
    text = _of(lambda token: Text(_unquoted(token), at=_place(token)))
    whole = _of(lambda token: terms.whole(str(token), _place(token)))
    double = _of(lambda token: terms.double(str(token), _place(token)))
    true = _of(lambda token: Constant(True, at=_place(token)))
    false = _of(lambda token: Constant(False, at=_place(token)))
    null = _of(lambda token: Constant(None, at=_place(token)))
    name = _of(lambda token: PropertyTerm(str(token), at=_place(token)))

    def values(self, found: list[Any]) -> tuple[str, ...]:
        return tuple(map(_unquoted, found))


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
