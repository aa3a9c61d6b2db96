"""What is said before the story begins."""

from __future__ import annotations

import pytest

from kourou.cli.demo.tour import too_few


@pytest.mark.parametrize(("found", "wanted"), [(10, None), (10, 10), (5, 5)])
def test_as_many_flights_as_asked_for_need_no_word(found: int, wanted: int | None) -> None:
    assert too_few(found, wanted) == ""


def test_more_flights_than_there_are_cannot_be_played() -> None:
    told = too_few(336_776, 400_000)
    assert told == "there are no more than 336,776 flights; all of them are played"
