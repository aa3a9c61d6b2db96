"""Conversion of a function or class to the source text of a filter.

A filter server runs only that text. So a function is refused if it uses anything of the surrounding
program, or if its text differs from the code that this process runs.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from kourou.errors import BadRequest

ENTRY = "match"
"""The name that the sandbox looks up: a function, or a class with such a method."""

_DECORATOR = "Filter"
_BY_TEXT = "pass its source as text or a file: Filter(text, name=...), Filter.from_file(path)"
_KNOWN = frozenset({*dir(builtins), "__name__"})


def source_of_function(function: FunctionType) -> str:
    """Return a text that defines the function under the name `match`. Raises BadRequest."""
    name = function.__name__
    if name == "<lambda>":
        raise BadRequest("a filter cannot be a lambda", hint="define a function with def")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadRequest(f"filter {name} is async; use a plain function", hint="def")
    _check_parameters(name, function)
    if function.__code__.co_freevars:
        raise BadRequest(
            f"filter {name} uses variables of the enclosing function: "
            f"{', '.join(function.__code__.co_freevars)}; only its own source "
            "is uploaded",
            hint="write the values into the function, or generate its source: "
            "Filter(text, name=...)",
        )
    # The sandbox looks up `match`; a recursive function also finds itself under its own name.
    body = re.sub(rf"def\s+{name}\b", f"def {ENTRY}", _text_of(function, name), count=1)
    alias = f"\n\n{name} = {ENTRY}\n" if name != ENTRY and _calls(function.__code__, name) else ""
    source = _future(function.__globals__) + body + alias
    _check_alone(name, source)
    _check_same(name, source, [((ENTRY,), function)])
    return source


def _calls(code: CodeType, name: str) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return name in code.co_names or any(_calls(one, name) for one in inner)


def source_of_class(what: type) -> str:
    """Return a text that defines the class, which has a method `match`. Raises BadRequest."""
    name = what.__name__
    entry = inspect.getattr_static(what, ENTRY, None)
    if not isinstance(entry, FunctionType | staticmethod | classmethod):
        raise BadRequest(f"filter {name} has no method {ENTRY}(self, message, context)")
    try:
        inspect.signature(what).bind()
    except TypeError:
        raise BadRequest(
            f"filter {name} cannot be instantiated without arguments, as filter servers do",
            hint="give the arguments defaults, or initialize in set_up(self, context)",
        ) from None
    bound = getattr(what, ENTRY)
    _check_parameters(name, bound, has_self=isinstance(entry, FunctionType))
    module = sys.modules.get(what.__module__)
    source = _future(vars(module) if module is not None else {}) + _text_of(what, name)
    _check_alone(name, source)
    methods: list[tuple[tuple[str, ...], FunctionType]] = [
        ((name, own), value) for own, value in vars(what).items() if isinstance(value, FunctionType)
    ]
    _check_same(name, source, methods)
    return source


def _check_parameters(name: str, function: Callable[..., Any], *, has_self: bool = False) -> None:
    given = ("self", "message", "context") if has_self else ("message", "context")
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise BadRequest(
            f"filter {name} must take (message, context)",
            hint=f"use the form def {ENTRY}({', '.join(given)}) -> bool",
        ) from None


def _future(module: dict[str, Any]) -> str:
    """Keep annotations unevaluated if they are here; their names are not defined in the sandbox."""
    if module.get("annotations") is __future__.annotations:
        return "from __future__ import annotations\n\n\n"
    return ""


def _text_of(what: FunctionType | type, name: str) -> str:
    """Return the text of a definition without indentation and without the `Filter` decorator.

    Raises BadRequest if removing the indentation would change a multi-line string.
    """
    try:
        found = inspect.getsource(what)
    except (OSError, TypeError) as error:
        raise BadRequest(f"the source of filter {name} is not available", hint=_BY_TEXT) from error
    text = textwrap.dedent(found)
    try:
        tree = ast.parse(text)
        if text != found and ast.dump(tree) != _dump_indented(found):
            raise BadRequest(
                f"filter {name} contains a multi-line string whose content "
                "depends on the indentation",
                hint="define the filter at module level, without indentation",
            )
    except SyntaxError:
        raise BadRequest(
            f"the source of filter {name} cannot be separated from its surroundings", hint=_BY_TEXT
        ) from None
    node = tree.body[0]
    if len(tree.body) != 1 or not isinstance(node, ast.FunctionDef | ast.ClassDef):
        raise BadRequest(f"the source of filter {name} is not a single def or class", hint=_BY_TEXT)
    for decorator in node.decorator_list:
        if not _makes_filters(decorator):
            raise BadRequest(
                f"filter {name} is decorated with {ast.unparse(decorator)}",
                hint="only its own source is uploaded; remove all decorators except Filter",
            )
    return "".join(text.splitlines(keepends=True)[node.lineno - 1 :])


def _dump_indented(found: str) -> str:
    body = ast.parse("if True:\n" + found).body[0]
    assert isinstance(body, ast.If)
    return ast.dump(ast.Module(body.body, []))


def _makes_filters(decorator: ast.expr) -> bool:
    """Return whether this is `@Filter`, `@kourou.Filter` or `@Filter.define(...)`.

    Any package name is accepted.
    """
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    words = ast.unparse(decorator).split(".")
    return _DECORATOR in words[-2:]


def _check_alone(name: str, source: str) -> None:
    """Refuse a source that uses names of its surrounding module."""
    table = symtable.symtable(source, name, "exec")
    own = {symbol.get_name() for symbol in table.get_symbols() if _is_bound(symbol)}
    lacking = sorted(
        {
            symbol.get_name()
            for scope in _scopes(table)
            for symbol in scope.get_symbols()
            if (symbol.is_global() or scope is table)
            and symbol.is_referenced()
            and symbol.get_name() not in own
            and symbol.get_name() not in _KNOWN
        }
    )
    if lacking:
        raise BadRequest(
            f"filter {name} uses {', '.join(lacking)} from its module; only "
            "its own source is uploaded",
            hint="import and define what it needs inside the filter, or use a file: "
            "Filter.from_file(path)",
        )


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _check_same(
    name: str, source: str, functions: list[tuple[tuple[str, ...], FunctionType]]
) -> None:
    """Refuse a text that differs from the running code: its file was changed, or it was patched."""
    code = compile(source, name, "exec", dont_inherit=True)
    for path, function in functions:
        found: CodeType | None = code
        for word in path:
            found = _inner(found, word)
        if found is None or not _alike(found, function.__code__):
            raise BadRequest(
                f"the source of filter {name} differs from the running {'.'.join(path)}",
                hint="restart the process if the file changed, or pass the source as text",
            )


def _inner(code: CodeType | None, name: str) -> CodeType | None:
    if code is None:
        return None
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == name:
            return constant
    return None


def _alike(one: CodeType, other: CodeType) -> bool:
    if one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _alike(mine, theirs)
        if isinstance(mine, CodeType) and isinstance(theirs, CodeType)
        else type(mine) is type(theirs) and mine == theirs
        for mine, theirs in zip(one.co_consts, other.co_consts, strict=True)
    )
