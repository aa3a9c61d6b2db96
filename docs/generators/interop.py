"""docs/reference/interop.md: third-party clients, and their test results with Kourou's servers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generators.tables import document, head, paragraph, table

SOURCES = ("tests/interop/features.toml", "tests/interop/results.json")

ABOUT = """\
Test results of unchanged RocketMQ clients with Kourou's servers and with RocketMQ's. The same
programs run against both with the same settings; the run on RocketMQ validates the programs."""

HOW = """\
Each cell stands for one or more scenarios of tests/interop: ✓ all of them passed in the last
complete slow run, ✗ one failed, *not tried* the client lacks the feature or was not tested. The
commit is that of the run. `./kourou test interop` runs every scenario on Kourou and fails if a
result differs from its cell; `./kourou test interop --slow` also runs them on RocketMQ and records
the results."""

NAMES = {"kourou": "Kourou", "rocketmq": "RocketMQ"}


def page(root: Path) -> str:
    """The clients, and a table for each area."""
    wanted = tomllib.loads((root / SOURCES[0]).read_text(encoding="utf-8"))
    results = json.loads((root / SOURCES[1]).read_text(encoding="utf-8"))
    clients: dict[str, dict[str, str]] = wanted["clients"]
    columns = [(client, server) for client in clients for server in NAMES]
    lines = [*head("Interoperation", ABOUT, *SOURCES), paragraph(HOW), ""]
    lines += table(
        ("client", "", *NAMES.values()),
        [
            (told["title"], told["about"], *_sums(results.get(client, {})))
            for client, told in clients.items()
        ],
    )
    for area in dict.fromkeys(row["area"] for row in wanted["row"]):
        rows = [row for row in wanted["row"] if row["area"] == area]
        tried = [one for one in columns if any(one[0] in row for row in rows)]
        lines += [f"## {area}", ""]
        lines += table(
            ("", *(f"{clients[client]['short']}: {NAMES[server]}" for client, server in tried)),
            [(row["title"], *_cells(row, tried, results)) for row in rows],
        )
        for one in wanted["apart"]:
            if one["area"] == area:
                link = f"[{one['test']}](../../{one['test']})"
                lines += [paragraph(f"Apart from the table: {one['about']} ({link})"), ""]
    return document(lines)


def _sums(told: dict[str, Any]) -> Iterator[str]:
    """The number of passed scenarios on each server."""
    for server, name in NAMES.items():
        known = told.get(server)
        if known is None:
            yield "not run"
        else:
            passed = known["passed"].values()
            yield (
                f"{sum(passed)} of {len(passed)} on {name} {known['version']}, "
                f"commit {known['commit']}"
            )


def _cells(
    row: dict[str, Any], columns: list[tuple[str, str]], results: dict[str, Any]
) -> Iterator[str]:
    for client, server in columns:
        passed = results.get(client, {}).get(server, {}).get("passed", {})
        names = row.get(client, ())
        if not names or any(name not in passed for name in names):
            yield "not tried"
        else:
            yield "✓" if all(passed[name] for name in names) else "✗"
