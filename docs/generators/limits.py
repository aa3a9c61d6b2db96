"""docs/reference/limits.md: every limit with its value and its reason."""

from __future__ import annotations

import re
from pathlib import Path

from generators.tables import code, document, head, table

from kourou.model import limits

SOURCE = "libs/kourou/model/limits.py"

ABOUT = """\
Sizes, counts and times beyond which Kourou refuses a request, disconnects a peer or truncates a
value. *RMQ* marks limits that RocketMQ's formats or clients require."""


def page(root: Path) -> str:
    """The complete page, in the order of the source."""
    lines = head("Limits", ABOUT, SOURCE)
    rows: list[tuple[str, str, str]] = []
    for line in (root / SOURCE).read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"# -- (.+?) -+", line):
            lines += _table(rows)
            rows = []
            lines += [f"## {heading[1].capitalize()}", ""]
        elif limit := re.fullmatch(r"([A-Z][A-Z0-9_]+) = ([^#]+?)(?:  # (.*))?", line):
            value: int | float = getattr(limits, limit[1])
            reason = (limit[3] or "").replace("[RMQ]", "*RMQ*")
            rows.append((code(limit[1]), f"{value:,}", reason))
    return document([*lines, *_table(rows)])


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    return table(("name", "value", "reason"), rows) if rows else []
