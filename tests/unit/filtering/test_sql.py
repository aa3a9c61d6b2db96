"""The door to filters: compiled once, bounded, and counting what cannot be compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.errors import Code, Rejected
from kourou.filtering import sql
from kourou.filtering.sql import Unmatchable, compiled, sql_filter
from kourou.filtering.sql_grammar import parse


@pytest.mark.feature("F237")
def test_a_filter_chooses_by_properties():
    status = sql_filter("status = 1")
    assert status.matches(b"status\x011")
    assert not status.matches(b"status\x012")
    assert not status.matches(b"status\x01one"), "what cannot be compared does not match"
    assert not status.matches(b"")


def test_only_what_is_true_matches():
    for text in ("a", "NULL", "FALSE", "b = 1"):
        assert not sql_filter(text).matches(b"a\x01true")


def test_a_text_is_compiled_once():
    assert sql_filter("a = 1 AND b = 2") is sql_filter("a = 1 AND b = 2")


def test_a_refusal_is_remembered_and_new_every_time():
    """A client may bring the same wrong text with every pull."""
    errors = []
    for _ in range(2):
        with pytest.raises(Rejected, match="at position 5") as refused:
            sql_filter("a = @")
        errors.append(refused.value)
    assert errors[0] is not errors[1]
    assert errors[0].wire_code == Code.SUBSCRIPTION_PARSE_FAILED
    assert sql._remembered.cache_info().maxsize is not None


def test_a_text_has_a_limit():
    with pytest.raises(Rejected, match="at most 16384"):
        sql_filter("a = 1" + " " * 16_384)


def test_a_predicate_says_what_cannot_be_compared():
    predicate = sql_filter("a > 5").predicate()
    assert predicate.names == (b"a",)
    verdicts = [predicate((text,)) for text in (b"6", b"x", b"5", None, b"7.5", b"70")]
    assert verdicts == [True, None, False, False, None, True]
    assert "7.5" in predicate.reason
    assert predicate.failed == 0, "its caller counts"


PAGE = Path(__file__).parents[3] / "docs/formats/sql-filter.md"


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table below a heading of the page."""
    part = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def test_the_examples_of_the_page() -> None:
    examples = rows("Examples")
    assert len(examples) == 14
    for text, properties, verdict in examples:
        pairs = re.findall(r"`(\w+)=([^`]*)`", properties)
        raw = "".join(f"\x02{name}\x01{value}" for name, value in pairs).encode()
        try:
            found = str(compiled(parse(text.strip("`"))).evaluate_stored(raw)).lower()
        except Unmatchable:
            found = "cannot be compared"
        assert found.replace("none", "unknown") == verdict, text


def test_the_page_lists_what_rocketmq_takes_and_we_refuse() -> None:
    for text, rest in rows("Differences to RocketMQ"):
        with pytest.raises(Rejected):
            parse(text.strip("`"))
        parse(rest.strip("`"))
