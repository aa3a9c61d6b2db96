"""What an administrative command found, as a table for people or JSON for programs.

A terminal gets a table with a frame; a pipe gets aligned columns, which `awk` takes apart; `--json`
gives one object a row, or `{"remark": …}` where there is nothing but words. Who did not answer is
named on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    """Rows under named columns, and remarks below them; `failed` makes the exit code 1.

    `missing` names brokers that may have more rows, and why they told nothing.
    """

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    remarks: list[str] = field(default_factory=list)
    failed: bool = False
    missing: Mapping[str, Exception] = field(default_factory=dict)

    def show(self, *, as_json: bool) -> None:
        """Print it; as JSON, one object a row, whose names are the columns."""
        for broker, error in self.missing.items():
            print(f"missing: {broker}: {error}", file=sys.stderr, flush=True)
        if as_json:
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
            console.print(Text(remark))

    def lines(self) -> list[str]:
        """The table with aligned columns, numbers to the right, then the remarks."""
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
        return lines + list(self.remarks)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cells).rstrip()


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)
