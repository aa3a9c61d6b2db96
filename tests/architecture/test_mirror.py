"""Tests mirror sources: who changes a module knows where its tests are, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.architecture.conftest import imported

UNIT = "tests/unit"

DECLARATIONS = (
    "kourou.model",
    "kourou.protocol.messages",
    "kourou.eventstore.migrations",
    "kourou_spark_etl.read_model.migrations",
)
"""Values without behaviour, and migrations, are proved by whatever uses them."""

CONTRACTS = (
    "kourou.runtime",
    "kourou.version",
)
"""Protocols and values, proved by whatever implements or uses them."""

STARTED = (
    "kourou_namesrv.app",
    "kourou_broker.app",
    "kourou_ha_replica.app",
    "kourou_filter_server.app",
    "kourou_filter_server.sandbox.zygote",
    "kourou_spark_etl.app",
)
"""What tests run as processes."""

PROVED_BY_PROCESSES = ("kourou.cli", "kourou_bench", "kourou_demo", "kourou.service.local_cluster")
"""What starts and watches processes is proved by the integration tests, too."""


def test_every_module_is_proved_by_tests_of_its_own_package(
    production: list[Any], tests: list[Any], root: Path
) -> None:
    """By its mirror, by a test that imports it, or through a module of its package that is."""
    modules = {source.module: source for source in production if is_module(source)}
    proved = {name for name in modules if (root / test_of(name)).exists()} | set(STARTED)
    proved |= {name for test in tests for name in imported(test.tree) if name in modules}
    kit = [modules[name] for name in proved if name.startswith(("kourou.testing", "kourou_rigs"))]
    proved |= {name for source in kit for name in imported(source.tree) if name in modules}
    grown = True
    while grown:
        through = {
            name
            for owner in proved
            for name in imported(modules[owner].tree)
            if name in modules and name.rpartition(".")[0] == owner.rpartition(".")[0]
        }
        grown = not through <= proved
        proved |= through
    missing = [
        f"{source.path}: no test knows it; its place is {test_of(name)}"
        for name, source in modules.items()
        if name not in proved
        and not name.startswith((*DECLARATIONS, *CONTRACTS, *PROVED_BY_PROCESSES))
    ]
    assert not missing, "\n".join(missing)


def test_every_unit_test_has_its_module(tests: list[Any], production: list[Any]) -> None:
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


def is_module(source: Any) -> bool:
    return not source.path.endswith(("__init__.py", "__main__.py"))


def test_of(module: str) -> str:
    """kourou.store.log.commit_log → tests/unit/store/log/test_commit_log.py."""
    parts = module.split(".")
    inner = parts[1:] if parts[0] == "kourou" else parts
    return "/".join([UNIT, *inner[:-1], f"test_{inner[-1]}.py"])


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects by name


def belongs(path: Path, folders: dict[str, set[str]]) -> bool:
    """Is this a test of a module beside its mirror, perhaps one of several (test_record_v6.py)?"""
    known = folders.get(path.parent.as_posix(), set())
    return any(path.stem == stem or path.stem.startswith(f"{stem}_") for stem in known)


def test_the_mirror_shows_the_right_way() -> None:
    assert test_of("kourou.store.log.commit_log") == "tests/unit/store/log/test_commit_log.py"
    assert test_of("kourou_broker.app") == "tests/unit/kourou_broker/test_app.py"
    folders = {"tests/unit/store": {"test_segment"}}
    assert belongs(Path("tests/unit/store/test_segment_golden.py"), folders)
    assert not belongs(Path("tests/unit/store/test_segments.py"), folders)
