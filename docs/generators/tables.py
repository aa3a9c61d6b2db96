"""The common layout of the pages of docs/reference/: head, paragraphs, tables."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 118

_ELSEWHERE = re.compile(r"\s*\((?:fact sheet|See fact sheet)[^)]*\)|\s*Fact sheet [^.]*(?:\.|$)")


def head(title: str, about: str, *sources: str) -> list[str]:
    """The title, a description, and the sources (paths from the root)."""
    links = ", ".join(f"[{source}](../../{source})" for source in sources)
    return [
        f"# {title}",
        "",
        paragraph(about),
        "",
        f"*Generated from {links} by `.venv/bin/python docs/generate.py`: "
        "change those, not this page.*",
        "",
    ]


def paragraph(text: str) -> str:
    """A text wrapped to the width of the other pages; it may be a list item."""
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table and an empty line; every row has one cell per heading."""
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for row in rows:
        assert len(row) == len(headings), (headings, row)
        lines.append("| " + " | ".join(_cell(text) for text in row) + " |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A value formatted as code; empty for an empty value."""
    return f"`{text}`" if f"{text}" else ""


def anchor(heading: str) -> str:
    """The link fragment of a heading, as GitHub generates it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return "#" + kept.replace(" ", "-")


def link(text: str, heading: str, page: str = "") -> str:
    """A link to a heading of this page or of another one."""
    return f"[{text}]({page}{anchor(heading)})"


def prose(documented: object) -> str:
    """A docstring (or a text) as one paragraph, without references to external documents."""
    text = documented if isinstance(documented, str) else inspect.getdoc(documented) or ""
    return " ".join(_ELSEWHERE.sub("", text).split())


def sentence(documented: object) -> str:
    """The first paragraph of a docstring, likewise."""
    text = documented if isinstance(documented, str) else inspect.getdoc(documented) or ""
    return prose(text.split("\n\n", 1)[0])


def document(lines: Iterable[str]) -> str:
    """The text of the page."""
    return "\n".join(lines).rstrip("\n") + "\n"
