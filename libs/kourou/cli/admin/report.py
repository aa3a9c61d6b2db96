"""What an administrative command found, as a table for people or JSON for programs.

Lives here: one shape for all answers. May not live here: questions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    """Rows under named columns, and remarks below them."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    remarks: list[str] = field(default_factory=list)

    def show(self, *, as_json: bool) -> None:
        """Print it; as JSON, one object a row, whose names are the columns."""
        if as_json:
            for row in self.rows:
                print(json.dumps(dict(zip(self.columns, row, strict=True))))
            return
        for line in self.lines():
            print(line)

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
