"""docs/reference/log-events.md: all events of log lines, read from the calls in the code.

tests/architecture/test_log_events.py checks with the same look that each call names its event.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from generators.tables import code, document, head, paragraph, table

from kourou.telemetry.logs import EVENT

TOPS = ("libs", "services", "examples/demo")
"""Where events are logged."""

RELAYS = frozenset({"libs/kourou/runtime.py", "libs/kourou/transport/rate_limited_log.py"})
"""Modules that log the texts of their callers."""

ABOUT = """\
Events of log lines, with level and fields. Event names and the names of fields do not change; the
sentences may."""

FORMAT = """\
A line of JSON has `event`, `message` (the sentence with its values), a key for each `{field}` of
the sentence, `logger`, `level`, `time` and `service`, and where there is one `trace_id`, `span_id`
and `exception`. `left_out` counts lines of the same event that were left out, because it occurs too
often. Lines of other libraries have no event. [observing.md](../observing.md#log-lines) shows how
to search them."""

LEVELS = ("debug", "info", "warning", "error", "critical")
_METHODS = {**{level: level for level in LEVELS}, "exception": "error"}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
FIELD = re.compile(r"%\((\w+)\)[-+ #0]*\d*(?:\.\d+)?[a-z]")
"""Where a sentence takes the value of a field."""


@dataclass(frozen=True)
class LogCall:
    """One call that logs.

    `text` is None if it is not a plain string, `fields` if they are not plain names. `levels` is
    empty if the level is a value.
    """

    path: str
    line: int
    levels: tuple[str, ...]
    text: str | None
    fields: tuple[str, ...] | None

    @property
    def event(self) -> str:
        """The name of the event, "" if there is none."""
        found = EVENT.match(self.text or "")
        return "" if found is None else found[1]

    @property
    def sentence(self) -> str:
        """The text after the name, with {field} for each value."""
        text = (self.text or "").removeprefix(f"{self.event}: ")
        return FIELD.sub(r"{\1}", text).replace("%%", "%") if self.fields else text

    @property
    def placeholders(self) -> set[str]:
        """The names of the fields in the sentence."""
        return set(FIELD.findall(self.text or ""))


def page(root: Path) -> str:
    """One row for each event, by name."""
    by_event: defaultdict[str, list[LogCall]] = defaultdict(list)
    for call in all_calls(root):
        by_event[call.event].append(call)
    lines = [*head("Log events", ABOUT, *TOPS), paragraph(FORMAT), ""]
    lines += table(
        ("event", "level", "sentence", "module"),
        [
            (code(event), _levels(calls), calls[0].sentence, _modules(calls))
            for event, calls in sorted(by_event.items())
        ],
    )
    return document(lines)


def _levels(calls: Sequence[LogCall]) -> str:
    if not all(call.levels for call in calls):
        return "varies"
    found = {level for call in calls for level in call.levels}
    return ", ".join(level for level in LEVELS if level in found)


def _modules(calls: Sequence[LogCall]) -> str:
    return ", ".join(code(name) for name in sorted({module_of(call.path) for call in calls}))


def module_of(path: str) -> str:
    """Return the name by which a file is imported."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "libs" else parts[2:])


def all_calls(root: Path) -> Iterator[LogCall]:
    """Return all calls that log, apart from those of RELAYS."""
    for top in TOPS:
        for path in sorted((root / top).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name not in RELAYS:
                yield from calls_of(name, ast.parse(path.read_text(encoding="utf-8")))


def calls_of(path: str, tree: ast.Module) -> Iterator[LogCall]:
    """Return the calls of one file, in the order of the source."""
    found = []
    scopes: list[tuple[ast.AST, dict[str, ast.expr]]] = [(tree, {})]
    while scopes:
        scope, outer = scopes.pop()
        inner = list(_within(scope))
        names = {**outer, **dict(pair for node in inner for pair in _assigned(node))}
        for node in inner:
            if isinstance(node, _SCOPES):
                scopes.append((node, names))
            elif isinstance(node, ast.Call):
                call = _call(path, node, names)
                found += [] if call is None else [call]
    yield from sorted(found, key=lambda call: call.line)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Return all nodes of a scope, with its functions and classes, but not what is inside them."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _within(node)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value


def _call(path: str, node: ast.Call, names: dict[str, ast.expr]) -> LogCall | None:
    """Return the call if it logs."""
    function, arguments = node.func, list(node.args)
    levels: tuple[str, ...] = ("warning",)
    if isinstance(function, ast.Name):
        if function.id != "LogWarning":
            return None
    elif not isinstance(function, ast.Attribute) or not arguments:
        return None
    elif function.attr == "log" and ast.unparse(function.value).endswith("log"):
        levels = tuple(_levels_of(_resolved(arguments.pop(0), names)))
    elif function.attr in _METHODS:
        levels = (_METHODS[function.attr],)
    else:
        return None
    text = arguments[0] if arguments else None
    literal = text.value if isinstance(text, ast.Constant) else None
    return LogCall(
        path,
        node.lineno,
        levels,
        literal if isinstance(literal, str) else None,
        _fields_of(arguments[1:], names),
    )


def _resolved(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    return names.get(node.id, node) if isinstance(node, ast.Name) else node


def _levels_of(node: ast.expr) -> Iterator[str]:
    """Return the level, or both of a choice; nothing for another value."""
    if isinstance(node, ast.IfExp):
        yield from _levels_of(node.body)
        yield from _levels_of(node.orelse)
    elif isinstance(node, ast.Attribute) and node.attr.lower() in LEVELS:
        yield node.attr.lower()


def _fields_of(arguments: Sequence[ast.expr], names: dict[str, ast.expr]) -> tuple[str, ...] | None:
    """Return the names of the fields; None if they are not written down."""
    if not arguments:
        return ()
    given = _resolved(arguments[0], names)
    if len(arguments) > 1 or not isinstance(given, ast.Dict):
        return None
    keys = [key.value if isinstance(key, ast.Constant) else None for key in given.keys]
    plain = tuple(key for key in keys if isinstance(key, str))
    return plain if len(plain) == len(keys) else None
