"""The table of users has two ways to change, and both forget what gates concluded from it.

A gate does not compare anything with the table when it looks a decision up. So a module that wrote
into the table itself would leave a right in force that was taken away.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from kourou.authorization.access_table import AccessTaken

HOME = "libs/kourou/authorization/access_table.py"
WAYS = {"evolve", "evolve_unread"}
FIELDS = {*AccessTaken.__struct_fields__, "passwords"} - {"sealed_passwords"}
TABLES = {"access", "_access"}
"""The names that hold the table of users, as variables and as attributes."""

MUTATORS = {"clear", "pop", "popitem", "setdefault", "update", "__setitem__", "__delitem__"}


def is_field(node: ast.expr) -> bool:
    """True for `access.users`, `self._access.users` and the like."""
    if not isinstance(node, ast.Attribute) or node.attr not in FIELDS:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in TABLES


def changes(tree: ast.AST) -> Iterator[int]:
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
            if is_field(one.value if isinstance(one, ast.Subscript) else one):
                yield node.lineno


def test_only_events_change_the_table_of_users(production: list[Any]) -> None:
    found = {
        f"{source.path}:{line}"
        for source in production
        if source.path.startswith(("libs/", "services/")) and source.path != HOME
        for line in changes(source.tree)
    }
    assert not found, "record an event instead"


def test_each_way_to_change_it_forgets_what_was_concluded(production: list[Any]) -> None:
    [home] = [source for source in production if source.path == HOME]
    functions = [node for node in ast.walk(home.tree) if isinstance(node, ast.FunctionDef)]
    changing = {one.name: one for one in functions if any(changes(one))}
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
    ],
)
def test_a_planted_change_is_found(text: str) -> None:
    assert list(changes(ast.parse(text)))


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
    assert not list(changes(ast.parse(text)))
