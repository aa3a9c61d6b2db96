"""docs/reference/: the list of pages and their generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from generators import (
    errors,
    events,
    http,
    interop,
    limits,
    log_events,
    metrics,
    requests,
    settings,
    states,
)
from generators.tables import document, head, paragraph

FOLDER = "docs/reference"

_MADE_BY = {
    "settings": settings,
    "requests": requests,
    "errors": errors,
    "events": events,
    "metrics": metrics,
    "log-events": log_events,
    "states": states,
    "limits": limits,
    "http": http,
    "interop": interop,
}

ABOUT = """\
Reference pages, generated from tables in the code. A test fails when a page is not current."""


def _list(_root: Path) -> str:
    """The pages with the first sentence of each."""
    lines = head("Reference", ABOUT, "docs/generators")
    for name, module in _MADE_BY.items():
        first = " ".join(module.ABOUT.split()).split(". ")[0].rstrip(".")
        lines.append(paragraph(f"- [{name}.md]({name}.md): {first[0].lower()}{first[1:]}."))
    return document(lines)


PAGES: dict[str, Callable[[Path], str]] = {
    f"{FOLDER}/README.md": _list,
    **{f"{FOLDER}/{name}.md": module.page for name, module in _MADE_BY.items()},
}
