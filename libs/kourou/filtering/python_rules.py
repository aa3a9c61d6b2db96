"""Rules for the source of an uploaded filter, checked before it runs, for early and helpful errors.

State: none, except `CheckAllowance` (soft). The result of a check depends only on the source and
the version of Python.

Invariant: for any text, only BadRequest is raised, in bounded time: the size is checked first, then
the nesting of brackets, and the syntax tree is walked without recursion.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

from kourou.errors import BadRequest, Throttled
from kourou.model.limits import (
    FILTER_BRACKET_DEPTH_MAX,
    FILTER_CHECKED_BYTES_MAX,
    FILTER_CHECKED_BYTES_S,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_TREE_DEPTH_MAX,
)

MODULES = (
    "__future__",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "collections.abc",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "heapq",
    "html",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "re",
    "string",
    "struct",
    "typing",
    "unicodedata",
    "urllib.parse",
    "zlib",
)
"""The modules that an uploaded filter may import: the only list.

They only compute: they use no file, clock, random numbers, process or network. The result of a
filter should depend only on the message and the context, so that every filter server returns the
same result for the same message. `re` is on the list although a pattern can run for years: every
batch has a deadline, after which the worker is killed. `random`, `time`, `os` and `logging` are
not. The process that starts a zygote passes it this list, because no code of Kourou is inside the
sandbox.
"""


FORBIDDEN_NAMES = {
    "__import__": "write `import` at the top; the list of modules is in docs/filters.md",
    "breakpoint": "try the filter on your own machine, or with a dry run",
    "compile": "write the code itself",
    "eval": "for JSON there is message.json, for numbers int() and float()",
    "exec": "write the code itself",
    "exit": "return False",
    "help": "try the filter on your own machine",
    "input": "a filter can only use the message and the context",
    "open": "a filter can read no files: write the data into the source",
    "quit": "return False",
}
"""Builtins that filters do not have, and what to use instead."""

ATTRIBUTES_ALLOWED = frozenset(
    {"__doc__", "__eq__", "__hash__", "__init__", "__name__", "__post_init__", "__repr__"}
)
"""The names with double underscores that a filter may access as attributes."""


_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_MATCH, _SET_UP, _BATCH = "match", "set_up", "match_batch"
_PARAMETERS = {
    _MATCH: ("message", "context"),
    _SET_UP: ("context",),
    _BATCH: ("messages", "context"),
}


def check_source(source: str, name: str) -> None:
    """Check the source of the filter `name`.

    Raises BadRequest: the message has the filter, line:column and the problem, the hint the
    solution. Lines and columns count from 1.
    """
    _Check(name).run(source)


class _Check:
    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, source: str) -> None:
        self._check_text(source)
        tree = self._parse(source)
        nodes = self._all_nodes(tree)
        self._check_imports(nodes)
        self._check_words(nodes)
        self._check_state(nodes)
        faces, are_methods = self._faces(tree)
        for kind, function in faces.items():
            self._check_face(kind, function, is_method=are_methods)

    def _refuse(self, at: ast.AST | None, what: str, hint: str = "") -> NoReturn:
        line, column = getattr(at, "lineno", None), getattr(at, "col_offset", None)
        where = f", {line}:{column + 1}" if line is not None and column is not None else ""
        raise BadRequest(f"filter {self._name}{where}: {what}", hint=hint)

    # -- the text ---------------------------------------------------------------------------------

    def _check_text(self, source: str) -> None:
        try:
            size = len(source.encode())
        except UnicodeEncodeError as error:
            raise BadRequest(f"filter {self._name}: the source is not valid Unicode") from error
        if size > FILTER_SOURCE_BYTES_MAX:
            self._refuse(
                None,
                f"the source has {size} bytes; {FILTER_SOURCE_BYTES_MAX} are allowed",
                "a large table belongs into the messages or behind the consumer",
            )
        if not source.strip():
            self._refuse(None, "the source is empty", "write a function match(message, context)")
        if "\0" in source:
            self._refuse(None, "the source has a NUL in it", "is it a compiled file?")
        depth = deepest = 0
        for character in source:
            if character in "([{":
                depth += 1
                deepest = max(deepest, depth)
            elif character in ")]}" and depth:
                depth -= 1
        if deepest > FILTER_BRACKET_DEPTH_MAX:
            self._refuse(
                None,
                f"brackets nest {deepest} deep; {FILTER_BRACKET_DEPTH_MAX} are allowed",
                "those in texts and comments are counted, too",
            )

    def _parse(self, source: str) -> ast.Module:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        try:
            with warnings.catch_warnings():
                # Python warns about an escape such as "\d"; that is not the broker's concern.
                warnings.simplefilter("ignore")
                # Some editors begin texts with U+FEFF.
                return ast.parse(source.removeprefix("\ufeff"))
        except SyntaxError as error:
            where = f", {error.lineno}:{error.offset}" if error.lineno and error.offset else ""
            raise BadRequest(
                f"filter {self._name}{where}: {version} cannot parse it: {error.msg}"
            ) from error
        except (RecursionError, MemoryError, ValueError, OverflowError) as error:
            raise BadRequest(
                f"filter {self._name}: {version} cannot parse it: it is nested too deeply"
            ) from error

    def _all_nodes(self, tree: ast.Module) -> list[ast.AST]:
        """Every node, level by level, so that the first error reported is the outermost."""
        nodes: list[ast.AST] = []
        level: list[ast.AST] = [tree]
        for _ in range(FILTER_TREE_DEPTH_MAX):
            if not level:
                return nodes
            nodes += level
            level = [child for node in level for child in ast.iter_child_nodes(node)]
        self._refuse(
            level[0], "the source is nested too deeply", "move parts of it into named functions"
        )

    # -- names ------------------------------------------------------------------------------------

    def _check_imports(self, nodes: list[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                if module in MODULES and any(alias.name == "*" for alias in node.names):
                    self._refuse(node, f"from {module} import *", "name each imported object")
                # `from collections import abc` imports a module, and so does
                # `from urllib import parse`.
                inner = {f"{module}.{alias.name}" for alias in node.names}
                names = inner if module not in MODULES and inner <= set(MODULES) else {module}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            for name in sorted(names - set(MODULES)):
                self._refuse(
                    node,
                    f"{name} is not among the modules that a filter may import",
                    f"these are: {', '.join(MODULES)}",
                )

    def _check_words(self, nodes: list[ast.AST]) -> None:
        bound = _bound_names(nodes)
        for node in nodes:
            if isinstance(node, ast.Name):
                hint = FORBIDDEN_NAMES.get(node.id)
                if hint is not None and node.id not in bound:
                    self._refuse(node, f"a filter has no {node.id}()", hint)
                if _is_dunder(node.id) and node.id != "__name__" and node.id not in bound:
                    self._refuse(node, f"{node.id} is not for filters")
            elif isinstance(node, ast.Attribute):
                if _is_dunder(node.attr) and node.attr not in ATTRIBUTES_ALLOWED:
                    self._refuse(
                        node, f"{node.attr} is not for filters", "the inside of objects is not seen"
                    )
            elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                self._refuse(node, "async is not supported in filters", "write `def`")

    def _check_state(self, nodes: list[ast.AST]) -> None:
        """Refuse `global` outside `set_up`, because state kept between batches may be lost."""
        for function in nodes:
            if isinstance(function, ast.FunctionDef) and function.name != _SET_UP:
                for node in _own_nodes(function):
                    if isinstance(node, ast.Global):
                        self._refuse(
                            node,
                            f"`global` in {function.name}: workers restart at any time, and "
                            "another worker may serve a queue, so counters are not reliable",
                            "only set_up may fill globals",
                        )

    # -- match and related functions --------------------------------------------------------------

    def _faces(self, tree: ast.Module) -> tuple[dict[str, _Function | ast.Lambda], bool]:
        """The functions that Kourou calls, by name, and whether they are methods of a class."""
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) in _PARAMETERS:
                        called = alias.asname or alias.name
                        self._refuse(
                            node,
                            f"{called} is imported",
                            f"import it as something else: {called} is the filter's own",
                        )
        functions = self._collect(tree.body)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        with_match = [node for node in classes if _MATCH in self._collect(node.body)]
        if _MATCH in functions:
            if with_match:
                self._refuse(
                    with_match[0],
                    f"both a function match and the class {with_match[0].name} are defined",
                    "a source must have one filter",
                )
            return functions, False
        if len(with_match) > 1:
            names = " and ".join(node.name for node in with_match)
            self._refuse(with_match[1], f"{names} define match", "a source must have one filter")
        if not with_match:
            self._refuse(
                None,
                "it has neither a function `match(message, context)` nor a class with such a "
                "method, at the outermost level",
                "write: def match(message, context): return message.tag == 'paid'",
            )
        found = with_match[0]
        self._check_constructor(found)
        return self._collect(found.body), True

    def _collect(self, body: list[ast.stmt]) -> dict[str, _Function | ast.Lambda]:
        """The functions of these statements that Kourou calls, by name.

        These include `match = lambda …` and `match = is_late`, for a function of these statements.
        """
        defined = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        found: dict[str, _Function | ast.Lambda] = {}
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name in _PARAMETERS:
                if node.name in found:
                    self._refuse(node, f"{node.name} is written twice", "remove one")
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id in _PARAMETERS:
                        value = _function_meant(node.value, defined)
                        if value is None or target.id in found:
                            self._refuse(
                                node, f"{target.id} is not a function", f"write def {target.id}(…)"
                            )
                        found[target.id] = value
        return found

    def _check_constructor(self, found: ast.ClassDef) -> None:
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                least, _ = _places(node.args)
                if least > 1:
                    self._refuse(
                        node,
                        f"{found.name} is made without arguments, but its __init__ requires some",
                        "give them defaults; what is known of the filter is in set_up's context",
                    )

    def _check_face(self, kind: str, function: _Function | ast.Lambda, *, is_method: bool) -> None:
        wanted = _PARAMETERS[kind]
        own = _own_parameters(function) if is_method else ()
        count = len(own) + len(wanted)
        least, most = _places(function.args)
        if not least <= count <= most:
            shown = ", ".join((*own, *wanted))
            self._refuse(function, f"{kind} must take ({shown})", f"write def {kind}({shown}):")
        if kind == _SET_UP or isinstance(function, ast.Lambda):
            return
        answers = False
        for node in _own_nodes(function):
            if isinstance(node, ast.Yield | ast.YieldFrom):
                self._refuse(node, f"{kind} must return its answer, not yield it")
            answers |= isinstance(node, ast.Return) and node.value is not None
        if not answers:
            answer = "True or False" if kind == _MATCH else "a list of True and False"
            self._refuse(function, f"{kind} never returns {answer}", "a `return` is missing")


def _function_meant(
    value: ast.expr, defined: dict[str, ast.FunctionDef]
) -> ast.FunctionDef | ast.Lambda | None:
    """The function that is assigned to a name: a lambda, or a function defined before."""
    if isinstance(value, ast.Lambda):
        return value
    return defined.get(value.id) if isinstance(value, ast.Name) else None


def _own_parameters(function: _Function | ast.Lambda) -> tuple[str, ...]:
    """The parameters before the expected ones: `self` or `cls`, none for a static method."""
    if isinstance(function, ast.Lambda):
        return ("self",)
    kinds = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    if "staticmethod" in kinds:
        return ()
    return ("cls",) if "classmethod" in kinds else ("self",)


def _places(arguments: ast.arguments) -> tuple[int, float]:
    """How many positional arguments a function takes: at least, at most."""
    most: float = len(arguments.posonlyargs) + len(arguments.args)
    least = int(most) - len(arguments.defaults)
    if any(default is None for default in arguments.kw_defaults):
        return 1, 0  # a required keyword-only parameter: the function cannot be called
    return least, float("inf") if arguments.vararg is not None else most


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, except those of functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, inner):
            waiting.extend(ast.iter_child_nodes(node))


def _bound_names(nodes: list[ast.AST]) -> set[str]:
    """Every name that the source itself binds, anywhere."""
    bound: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
    return bound


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


_MS = 1_000


class CheckAllowance:
    """A rate limit for checking filter sources, because a check blocks all other requests.

    In the worst known case, parsing and checking 64 KiB takes 0.45 s; a usual filter of 2 KiB takes
    a few milliseconds. A service with one event loop serves no other request in the meantime, so
    the limit applies to all clients of one process together. It is full at startup.
    """

    def __init__(self) -> None:
        self._left = float(FILTER_CHECKED_BYTES_MAX)
        self._at_ms = 0

    def take(self, now_ms: int, size_bytes: int) -> None:
        """Account for a check of that size now. Raises Throttled; then the source must not be
        checked.
        """
        passed_ms = max(0, now_ms - self._at_ms)
        left = self._left + passed_ms * FILTER_CHECKED_BYTES_S / _MS
        self._left, self._at_ms = min(left, FILTER_CHECKED_BYTES_MAX), now_ms
        if size_bytes > self._left:
            raise Throttled(
                f"more than {FILTER_CHECKED_BYTES_MAX} bytes of new filters arrived at "
                f"once; {FILTER_CHECKED_BYTES_S} bytes are checked per second",
                hint="filters that were checked before are not checked again",
            )
        self._left -= size_bytes
