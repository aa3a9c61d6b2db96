"""Tests mirror sources: who changes a module knows where its tests are, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

UNIT = "tests/unit"

WITHOUT_TESTS_OF_THEIR_OWN: dict[str, str] = {
    "libs/kourou/core.py": "a contract without code",
    "libs/kourou/aggregate.py": "a contract; replay is proved by every aggregate",
    "libs/kourou/clock.py": "two lines over the machine's clocks",
    "libs/kourou/cli/checkout.py": "proved by every run of the checks",
    "libs/kourou/cli/check_stages.py": "a table; proved by test_checks.py",
    "libs/kourou/cli/commands.py": "arguments; proved by test_main.py and the integration tests",
    "libs/kourou/cli/services.py": "two calls; proved by the integration tests",
    "libs/kourou/cli/up.py": "processes and signals; proved by the integration tests",
    "libs/kourou/service/local_cluster.py": "processes; proved by the integration tests",
}
"""Modules whose behaviour is proved elsewhere, with where."""

DECLARATIONS = ("kourou.model", "kourou.protocol.messages")
"""Values without behaviour need no tests; where they have some, they have tests."""


def test_every_module_has_its_tests(production: list, root: Path) -> None:
    missing = [
        f"{source.path} has no {expected}"
        for source in production
        if is_module(source)
        and source.path not in WITHOUT_TESTS_OF_THEIR_OWN
        and not source.module.startswith(DECLARATIONS)
        and not any((root / (expected := where)).exists() for where in [test_of(source.module)])
    ]
    assert not missing, "\n".join(missing)


def test_every_unit_test_has_its_module(tests: list, production: list) -> None:
    folders: dict[str, set[str]] = {}
    for source in filter(is_module, production):
        test = Path(test_of(source.module))
        folders.setdefault(test.parent.as_posix(), set()).add(test.stem)
    strangers = [
        source.path
        for source in tests
        if source.path.startswith(UNIT)
        and Path(source.path).name.startswith("test_")
        and not belongs(Path(source.path), folders)
    ]
    assert not strangers, "\n".join(strangers)


def test_the_exceptions_exist(root: Path) -> None:
    assert [path for path in WITHOUT_TESTS_OF_THEIR_OWN if not (root / path).exists()] == []


def is_module(source: Any) -> bool:
    return not source.path.endswith(("__init__.py", "__main__.py"))


def test_of(module: str) -> str:
    """kourou.store.segment → tests/unit/store/test_segment.py; a service keeps its package name."""
    parts = module.split(".")
    inner = parts[1:] if parts[0] == "kourou" else parts
    return "/".join([UNIT, *inner[:-1], f"test_{inner[-1]}.py"])


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def belongs(path: Path, folders: dict[str, set[str]]) -> bool:
    """Is this a test of a module beside its mirror, perhaps one of several (test_record_v6.py)?"""
    known = folders.get(path.parent.as_posix(), set())
    return any(path.stem == stem or path.stem.startswith(f"{stem}_") for stem in known)


def test_the_mirror_shows_the_right_way() -> None:
    assert test_of("kourou.store.segment") == "tests/unit/store/test_segment.py"
    assert test_of("kourou_broker.app") == "tests/unit/kourou_broker/test_app.py"
    folders = {"tests/unit/store": {"test_segment"}}
    assert belongs(Path("tests/unit/store/test_segment_golden.py"), folders)
    assert not belongs(Path("tests/unit/store/test_segments.py"), folders)
