"""What is said before the story begins, and of its trace at the end."""

from __future__ import annotations

import pytest

from kourou_demo.followed import Traced
from kourou_demo.tour import lines_of, too_few

INDENT = 3
"""Columns before a note."""


@pytest.mark.parametrize(("found", "wanted"), [(10, None), (10, 10), (5, 5)])
def test_as_many_flights_as_asked_for_need_no_word(found: int, wanted: int | None) -> None:
    assert too_few(found, wanted) == ""


def test_more_flights_than_there_are_cannot_be_played() -> None:
    view = too_few(336_776, 400_000)
    assert view == "the data set has only 336,776 flights; using all of them"


def test_who_was_in_the_trace_is_told_in_lines_that_fit_a_terminal() -> None:
    services = [f"kourou-service-{number}" for number in range(12)]
    first, *others = lines_of(Traced("ab" * 16, {name: ["pull"] for name in services}, 1_234))
    assert first == f"trace {'ab' * 16} follows a few flights through all acts: 1,234 spans"
    assert len(others) > 1
    assert " ".join(others) == f"by {', '.join(services)}"
    assert max(map(len, [first, *others])) + INDENT <= 100


@pytest.mark.parametrize("traced", [Traced(), Traced("ab" * 16), Traced("ab" * 16, {})])
def test_of_a_trace_that_was_not_collected_here_nothing_is_told(traced: Traced) -> None:
    assert lines_of(traced) == []
