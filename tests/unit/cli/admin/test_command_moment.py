"""Times in every form that operators type, and how reports show them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kourou.cli.admin.command import moment_ms
from kourou.cli.admin.report import local_time
from kourou.errors import ConfigError

NOON_MS = 1_372_939_200_000  # 2013-07-04 12:00 UTC


@pytest.fixture(autouse=True)
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        str(NOON_MS),
        "2013-07-04T12:00:00+00:00",
        "2013-07-04T08:00",
        "2013-07-04 08:00:00",
        "2013-07-04#08:00:00:000",
    ],
)
def test_a_time_without_a_zone_is_local(text: str) -> None:
    assert moment_ms(text, now_ms=5) == NOON_MS


def test_now_is_now_and_milliseconds_count() -> None:
    assert moment_ms("now", now_ms=5) == 5
    assert moment_ms("2013-07-04#08:00:00:250", now_ms=5) == NOON_MS + 250


@pytest.mark.parametrize("text", ["", "yesterday", "2013-13-01", "2013-07-04#8", "-1", "१२"])
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        moment_ms(text, now_ms=5)


def test_timestamps_are_shown_in_local_time() -> None:
    assert local_time(NOON_MS + 7) == "2013-07-04 08:00:00.007-04:00"
    assert local_time(0) is None
