"""A comparison as a text table and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from kourou_bench.comparison import Cell, Result, median
from kourou_bench.rows import PEERS, Name, Row

NOTHING = "—"
GAP = "  "


def text_table(results: Sequence[Result], titles: Mapping[Name, str]) -> str:
    """A table of rows by systems; each peer's value is followed by Kourou's value divided by it.

    Below a row, if it was measured, is the CPU time per message of servers and client.
    """
    peers = [name for name in (*PEERS, Name.ITSELF) if any(name in one.cells for one in results)]
    head = ["work", "", titles[Name.KOUROU]]
    for peer in peers:
        head += [titles[peer], "×"]
    lines = [[*head, "goal", ""]]
    for result in results:
        row = result.row
        line = [row.about, row.unit, _value(result.cells[Name.KOUROU].median)]
        for peer in peers:
            cell = result.cells.get(peer)
            line += [_value(cell.median if cell else None), _ratio(result.ratio(peer))]
        judged = result.judged()
        verdict = "" if judged is None else "yes" if row.goal.reached(judged) else "NO"
        lines.append([*line, row.goal.text(row.unit), verdict])
        if median(result.cells[Name.KOUROU].server_us) is not None:
            line = ["  CPU of server + client per message", "µs", _cpu(result.cells[Name.KOUROU])]
            for peer in peers:
                line += [_cpu(result.cells.get(peer)), ""]
            lines.append([*line, "", ""])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [_aligned(line, widths) for line in lines]
    return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:]])


def notes(results: Sequence[Result], titles: Mapping[Name, str]) -> Iterator[str]:
    """Why cells are empty, and all failures, without duplicates."""
    record: set[str] = set()
    for result in results:
        for name, cell in result.cells.items():
            if cell.unsteady:
                yield f"{result.row.name}: {cell.unsteady} ({titles[name]})"
            reasons = [f"NOT MEASURED: {cell.absent}"] if cell.absent else []
            reasons += [f"FAILED: {failure}" for failure in cell.failures]
            for reason in reasons:
                line = f"{reason} ({titles[name]})"
                if line not in record:
                    record.add(line)
                    yield line


def json_lines(results: Sequence[Result], settings: Mapping[str, object]) -> Iterator[str]:
    """One line per value: the median of each system, and each ratio."""
    for result in results:
        row = result.row
        for name, cell in result.cells.items():
            label = f"{row.name} {name}"
            record = {**settings, "work": _work(row, name), "unsteady": cell.unsteady}
            yield _json(label, row.unit, cell.median, cell.values, cell.absent, record)
            for side, spent in (("server", cell.server_us), ("client", cell.client_us)):
                if median(spent) is not None:
                    cpu = f"{label} {side} CPU"
                    yield _json(cpu, "µs/msg", median(spent), spent, "", record)
            if name is not Name.KOUROU:
                label = f"{row.name} {Name.KOUROU}/{name}"
                ratios = result.ratios(name)
                yield _json(label, "×", result.ratio(name), ratios, cell.absent, record)


def _work(row: Row, name: Name) -> dict[str, object]:
    """The parameters of the workload that apply to its kind."""
    work = row.works.get(name)
    return {} if work is None else {key: one for key, one in asdict(work).items() if one}


def _json(
    name: str,
    unit: str,
    value: float | None,
    rounds: Sequence[float | None],
    absent: str,
    settings: Mapping[str, object],
) -> str:
    figure: dict[str, object] = {
        "name": name,
        "unit": unit,
        "value": None if value is None else round(value, 4),
        "rounds": [None if one is None else round(one, 4) for one in rounds],
        "settings": dict(settings),
    }
    if absent:
        figure["not_measured"] = absent
    return json.dumps(figure, ensure_ascii=False)


def _value(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cpu(cell: Cell | None) -> str:
    server, client = (
        (None, None) if cell is None else (median(cell.server_us), median(cell.client_us))
    )
    return NOTHING if server is None or client is None else f"{server:.1f}+{client:.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """Text is left-aligned, numbers are right-aligned."""
    words = {0, 1, len(line) - 2, len(line) - 1}
    parts = [
        text.ljust(width) if column in words else text.rjust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return GAP.join(parts).rstrip()
