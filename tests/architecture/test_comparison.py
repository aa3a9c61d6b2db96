"""docs/comparison.md: every cell has a source; Kourou's cells name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

UNKNOWN = "not known"
LINK = re.compile(r"\[[^]]+\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def table(root: Path) -> list[list[str]]:
    page = (root / "docs/comparison.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def unsourced(cell: str) -> bool:
    """Has a cell neither a source on the web nor the word that there is none?"""
    links = LINK.findall(cell)
    return cell != UNKNOWN and not (links and all(one.startswith("https://") for one in links))


def test_it_compares_with_rocketmq_5_and_others(table: list[list[str]]) -> None:
    heads = table[0]
    assert heads[1] == "Kourou"
    assert {"RocketMQ 4.9", "RocketMQ 5"} <= set(heads)
    assert len(table) - 2 >= 12


def test_every_cell_of_another_product_has_a_source(table: list[list[str]]) -> None:
    bad = [f"{row[0]}: {cell}" for row in table[2:] for cell in row[2:] if unsourced(cell)]
    assert bad == []


def test_every_cell_of_kourou_names_tests(table: list[list[str]]) -> None:
    """That links lead to something is in test_links.py."""
    for row in table[2:]:
        links = LINK.findall(row[1])
        assert links, row[0]
        for link in links:
            assert re.fullmatch(r"\.\./tests/[\w/]+\.py", link), f"{row[0]}: {link} is no test"


def test_the_looks_see_what_they_look_for() -> None:
    assert unsourced("yes")
    assert unsourced("[yes](../README.md)")
    assert not unsourced("[yes](https://example.org/page)")
    assert not unsourced(UNKNOWN)
