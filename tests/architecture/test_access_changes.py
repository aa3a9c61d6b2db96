"""The table of users has two ways to change, and both forget what gates concluded from it.

A gate does not compare anything with the table when it looks a decision up. So a module that wrote
into the table itself would leave a right in force that was taken away.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from kourou.authorization.access_table import AccessSnapshot

HOME = "libs/kourou/authorization/access_table.py"
WAYS = {"evolve", "evolve_unread"}
FIELDS = {*AccessSnapshot.__struct_fields__, "passwords"} - {"sealed_passwords"}
MAKERS = {"AccessAggregate", "access_of", "decode_access"}
"""What creates a table of users."""

MUTATORS = {"clear", "pop", "popitem", "setdefault", "update", "__setitem__", "__delitem__"}


def last_name(node: ast.AST | None) -> str:
    """`c` of `a.b.c` and of `c`; "" of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_table(value: ast.expr | None, names: set[str]) -> bool:
    """Whether an expression is a table of users, if `names` hold one."""
    if not isinstance(value, ast.Call):
        return last_name(value) in names
    made = last_name(value.func)
    copied = isinstance(value.func, ast.Attribute) and made == "copy"
    return made in MAKERS or (copied and is_table(value.func.value, names))


def tables(tree: ast.AST) -> set[str]:
    """The names that hold the table of users here: by annotation, and by what they are assigned.

    Those that begin with _ are attributes, which other modules may use.
    """
    names: set[str] = set()
    assigned: list[tuple[ast.expr, ast.expr | None]] = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as kind) if (
                "AccessAggregate" in (ast.unparse(kind).replace(" | None", "")).split()
            ):
                names.add(name)
            case ast.AnnAssign(target=target, annotation=kind, value=value):
                if ast.unparse(kind).replace(" | None", "") == "AccessAggregate":
                    names.add(last_name(target))
                assigned.append((target, value))
            case ast.NamedExpr(target=target, value=value):
                assigned.append((target, value))
            case ast.Assign(targets=targets, value=value):
                assigned += [(target, value) for target in targets]
    before = -1
    while len(names) > before:
        before = len(names)
        names |= {last_name(target) for target, value in assigned if is_table(value, names)}
        names.discard("")
    return names


def is_field(node: ast.expr, names: set[str]) -> bool:
    """True for `access.users`, `self._access.users` and the like."""
    if not isinstance(node, ast.Attribute) or node.attr not in FIELDS:
        return False
    return last_name(node.value) in names


def changes(tree: ast.AST, names: set[str]) -> Iterator[int]:
    """The lines that change a field of the table."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in MUTATORS:
                targets = [value]
        flat = [
            one
            for target in targets
            for one in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        for one in flat:
            if is_field(one.value if isinstance(one, ast.Subscript) else one, names):
                yield node.lineno


def test_only_events_change_the_table_of_users(production: list[Any]) -> None:
    own = [one for one in production if one.path.startswith(("libs/", "services/"))]
    names = [(source, tables(source.tree)) for source in own]
    attributes = {name for _, held in names for name in held if name.startswith("_")} | {"access"}
    assert "_access" in attributes
    found = {
        f"{source.path}:{line}"
        for source, held in names
        if source.path != HOME
        for line in changes(source.tree, held | attributes)
    }
    assert not found, "record an event instead"


def test_each_way_to_change_it_forgets_what_was_concluded(production: list[Any]) -> None:
    [home] = [source for source in production if source.path == HOME]
    functions = [node for node in ast.walk(home.tree) if isinstance(node, ast.FunctionDef)]
    changing = {one.name: one for one in functions if any(changes(one, {"access"}))}
    assert set(changing) == WAYS
    for name, one in changing.items():
        assert "access.changed(at_ms)" in ast.unparse(one), name


@pytest.mark.parametrize(
    "text",
    [
        "access.users[name] = user",
        "self._access.mode = mode",
        "control.access.mode, access.doors = mode, {}",
        "del state.access.policies[one]",
        "access.tokens.pop(name, None)",
        "self._access.secrets.clear()",
        "access.version += 1",
        "def put(rights: AccessAggregate): rights.users[name] = user",
        "def put(rights: AccessAggregate | None): del rights.users[name]",
        "class Gate:\n  rights: AccessAggregate\nself.rights.mode = mode",
        "rights = decode_access(body)\nrights.users.clear()",
        "def f(a: AccessAggregate):\n  self._mine = a\nself._mine.tokens.pop(name)",
        "def f(a: AccessAggregate):\n  if (b := a.copy()): b.version += 1",
    ],
)
def test_a_planted_change_is_found(text: str) -> None:
    tree = ast.parse(text)
    assert list(changes(tree, tables(tree) | {"access", "_access"}))


@pytest.mark.parametrize(
    "text",
    [
        "users = access.users",
        "access.users.get(name)",
        "self._access = access",
        "found[access.version] = 1",
        "other.users[name] = user",
    ],
)
def test_what_changes_nothing_is_allowed(text: str) -> None:
    assert not list(changes(ast.parse(text), {"access", "_access"}))
