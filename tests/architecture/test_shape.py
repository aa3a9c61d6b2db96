"""The shape of the code base: modules with a reason, small folders, unique names, no circles.

What departs from a rule is listed in shape_exceptions.toml. These lists may only shrink: an entry
that is no longer needed fails its test, and so does a list whose length differs from its number in
EXCEPTIONS. Whoever shortens a list lowers its number, so no later change can refill it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.architecture.conftest import Source, imported, targets

LINES_MIN = 150
"""A module with a single importer is justified by this many lines of one subject."""

FOLDER_MODULES_MAX = 20

EXCEPTIONS: Mapping[str, int] = {
    "single_importers": 7,
    "large_folders": 0,
    "doubled_classes": 3,
    "ing_modules": 5,
    "forbidden_words": 0,
    "circles_of_types": 4,
}
"""The length of each list of exceptions."""

FORBIDDEN = frozenset(
    """
    acquit anew announced announcing begun blame carrier carriers course desk desks doubt doubts
    ears fate foreign grown handover hands heal healed healing jail judges lane lanes lend
    lender lends lent mend mended owe owed owing patience recording registrants seat settling
    sieve sift sifted standing strike strikes surroundings survey tells tenure told twins unsent
    untold upkeep verdicts walls wiring wish
    """.split()  # noqa: SIM905 - a list of words reads best as a text
)
"""Words of identifiers that the field does not use so: docs/glossary.md has its terms.

A word that also has an ordinary meaning in code (port, part, take, cut) is left to the reader.
"""


@pytest.fixture(scope="module")
def shipped(production: list[Source]) -> list[Source]:
    return [one for one in production if one.path.startswith(("libs/", "services/"))]


@pytest.fixture(scope="module")
def allowed(root: Path) -> dict[str, list[str]]:
    text = (root / "tests/architecture/shape_exceptions.toml").read_text("utf-8")
    return tomllib.loads(text)


def test_a_module_has_two_importers_or_one_large_subject(
    shipped: list[Source], allowed: dict[str, list[str]]
) -> None:
    compare("single_importers", single_importers(shipped), allowed)


def test_a_folder_has_at_most_twenty_modules(
    shipped: list[Source], allowed: dict[str, list[str]]
) -> None:
    folders = Counter(Path(one.path).parent.as_posix() for one in shipped if is_inner(one))
    compare("large_folders", {f for f, n in folders.items() if n > FOLDER_MODULES_MAX}, allowed)


def test_no_public_class_name_occurs_twice(
    shipped: list[Source], allowed: dict[str, list[str]]
) -> None:
    homes = Counter(
        node.name
        for one in shipped
        for node in one.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    compare("doubled_classes", {name for name, count in homes.items() if count > 1}, allowed)


def test_modules_are_named_by_nouns(shipped: list[Source], allowed: dict[str, list[str]]) -> None:
    compare("ing_modules", {m.module for m in shipped if m.module.endswith("ing")}, allowed)


def test_no_identifier_has_a_forbidden_word(
    shipped: list[Source], allowed: dict[str, list[str]]
) -> None:
    found = {
        f"{one.module}: {name}"
        for one in shipped
        for name in identifiers(one)
        if set(words(name)) & FORBIDDEN
    }
    compare("forbidden_words", found, allowed)


def test_modules_import_each_other_in_one_direction(
    shipped: list[Source], allowed: dict[str, list[str]]
) -> None:
    """Without exception for those that are executed; those for type checkers are listed."""
    executed = circles_among(shipped, {"load", "function"})
    assert not executed, "\n".join(sorted(executed))
    compare("circles_of_types", circles_among(shipped, {"load", "type"}), allowed)


def test_others_enter_a_brokers_core_by_its_door(shipped: list[Source]) -> None:
    """They give it inputs and read its view; its parts are the engine's."""
    outside = [one for one in shipped if not one.path.startswith("libs/kourou/engine/")]
    found = [f"{one.path}:{line}" for one in outside for line in uses_of_parts(one.tree)]
    assert not found, f"use the core's inputs or its view: {found}"


def test_the_core_asks_its_role_and_does_not_ask_which_it_is(shipped: list[Source]) -> None:
    (core,) = [one for one in shipped if one.path == "libs/kourou/engine/core.py"]
    found = list(questions_about_the_role(core.tree))
    assert not found, f"let the role decide, in lines {found}"


# -- looks, and small proofs that they see --------------------------------------------------------
def compare(title: str, found: Iterable[str], allowed: Mapping[str, list[str]]) -> None:
    """Fail for an unlisted find, for an exception without one, and for a changed number of them."""
    listed = allowed.get(title, [])
    new = sorted(set(found) - set(listed))
    gone = sorted(set(listed) - set(found))
    assert not new, f"{title}: against the rule: {new}"
    assert not gone, f"{title}: take these out of shape_exceptions.toml: {gone}"
    assert len(listed) == EXCEPTIONS[title], f"{title}: lower its number in EXCEPTIONS to match"


