"""Updates the tables of results in benchmarks/README.md: rows of this run replace earlier ones.

There are two tables: the comparison with RocketMQ 4.9 (`peers`), which is the source of the table
in README.md, and the one with all other peers (`others`). A row that was not measured is kept.
Losses are written in the same way as gains.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kourou.errors import ConfigError
from kourou_bench.comparison import Cell, Result, median
from kourou_bench.rows import ROWS, Name

END = "<!-- /results -->"
NOTHING = "–"
FIRST = Name.ROCKETMQ
"""The peer of the first table."""

CPU = "CPU µs a message, server + client"


def write_results(
    page: Path,
    results: Sequence[Result],
    titles: Mapping[Name, str],
    *,
    machine: str,
    command: str,
    date: datetime.date,
) -> None:
    """Write the results into the page; raises ConfigError if it has no block for them."""
    text = page.read_text(encoding="utf-8")
    conditions = f"on {machine}; to repeat all rows: `{command}`"
    peer = titles.get(FIRST, "RocketMQ")
    columns = ("work", "Kourou", peer, "ratio", "spread", f"{CPU}: Kourou", f"{peer}", "measured")
    first: dict[tuple[str, ...], tuple[str, ...]] = {
        (f"`{one.row.name}`",): (f"`{one.row.name}`", *_cells(one, FIRST), str(date))
        for one in results
        if _is_there(one, FIRST)
    }
    text = _replaced(text, "peers", columns, 1, first, conditions)
    columns = ("work", "peer", "Kourou", "peer's", "ratio", "spread", f"{CPU}: Kourou", "peer")
    others: dict[tuple[str, ...], tuple[str, ...]] = {}
    for one in results:
        for name in _others(one):
            key = (f"`{one.row.name}`", NOTHING if name is None else titles.get(name, name))
            others[key] = (*key, *_cells(one, name), str(date))
    text = _replaced(text, "others", (*columns, "measured"), 2, others, conditions)
    page.write_text(text, encoding="utf-8")


def rows_lost(page: Path) -> list[str]:
    """The rows of the first table in which the peer is better, else raise ConfigError."""
    more_is_better = {row.name: row.goal.at_least for row in ROWS}
    lost = []
    for name, _, _, ratio, *_ in _rows(_block(page.read_text(encoding="utf-8"), "peers")[1], 8):
        better = more_is_better.get(name.strip("`"))
        if better is not None and (float(ratio) < 1 if better else float(ratio) > 1):
            lost.append(name.strip("`"))
    if not lost:
        raise ConfigError(f"{page.name} has no row in which the peer is better")
    return lost


def _is_there(result: Result, peer: Name) -> bool:
    """True if both systems were measured."""
    return bool(result.ratios(peer))


def _others(result: Result) -> Iterator[Name | None]:
    """The peers of the second table; None stands for a row of Kourou alone."""
    for name in result.cells:
        if name not in {Name.KOUROU, FIRST} and _is_there(result, name):
            yield name
    if set(result.row.works) == {Name.KOUROU} and result.cells[Name.KOUROU].median is not None:
        yield None


def _cells(result: Result, peer: Name | None) -> tuple[str, ...]:
    unit = result.row.unit
    ours = result.cells[Name.KOUROU]
    if peer is None:
        return (_figure(ours, unit), *[NOTHING] * 3, _cpu(ours), NOTHING)
    theirs, ratios = result.cells[peer], result.ratios(peer)
    return (
        _figure(ours, unit),
        _figure(theirs, unit),
        f"{median(ratios):.2f}",
        f"{min(ratios):.2f}–{max(ratios):.2f}",
        _cpu(ours),
        _cpu(theirs),
    )


def _figure(cell: Cell, unit: str) -> str:
    value = cell.median
    assert value is not None
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown} {unit}" + (" (not steady)" if cell.unsteady else "")


def _cpu(cell: Cell) -> str:
    server, client = median(cell.server_us), median(cell.client_us)
    if server is None or client is None:
        return NOTHING
    return f"{server:.1f} + {client:.1f}"


# -- the page -------------------------------------------------------------------------------------
def _replaced(
    text: str,
    name: str,
    columns: Sequence[str],
    keys: int,
    fresh: Mapping[tuple[str, ...], tuple[str, ...]],
    conditions: str,
) -> str:
    """The page with the new rows of one table; unchanged if there are none."""
    begin = f"<!-- results: {name} -->"
    found = _block(text, name)
    if not fresh:
        return text
    rows = {row[:keys]: row for row in _rows(found[1], len(columns))} | dict(fresh)
    place = {f"`{row.name}`": number for number, row in enumerate(ROWS)}
    ordered = sorted(rows.values(), key=lambda row: (place.get(row[0], len(place)), row[1]))
    measured = f"Measured {_span(row[-1] for row in ordered)} {conditions}"
    lines = [begin, measured, "", _line(columns), _line(["---"] * len(columns))]
    return text.replace(found[0], "\n".join([*lines, *map(_line, ordered), END]))


def _block(text: str, name: str) -> re.Match[str]:
    """One table of the page; group 1 is the text between its markers."""
    begin = f"<!-- results: {name} -->"
    found = re.search(re.escape(begin) + r"\n(.*?)" + re.escape(END), text, re.DOTALL)
    if found is None:
        raise ConfigError(f"the page has no block from {begin} to {END}")
    return found


def _span(dates: Iterable[str]) -> str:
    ordered = sorted(dates)
    first, last = ordered[0], ordered[-1]
    return first if first == last else f"{first} to {last}"


def _rows(block: str, columns: int) -> Iterator[tuple[str, ...]]:
    for line in block.splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if line.startswith("| `") and len(cells) == columns:
            yield cells


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
