"""Which test claims to prove which feature, read from the tests' sources without running them.

Lives here: finding `pytest.mark.feature(...)`. May not live here: judging whether a test passed.

A mark counts wherever pytest would see it: on a function, on a class, in a module's `pytestmark`, or
on single parameters. Its numbers must be written out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """One feature number on one test, class or module (`path::Class::test`)."""

    number: str
    test: str
    slow: bool = False


def find_marks(root: Path) -> list[Mark]:
    """Every mark under tests/, sorted."""
    found: set[Mark] = set()
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        found.update(marks_of(ast.parse(path.read_text(encoding="utf-8")), name))
    return sorted(found)


def marks_of(tree: ast.Module, name: str) -> Iterator[Mark]:
    """The marks of one module."""
    yield from _marks_of_scope(tree.body, name, slow=False)


def _marks_of_scope(body: list[ast.stmt], owner: str, *, slow: bool) -> Iterator[Mark]:
    plain = [item for item in body if not isinstance(item, _NAMED)]
    slow = slow or any(_mentions(item, "slow") for item in plain)
    for item in plain:
        yield from (Mark(number, owner, slow) for number in _numbers(item))
    for item in body:
        if not isinstance(item, _NAMED):
            continue
        inner = f"{owner}::{item.name}"
        inner_slow = slow or any(_mentions(mark, "slow") for mark in item.decorator_list)
        for decorator in item.decorator_list:
            yield from (Mark(number, inner, inner_slow) for number in _numbers(decorator))
        if isinstance(item, ast.ClassDef):
            yield from _marks_of_scope(item.body, inner, slow=inner_slow)


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _numbers(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and _is_mark(call.func, "feature"):
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"line {call.lineno}: feature numbers must be written out")
                yield argument.value


def _mentions(node: ast.AST, mark: str) -> bool:
    return any(_is_mark(item, mark) for item in ast.walk(node))


def _is_mark(node: ast.AST, mark: str) -> bool:
    """Is this the expression `….mark.<mark>`?"""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == mark
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )
