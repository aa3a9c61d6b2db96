"""The table of features, and what came of each scenario, as data."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.marks import ROW_FEATURES

FOLDER = Path(__file__).parent
FEATURES = FOLDER / "features.toml"
RESULTS = FOLDER / "results.json"
ROOT = FOLDER.parents[1]
PAGES = ("docs/mqadmin.md", "docs/reference/interop.md")
"""What is made from the results."""

PROVING = ("java", "mqadmin")
"""The clients whose scenarios prove the numbers of their rows."""


@dataclass(frozen=True)
class Row:
    """One feature, and the scenarios of each client that try it."""

    area: str
    title: str
    features: tuple[str, ...]
    scenarios: Mapping[str, tuple[str, ...]]


def read_rows() -> list[Row]:
    """In the order of the page."""
    return [
        Row(
            one["area"],
            one["title"],
            ROW_FEATURES.get(one["title"], ()),
            {client: tuple(one[client]) for client in read_clients() if client in one},
        )
        for one in _read()["row"]
    ]


def read_clients() -> dict[str, dict[str, str]]:
    """Each client's title and a sentence about it."""
    return dict(_read()["clients"])


def scenarios(client: str) -> dict[str, tuple[str, ...]]:
    """What a client tries, with the numbers that Kourou's server proves by it."""
    return {
        name: row.features if client in PROVING else ()
        for row in read_rows()
        for name in row.scenarios.get(client, ())
    }


@contextmanager
def locked(kind: int = fcntl.LOCK_SH) -> Iterator[None]:
    """Lock the results and their pages: one stage reads them while another writes them."""
    with FEATURES.open(encoding="utf-8") as file:
        fcntl.flock(file, kind)
        yield


def write_down(client: str, server: str, version: str, passed: Mapping[str, bool]) -> None:
    """Put what came of all scenarios of a client into the results, with the commit of this run.

    The pages that are made from them follow.
    """
    told = {"version": version, "commit": _commit(), "passed": dict(passed)}
    with locked(fcntl.LOCK_EX):
        known: dict[str, Any] = {}
        if RESULTS.exists():
            known = json.loads(RESULTS.read_text(encoding="utf-8"))
        known.setdefault(client, {})[server] = told
        RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        for page in PAGES:
            subprocess.run((sys.executable, ROOT / "docs" / "generate.py", page), check=True)


def written(client: str, server: str, scenario: str) -> bool | None:
    """What the results say of a scenario; None if it was never tried."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))
    passed: dict[str, bool] = known.get(client, {}).get(server, {}).get("passed", {})
    return passed.get(scenario)


def _commit() -> str:
    command = ("git", "-C", str(FOLDER), "rev-parse", "--short", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _read() -> dict[str, Any]:
    return tomllib.loads(FEATURES.read_text(encoding="utf-8"))
