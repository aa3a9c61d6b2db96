"""How many situations of "Why?" are set up for real, each with the code that it must be told by?

They are counted of the tests beside this file, as these are written: a code counts where a test
waits until it is the first answer (`why`, `until`), or where an assertion compares answers with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kourou.client.explain.causes import CauseCode

HERE = Path(__file__).resolve()
WANTED = 25
"""So many are promised, each with its cause's code."""

ASKING = frozenset({"why", "until"})
CODES = frozenset(code.value for code in CauseCode)


def codes_in(node: ast.AST) -> Iterator[str]:
    """The codes that stand in this part of a test."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value in CODES:
            yield part.value


def proved_by(test: ast.FunctionDef) -> set[str]:
    """The codes that this test fails without."""
    found: set[str] = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ASKING:
            found.update(
                one.value
                for one in node.args
                if isinstance(one, ast.Constant) and one.value in CODES
            )
        elif isinstance(node, ast.Assert):
            for compared in ast.walk(node.test):
                if isinstance(compared, ast.Compare):
                    found.update(codes_in(compared))
    return found


def situations(text: str) -> dict[str, set[str]]:
    """The tests of a file that prove a code, and which."""
    tests = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    found = {one.name: proved_by(one) for one in tests if one.name.startswith("test_")}
    return {name: codes for name, codes in found.items() if codes}


def test_twenty_five_situations_are_set_up_for_real_each_with_its_code() -> None:
    files = [path for path in sorted(HERE.parent.glob("test_why*.py")) if path != HERE]
    by_test = {
        f"{path.name}::{name}": codes
        for path in files
        for name, codes in situations(path.read_text(encoding="utf-8")).items()
    }
    assert len(by_test) >= WANTED, sorted(by_test)
    proved = set().union(*by_test.values())
    assert len(proved) >= WANTED, f"nobody sets up {sorted(CODES - proved)}"


def test_a_code_counts_only_where_a_test_would_fail_without_it() -> None:
    counted = """
def helper():
    assert told == "stored"
def test_waits(why):
    '''expired'''
    told = why(send("delayed"), "consumed", "group")
    assert codes(told) == ["in_retry", "no_member"]
    assert sentence("redriven")
def test_nothing():
    send("stored")
"""
    assert situations(counted) == {"test_waits": {"consumed", "in_retry", "no_member"}}
