"""Python filters of applications, which run in filter servers next to the broker.

    @Filter
    def late(message, context):
        return message.json["arrival_delay_minutes"] > 120

    with mq.subscribe("flights", late) as flights: ...

The two modules that read sources are imported when a filter is created, because most clients create
none.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import hashlib
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Self

from kourou.errors import BadRequest
from kourou.model.filter import check_filter_name
from kourou.model.limits import FILTER_NOTE_LENGTH_MAX, FILTER_SOURCE_BYTES_MAX

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


Matching = Callable[[Any, Any], bool]
"""`match(message, context)`."""


@dataclass(frozen=True, init=False)
class Filter:
    """A Python filter, usable as an expression instead of tags or an `Sql`.

    `Filter(function)`, `Filter(cls)` and, as decorators, `@Filter` and `@Filter.define(...)` use
    the source of their argument: a function `match(message, context) -> bool` under any name, or a
    class with a method `match`. `Filter(text, name=...)` and `Filter.from_file(path)` take the
    source itself. `Filter.named(name)` uploads nothing and refers to the filter that the group has
    stored under that name. `note` is stored with the uploaded version. Raises BadRequest for a
    filter that cannot be uploaded or would be refused.
    """

    name: str
    source: str | None = field(repr=False)
    note: str = ""
    _function: Matching | None = field(default=None, repr=False, compare=False)

    def __init__(
        self, what: str | Matching | type, *, name: str | None = None, note: str = ""
    ) -> None:
        function: Matching | None = None
        if isinstance(what, str):
            if name is None:
                raise BadRequest(
                    "a filter given as text needs a name",
                    hint="use Filter(text, name=...); for a stored filter "
                    'Filter.named(...); as a decorator @Filter.define("late")',
                )
            source = what
        elif isinstance(what, FunctionType | type):
            from kourou.client.filters import python_filter as filter_sources

            if isinstance(what, type):
                source = filter_sources.source_of_class(what)
            else:
                source, function = filter_sources.source_of_function(what), what
            name = _chosen_name(name, what.__name__)
        else:
            raise BadRequest(
                f"{what!r:.80} is not a filter",
                hint="pass a function, a class, or the source as text",
            )
        self._fill(name, source, note, function)

    def _fill(
        self, name: str, source: str | None, note: str, function: Matching | None = None
    ) -> None:
        if not (isinstance(name, str) and isinstance(note, str)):
            raise BadRequest(
                f"name and note of a filter must be strings, not {name!r:.80}, {note!r:.80}"
            )
        check_filter_name(name)
        if len(note) > FILTER_NOTE_LENGTH_MAX:
            raise BadRequest(
                f"the note of filter {name} has {len(note)} characters; at "
                f"most {FILTER_NOTE_LENGTH_MAX} are allowed"
            )
        if source is not None:
            from kourou.filtering.python_rules import check_source

            check_source(source, name)
        for key, value in (
            ("name", name),
            ("source", source),
            ("note", note),
            ("_function", function),
        ):
            object.__setattr__(self, key, value)

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the filter that the consumer group has stored under this name."""
        made = cls.__new__(cls)
        made._fill(name, None, "")
        return made

    @classmethod
    def from_file(cls, path: str | Path, *, name: str | None = None, note: str = "") -> Self:
        """Return the filter whose source is a UTF-8 file; the default name is the file's stem."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(FILTER_SOURCE_BYTES_MAX + 1)
            # Content that is too long may end within a character.
            too_long = len(content) > FILTER_SOURCE_BYTES_MAX
            source = content.decode(errors="replace" if too_long else "strict")
        except (OSError, ValueError) as error:
            raise BadRequest(f"filter file {path} cannot be read: {error}") from error
        return cls(source, name=path.stem if name is None else name, note=note)

    @classmethod
    def define(
        cls, name: str | None = None, *, note: str = ""
    ) -> Callable[[Matching | type], Filter]:
        """Return a decorator: `@Filter.define("late", note="more than two hours late")`."""
        if name is not None and not isinstance(name, str):  # used without parentheses
            raise BadRequest(
                f"Filter.define takes the name of the filter, not {name!r:.80}",
                hint='use @Filter.define("late"), or just @Filter',
            )

        def make(what: Matching | type) -> Filter:
            return cls(what, name=name, note=note)

        return make

    def __call__(self, message: Any, context: Any = None) -> bool:
        """Call the function locally, as in tests.

        Raises BadRequest if made from a text or a class.
        """
        if self._function is None:
            raise BadRequest(
                f"filter {self.name} was not made from a function, so it cannot be called"
            )
        return self._function(message, context)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the source in UTF-8, in hexadecimal; empty without a source."""
        return "" if self.source is None else hashlib.sha256(self.source.encode()).hexdigest()

    def __str__(self) -> str:
        return self.name


def _chosen_name(name: str | None, own: str) -> str:
    if name is not None:
        return name
    if own == "match":
        raise BadRequest(
            "a filter made from a function named match needs a name",
            hint='use @Filter.define("late") or Filter(match, name="late")',
        )
    return own
