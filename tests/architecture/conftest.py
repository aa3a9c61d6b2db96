"""The sources as data, for tests that read code instead of running it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {".git", ".venv", ".kourou-test", "__pycache__", "node_modules", "vendor", "dist"}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".yml", ".yaml", ".conf", ".properties", ""}


PROGRAMS = ("benchmarks/kourou_bench", "examples/demo")
RIGS = "tests/rigs"
"""Packages of a checkout that no wheel contains."""


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """The name by which it is imported."""
        parts = Path(self.path).with_suffix("").parts
        start = 1 if parts[0] in ("libs", "benchmarks") else 2
        names = parts[start:-1] if parts[-1] == "__init__" else parts[start:]
        return ".".join(names)


def targets(node: ast.AST) -> Iterator[str]:
    """What an import names, if the node is one; `from package import module` names both."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file names in any import."""
    for node in ast.walk(tree):
        yield from targets(node)


def _python_files(*tops: str) -> Iterator[Source]:
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not LEFT_OUT & set(path.parts):
                text = path.read_text(encoding="utf-8")
                yield Source(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def production() -> list[Source]:
    """Every module that is shipped, and those of benchmark, demo and test rigs."""
    return list(_python_files("libs", "services", *PROGRAMS, RIGS))


@pytest.fixture(scope="session")
def tests() -> list[Source]:
    """Every file of tests."""
    return [source for source in _python_files("tests") if not source.path.startswith(RIGS)]


@pytest.fixture(scope="session")
def every_python(production: list[Source], tests: list[Source]) -> list[Source]:
    """All Python files of the project."""
    others = [
        source
        for source in _python_files("docs", "benchmarks", "examples")
        if not source.path.startswith(PROGRAMS)
    ]
    return [*production, *tests, *others]


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Every text file of the project by its path, generated and golden ones included."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_visible_files())
        if path.suffix in TEXT_SUFFIXES
    }


def _visible_files() -> Iterator[Path]:
    """What lies in no hidden folder: in those is more than in all others, and it comes and goes."""
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [name for name in inside if _is_ours(name) and name != "golden"]
        yield from (Path(folder, name) for name in files if _is_ours(name))


def _is_ours(name: str) -> bool:
    return name not in LEFT_OUT and (not name.startswith(".") or name == ".ci")
