"""docs/style.md as a test: lengths, names, headers, words that must not stay."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

FUNCTION_LINES_MAX = 70
SPACE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
NAMESRV_LINES_MAX = 1_000

ATTICS = {"utils", "util", "common", "helpers", "helper", "manager", "impl", "misc", "base"}
"""Names of modules that say nothing about what is inside."""

LEFTOVERS: dict[str, str] = {
    r"\b(TOD[O]|FIXM[E]|XX[X])\b": "do it, or write an issue",
    r"NotImplementedErro[r]": "ship what works, or nothing",
    r"pragma: no cove[r]": "test it, or delete it",
    r"\btime\.slee[p]\(": "wait for what you wait for",
    r"unittest\.moc[k]|MagicMoc[k]": "write a fake and prove it by a contract test",
    r"/wor[k]/|/roo[t]/|/hom[e]/[a-z]+/|/far[m]/|/tm[p]/k\b": "a path of one machine",
    r"pyp[i]\.org|pythonhoste[d]|npmj[s]\.|repo1?\.mave[n]|crates\.i[o]": "a registry's host",
    r"\b[Hh]elper [A-Z]\b": "who wrote it is no part of it",
}
"""What must not stay in any file, and what to do instead; written so as not to match here."""

STATEFUL_LAYERS = ("kourou.engine", "kourou.store", "kourou.eventstore")
STATE_KINDS = re.compile(r"\b(log|projection|soft|none|no state|pure)\b", re.IGNORECASE)


def test_no_function_is_too_long(every_python: list) -> None:
    long = [
        f"{source.path}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
        for source in every_python
        for name, lines in function_lengths(source.tree)
        if lines > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_modules_are_named_after_what_they_hold(production: list) -> None:
    attics = [
        source.path
        for source in production
        if ATTICS & set(Path(source.path).with_suffix("").parts)
    ]
    assert not attics, "\n".join(attics)


def test_nothing_was_left_lying_about(texts: dict[str, str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:80]!r}: {advice}"
        for path, text in texts.items()
        for number, line, advice in leftovers(text)
    ]
    assert not found, "\n".join(found)


def test_stateful_modules_name_the_kind_of_their_state(production: list) -> None:
    unsaid = [
        source.path
        for source in production
        if source.module.startswith(STATEFUL_LAYERS)
        and keeps_state(source.tree)
        and not STATE_KINDS.search(ast.get_docstring(source.tree) or "")
    ]
    assert not unsaid, "\n".join(unsaid)


def test_tests_do_not_sleep(tests: list) -> None:
    sleeping = [f"{source.path}:{line}" for source in tests for line in sleeps(source.tree)]
    assert not sleeping, "\n".join(sleeping)


def test_every_silenced_check_says_why(production: list) -> None:
    bare = [
        f"{source.path}:{number}: {line.strip()}"
        for source in production
        for number, line in enumerate(source.text.splitlines(), 1)
        if silenced_without_reason(line)
    ]
    assert not bare, "\n".join(bare)


@pytest.mark.feature("F028")
def test_the_name_server_stays_tiny(production: list) -> None:
    own = [source for source in production if source.module.startswith("kourou_namesrv")]
    assert len(own) > 1, "the name server is not where this test looks"
    assert sum(lines_of_code(source.text) for source in own) < NAMESRV_LINES_MAX


# -- the looks, and small proofs that they see ----------------------------------------------------
def function_lengths(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def lines_of_code(text: str) -> int:
    """Lines with code on them: neither blank, nor comments, nor docstrings."""
    lines: set[int] = set()
    beginning = True  # of a statement: a string that stands there alone is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in SPACE:
            beginning = beginning or token.type == tokenize.NEWLINE
        elif not (beginning and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
            beginning = False
    return len(lines)


def leftovers(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in LEFTOVERS.items():
            if re.search(pattern, line):
                yield number, line, advice


def keeps_state(tree: ast.Module) -> bool:
    """Does a class here assign to its own attributes after it was made?"""
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for function in (item for item in kind.body if isinstance(item, ast.FunctionDef)):
            if function.name.startswith("__") and function.name != "__init__":
                continue
            for node in ast.walk(function):
                targets = node.targets if isinstance(node, ast.Assign) else []
                if any(_is_own_attribute(target) for target in targets):
                    return True
    return False


def _is_own_attribute(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def sleeps(tree: ast.Module) -> Iterator[int]:
    """Calls of something.sleep with anything but the constant 0."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "sleep"
            and not (
                node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            )
        ):
            yield node.lineno


def silenced_without_reason(line: str) -> bool:
    noqa = re.search(r"# (?:ruff: )?no" r"qa(?::\s*[A-Z0-9, ]+)?(.*)", line)
    if noqa:
        return not re.search(r"\w{3}", noqa[1])
    ignored = re.search(r"# type: ig" r"nore(?:\[[^\]]*\])?(.*)", line)
    return bool(ignored) and not re.search(r"\w{3}", ignored[1])


def test_the_looks_see_what_they_look_for() -> None:
    tree = ast.parse("def f():\n    x = 1\n    return x\n")
    assert list(function_lengths(tree)) == [("f", 3)]
    assert lines_of_code('"""Doc."""\n\n# why\nx = """a\nb"""\n') == 2
    assert [line for line, _, _ in leftovers("fine\n# " + "todo".upper() + " later\n")] == [2]
    assert list(sleeps(ast.parse("a.sleep(0)\na.sleep(1)\n"))) == [2]
    assert keeps_state(ast.parse("class A:\n def f(self):\n  self.x = 1\n"))
    assert not keeps_state(ast.parse("class A:\n x = 1\n"))
    assert silenced_without_reason("x = 1  # noqa: E501")
    assert not silenced_without_reason("x = 1  # noqa: E501 - a table")
    assert silenced_without_reason("x = 1  # type: ignore[misc]")
    assert not silenced_without_reason("x = 1  # type: ignore[misc]  # stubs say less")