def is_inner(source: Source) -> bool:
    return not source.path.endswith(("__init__.py", "__main__.py"))


def single_importers(sources: list[Source]) -> set[str]:
    modules = {one.module for one in sources}
    users: dict[str, set[str]] = defaultdict(set)
    for one in sources:
        for target in imported(one.tree):
            if target in modules and target != one.module:
                users[target].add(one.module)
    return {
        one.module
        for one in sources
        if is_inner(one) and len(users[one.module]) == 1 and one.text.count("\n") < LINES_MIN
    }


def circles_among(sources: list[Source], kinds: set[str]) -> set[str]:
    """The circles of imports of these kinds between modules, `a <-> b` each."""
    inner = {one.module for one in sources if is_inner(one)}
    edges = {
        one.module: {
            target
            for kind, target in imports(one.tree)
            if kind in kinds and target in inner and target != one.module
        }
        for one in sources
        if is_inner(one)
    }
    return {" <-> ".join(circle) for circle in circles_of(edges)}


def imports(node: ast.AST, kind: str = "load") -> Iterator[tuple[str, str]]:
    """Each import of a file with its kind.

    `load`: executed when the file is loaded, `function`: inside a function, `type`: for type
    checkers only.
    """
    for child in ast.iter_child_nodes(node):
        inside = kind
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = "function"
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            inside = "type"
        yield from ((inside, target) for target in targets(child))
        yield from imports(child, inside)


def circles_of(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of two or more modules (Tarjan's algorithm, 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in edges[node]:
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            place = stack.index(node)
            group, stack[place:] = stack[place:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in edges:
        if node not in number:
            visit(node)
    return found


def identifiers(source: Source) -> Iterator[str]:
    yield source.module.rpartition(".")[2]
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> list[str]:
    """The words of an identifier in snake or camel case."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")


def uses_of_parts(tree: ast.Module) -> Iterator[int]:
    """Lines that import the parts of a core, or read them from a core or its session."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="kourou.engine.parts"):
                yield node.lineno
            case ast.Attribute(value=owner, attr="parts") if {"core", "session"} & set(
                words(last_name(owner))
            ):
                yield node.lineno


def questions_about_the_role(tree: ast.Module) -> Iterator[int]:
    """Lines that compare a role with None, or ask for its class."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=[ast.Constant(value=None)]):
                asked = left
            case ast.Call(func=ast.Name(id="isinstance" | "type"), args=[asked, *_]):
                pass
            case _:
                continue
        if {"role", "leading", "following", "leader", "follower"} & set(words(last_name(asked))):
            yield node.lineno


def last_name(node: ast.expr) -> str:
    """The last name of an expression: `core` of `self.session.core` and of `core()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return last_name(function)
        case _:
            return ""


def test_the_looks_see_what_they_look_for() -> None:
    assert words("_LentLease_key") == ["lent", "lease", "key"]
    assert circles_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles_of({"a": {"b"}, "b": set()}) == []
    small, large = (
        Source(f"libs/kourou/{name}.py", text, ast.parse(text))
        for name, text in (("a", "X = 1\n"), ("b", "X = 1\n" * LINES_MIN))
    )
    user = Source("libs/kourou/c.py", "", ast.parse("from kourou import a\nimport kourou.b\n"))
    assert single_importers([small, large, user]) == {"kourou.a"}
    text = "import a\nif TYPE_CHECKING:\n import b\ndef f():\n import c\nif x:\n import d\n"
    assert list(imports(ast.parse(text))) == [
        ("load", "a"),
        ("type", "b"),
        ("function", "c"),
        ("load", "d"),
    ]
    one, other = (
        Source(f"libs/kourou/{name}.py", text, ast.parse(text))
        for name, text in (("a", "import kourou.b\n"), ("b", "def f():\n import kourou.a\n"))
    )
    assert circles_among([one, other], {"load"}) == set()
    assert circles_among([one, other], {"load", "function"}) == {"kourou.a <-> kourou.b"}
    with pytest.raises(AssertionError, match="lower its number"):
        compare("large_folders", ["libs/x"], {"large_folders": ["libs/x"]})
    inside = "from kourou.engine.parts import A\nself._core.parts\nsession().parts\npath.parts\n"
    assert list(uses_of_parts(ast.parse(inside))) == [1, 2, 3]
    asks = "self._role is None\nisinstance(self.role, A)\nif role.leads: pass\ntype(item) is B\n"
    assert sorted(questions_about_the_role(ast.parse(asks))) == [1, 2]
    with pytest.raises(AssertionError, match="take these out"):
        compare("large_folders", [], {"large_folders": ["libs/x"]})
    with pytest.raises(AssertionError, match="against the rule"):
        compare("large_folders", ["libs/y"], {})
