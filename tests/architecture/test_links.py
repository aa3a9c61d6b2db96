"""Whatever a page points to is there: pages, headings, files, modules, features."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
MODULE = re.compile(r"`(kourou(?:_broker|_namesrv)?(?:\.\w+)+)`")
FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|toml|conf|yml|sh))`")
HISTORY = "CHANGELOG.md"
"""It tells of what was; names in it may be gone."""

SOURCE_ROOTS = (
    ".",
    "docs",
    "libs/kourou",
    "services",
    "services/broker",
    "services/console",
    "services/filter-server",
    "services/ha-replica",
    "services/namesrv",
    "services/spark-etl",
)
"""Where a path in a page may begin."""

SPAN_NAMES = "libs/kourou/telemetry/span_names.py"
"""Attributes of spans look like modules."""

OWN_FILE = re.compile(r"`(\w+\.py)`")


@pytest.fixture(scope="module")
def pages(texts: dict[str, str]) -> dict[str, str]:
    """Every page by its path, without its blocks of code."""
    return {path: CODE_BLOCK.sub("", text) for path, text in texts.items() if path.endswith(".md")}


def anchors(page: str) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them; a repeated one is numbered."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", page, re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def test_links_lead_to_pages_and_headings(root: Path, pages: dict[str, str]) -> None:
    broken = []
    for path, text in pages.items():
        for target in LINK.findall(text):
            if "://" in target:
                continue
            file, _, fragment = target.partition("#")
            place = (root / path).parent.joinpath(file).resolve() if file else root / path
            if not place.exists():
                broken.append(f"{path}: there is no {target}")
            elif fragment:
                other = pages.get(place.relative_to(root).as_posix(), "")
                if fragment not in anchors(other):
                    broken.append(f"{path}: {target}: there is no such heading")
    assert not broken, "\n".join(broken)


def test_every_row_of_a_table_has_a_cell_for_every_heading(pages: dict[str, str]) -> None:
    crooked = [
        f"{path}: {row[:90]}"
        for path, text in pages.items()
        for heading, row in rows(text)
        if cells(row) != cells(heading)
    ]
    assert not crooked, "\n".join(crooked)


def rows(page: str) -> Iterator[tuple[str, str]]:
    """(heading, row) of every table."""
    heading = ""
    for line in page.splitlines():
        if not line.startswith("|"):
            heading = ""
        elif not heading:
            heading = line
        else:
            yield heading, line


def cells(row: str) -> int:
    return len(re.sub(r"\\\||`[^`]*`", "", row).strip().strip("|").split("|"))


def resolves(name: str) -> bool:
    """Is this a module, or something in one?"""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise  # it is there, and something it needs is not
            continue
        for attribute in parts[count:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_modules_and_loggers_that_pages_name_are_there(
    pages: dict[str, str], texts: dict[str, str]
) -> None:
    loggers = {
        name
        for path, text in texts.items()
        if path.endswith(".py")
        for name in re.findall(r'getLogger\("([\w.]+)"\)', text)
    }
    attributes = set(re.findall(r'"(kourou\.[\w.]+)"', texts[SPAN_NAMES]))
    named = {
        (name, path)
        for path, text in pages.items()
        if path != HISTORY
        for name in MODULE.findall(text)
    }
    assert len(named) > 50, "the look sees nothing"
    assert [
        f"{path}: {name}"
        for name, path in sorted(named)
        if name not in loggers | attributes and not resolves(name)
    ] == []


def test_files_that_pages_name_are_there(root: Path, pages: dict[str, str]) -> None:
    named = {
        (name, path)
        for path, text in pages.items()
        if path != HISTORY
        for name in FILE.findall(text)
    }
    assert len(named) > 10, "the look sees nothing"
    missing = [
        f"{path}: {name}"
        for name, path in sorted(named)
        if not any((root / start / name).exists() for start in (*SOURCE_ROOTS, Path(path).parent))
    ]
    assert missing == []


def test_modules_that_the_pages_of_services_name_are_theirs(
    texts: dict[str, str], pages: dict[str, str]
) -> None:
    missing = []
    for path, text in pages.items():
        folder, _, name = path.rpartition("/")
        if not folder.startswith("services/") or name != "README.md":
            continue
        own = {Path(one).name for one in texts if one.startswith((f"{folder}/", "tests/"))}
        missing += [f"{path}: {one}" for one in OWN_FILE.findall(text) if one not in own]
    assert missing == []


def test_the_looks_see_what_they_look_for() -> None:
    assert anchors("# A `b` (c)!\n## Twice\n## Twice\n") == {"a-b-c", "twice", "twice-1"}
    assert LINK.findall("[a](b.md#c) and [d](<e>)") == ["b.md#c", "<e>"]
    assert [row for _, row in rows("| a | b |\n|---|---|\n| 1 |\n\nx\n")] == ["|---|---|", "| 1 |"]
    assert cells(r"| a \| b | `c|d` |") == 2
    assert resolves("kourou.engine.core.BrokerCore.handles")
    assert not resolves("kourou.engine.nothing")
    assert not resolves("kourou.engine.core.Nothing")
