"""docs/reference/events.md: every control event, what it changes, and which code creates it."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import msgspec
from generators.requests import type_text
from generators.tables import anchor, code, document, head, link, paragraph, prose, sentence, table

from kourou.access.api_token import ApiToken
from kourou.access.model import Pattern, Policy, RoleGrant, SealedSecret, User
from kourou.events import control_events as events
from kourou.events.control_events import KnownEvent, UnreadSpan
from kourou.model.filter import FilterState, FilterVersion
from kourou.model.quota import Quota
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig

SOURCE = "libs/kourou/events/control_events.py"
PLACES = (
    "libs/kourou/authorization",
    "libs/kourou/engine",
    "libs/kourou/settings",
    "libs/kourou/store",
    "libs/kourou/eventstore",
    "libs/kourou/broker",
    "services",
)

ABOUT = """\
Decisions of operators, clients and the cluster, stored as immutable events. A broker stores them as
messages of the topic `rmq_sys_kourou_control`, a name server in its event store; state is computed
from them. [control-event.md](../formats/control-event.md) describes the encoding."""

READING = """\
*Aggregate* is the key of the event in the log and in the event store. *Decided by* lists the
functions that create the event, *applied by* the modules whose state it changes, live and at every
replay. An event that no module applies is an audit record."""

VALUES = (
    *(TopicConfig, GroupConfig, FilterState, FilterVersion, UnreadSpan),
    *(User, RoleGrant, Policy, Pattern, SealedSecret, ApiToken, Quota),
)
"""Types of structured fields; each has a section."""


def page(root: Path) -> str:
    """A summary by name, each event with its fields, then the types of structured fields."""
    kinds = {kind.__name__: kind for kind in get_args(KnownEvent)}
    made = _makers(root, set(kinds))
    applied = _appliers(root, set(kinds))
    aggregates = _aggregates(root)
    lines = head("Control events", ABOUT, SOURCE)
    lines += [paragraph(READING), ""]
    lines += table(
        ("event", "aggregate", "applied by"),
        [
            (link(code(name), name), code(aggregates[name]), _modules(applied[name]))
            for name in sorted(kinds)
        ],
    )
    for name in sorted(kinds):
        lines += [f"## {name}", "", paragraph(prose(kinds[name])), ""]
        if made[name]:
            lines += ["Decided by", "", *(f"- {maker}" for maker in made[name]), ""]
        lines += _fields(kinds[name])
    lines += ["## Envelope of every event", "", paragraph(prose(events.Recorded)), ""]
    lines += _fields(events.Recorded)
    for value in VALUES:
        lines += [f"## {value.__name__}", "", paragraph(prose(value)), "", *_fields(value)]
    return document(lines)


def _fields(kind: type[Any]) -> list[str]:
    hints = typing.get_type_hints(kind, include_extras=True)
    required = _required(kind)
    names = getattr(kind, "__struct_fields__", None) or kind.__match_args__
    return table(
        ("field", "type", "default"),
        [
            (code(name), _type(hint), "" if name in required else _default(kind, name))
            for name, hint in hints.items()
            if name in names
        ],
    )


def _required(kind: type[Any]) -> set[str]:
    if issubclass(kind, msgspec.Struct):
        return {field.name for field in msgspec.structs.fields(kind) if field.required}
    return {
        name
        for name, field in kind.__dataclass_fields__.items()
        if field.default is MISSING and field.default_factory is MISSING
    }


def _default(kind: type[Any], name: str) -> str:
    if issubclass(kind, msgspec.Struct):
        (field,) = (one for one in msgspec.structs.fields(kind) if one.name == name)
        value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    else:
        given = kind.__dataclass_fields__[name]
        made = given.default_factory
        value = given.default if made is MISSING else made()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(value) if value not in ("", (), {}) else "empty"


def _type(hint: Any) -> str:
    """A type in words; types with a section of their own are linked."""
    if hint in VALUES:
        return f"[{hint.__name__}]({anchor(hint.__name__)})"
    inner = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return " or ".join(map(code, hint))
    if hint == events.Event:
        return "one of the events above"
    if hint == events.Scalar:
        return "true, false, integer or text"
    if hint == events.QueueOffsets:
        return "queue id → offset"
    if type(None) in inner:
        parts = [part for part in inner if part is not type(None)]
        if set(parts) == set(get_args(events.Scalar)):
            parts = [events.Scalar]
        return f"{' or '.join(map(_type, parts))}, or null"
    if typing.get_origin(hint) is tuple:
        return f"list of {_type(inner[0])}"
    if typing.get_origin(hint) in (dict, Mapping):
        return f"{_key(inner[0])} → {_type(inner[1]).replace(', or null', ' or null')}"
    return type_text(hint)


def _key(hint: Any) -> str:
    if hint is str:
        return "text"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _type(hint)
    return "version" if hint is int else "queue id"


def _modules(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


# -- source analysis ------------------------------------------------------------------------------


def _sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """(module, tree) of all code that may create or apply an event."""
    for place in PLACES:
        for path in sorted((root / place).rglob("*.py")):
            if path.relative_to(root).as_posix() == SOURCE:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            start = 1 if parts[0] == "libs" else 2
            yield ".".join(parts[start:]), ast.parse(path.read_text(encoding="utf-8"))


def _makers(root: Path, names: set[str]) -> Mapping[str, list[str]]:
    """For each event, the functions that create one, with the first sentence of their docstring."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for module, tree in _sources(root):
        for function, node in _functions(tree):
            # `case Event(...)` is a pattern, not a call.
            made = {
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            for name in sorted(made & names):
                found[name].append(_maker(module, function, node))
    return {name: sorted(set(makers)) for name, makers in found.items()}


def _maker(module: str, function: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The name of a public function, or the module of a private one."""
    private = any(part.startswith("_") for part in function.split("."))
    told = sentence(ast.get_docstring(node) or "")
    return code(module if private else f"{module}.{function}") + (f": {told}" if told else "")


def _functions(
    tree: ast.Module,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in tree.body:
        if isinstance(node, kinds):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, kinds):
                    yield f"{node.name}.{inner.name}", inner


def _appliers(root: Path, names: set[str]) -> Mapping[str, list[str]]:
    """For each event, the modules whose `evolve` handles it, except the one that dispatches."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for module, tree in _sources(root):
        if module == "kourou.engine.control":
            continue
        for function, node in _functions(tree):
            if function != "evolve":
                continue
            known = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            for name in sorted(known & names):
                found[name].append(module)
    return found


def _aggregates(root: Path) -> Mapping[str, str]:
    """The return value of each event's `aggregate`, with field names in capitals."""
    found: dict[str, str] = {}
    tree = ast.parse((root / SOURCE).read_text(encoding="utf-8"))
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for base in kind.bases:
            if isinstance(base, ast.Name) and base.id in found:
                found[kind.name] = found[base.id]
        for item in kind.body:
            if isinstance(item, ast.FunctionDef) and item.name == "aggregate":
                (returned,) = (node for node in ast.walk(item) if isinstance(node, ast.Return))
                found[kind.name] = _pattern(returned.value)
    return found


def _pattern(node: ast.expr | None) -> str:
    """`f"progress/{self.group}"` becomes `progress/GROUP`, `{self.topic.name}` becomes `TOPIC`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr), node
    kind = node.values[0]
    assert isinstance(kind, ast.Constant)
    shown = ""
    for value in node.values:
        if isinstance(value, ast.Constant):
            shown += str(value.value)
            continue
        assert isinstance(value, ast.FormattedValue)
        assert isinstance(value.value, ast.Attribute)
        whose, name = value.value.value, value.value.attr
        if not isinstance(whose, ast.Name) and len(node.values) == 2:
            name = str(kind.value).rstrip("/")  # use the name of the aggregate type
        shown += name.upper()
    return shown
