"""The result of an admin command, as a table or as JSON.

On a terminal the table has a frame; in a pipe it has aligned columns for tools such as `awk`.
`--json` prints one object per row, or `{"remark": …}` for a remark without rows. Brokers that did
not reply are named on standard error.

Bodies, keys, stacks and errors are texts of others: control characters in them are escaped, so that
they neither control a terminal nor look like another row.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kourou.telemetry.logs import printable


@dataclass(slots=True)
class Report:
    """Rows with named columns, and remarks below them; `failed` sets the exit code to 1.

    `missing` maps brokers that may have more rows to the reason why they did not reply. With
    `always_json` it is printed as JSON even without --json.
    """

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    remarks: list[str] = field(default_factory=list)
    failed: bool = False
    missing: Mapping[str, Exception] = field(default_factory=dict)
    always_json: bool = False

    def show(self, *, as_json: bool) -> None:
        """Print the report; as JSON, one object per row with the columns as keys."""
        for broker, error in self.missing.items():
            print(printable_lines(f"missing: {broker}: {error}"), file=sys.stderr, flush=True)
        if as_json or self.always_json:
            for row in self.rows:
                print(json.dumps(dict(zip(self.columns, row, strict=True))), flush=True)
            if not self.columns:
                for remark in self.remarks:
                    print(json.dumps({"remark": remark}), flush=True)
            return
        if self.rows and sys.stdout.isatty():
            self._show_framed()
            return
        for line in self.lines():
            print(line)

    def _show_framed(self) -> None:
        from rich.box import ROUNDED
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=ROUNDED, header_style="bold")
        for place, name in enumerate(self.columns):
            numbers = all(_is_number(row[place]) or row[place] is None for row in self.rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(_text(cell)) for cell in row))
        console = Console()
        console.print(table)
        for remark in self.remarks:
            console.print(Text(printable_lines(remark)))

    def lines(self) -> list[str]:
        """The table with aligned columns, numbers right-aligned, then the remarks."""
        lines: list[str] = []
        if self.rows:
            texts = [[_text(cell) for cell in row] for row in self.rows]
            widths = [
                max(len(row[place]) for row in (list(self.columns), *texts))
                for place in range(len(self.columns))
            ]
            lines.append(
                _line([name.ljust(width) for name, width in zip(self.columns, widths, strict=True)])
            )
            for row, cells in zip(self.rows, texts, strict=True):
                aligned = [
                    text.rjust(width) if _is_number(cell) else text.ljust(width)
                    for cell, text, width in zip(row, cells, widths, strict=True)
                ]
                lines.append(_line(aligned))
        return lines + [printable_lines(remark) for remark in self.remarks]


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cells).rstrip()


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return printable(str(cell))


def local_time(timestamp_ms: int) -> str | None:
    """A timestamp as local time; None for 0, which means that there is none."""
    if timestamp_ms <= 0:
        return None
    local = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return local.isoformat(sep=" ", timespec="milliseconds")


def printable_lines(text: str) -> str:
    """Escape control characters in a text of several lines, which stay; a tab becomes spaces."""
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))
