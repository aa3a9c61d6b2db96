"""A follower's speed is computed as it is named, from the segments that hold what it missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou_bench.catch_up import (
    Caught,
    _copied,
    _segments,
    catch_up_figures,
)

FAST = Caught(80_000_000, 400_000_000, 1_600_000_000, 128_000_000, 250_000_000)
SLOW = Caught(80_000_000, 800_000_000, 800_000_000, 128_000_000, 2_000_000_000)


def test_figures_are_medians_and_ratios_those_of_a_round() -> None:
    found = {one.name: one.value for one in catch_up_figures("raft", [FAST, SLOW, FAST])}
    assert found == {
        "raft, catching up": pytest.approx(200.0),
        "raft, cp": pytest.approx(512.0),
        "raft, catching up / cp": pytest.approx(200 / 512),
        "raft, CPU of servers": pytest.approx(20.0),
    }
    assert list(catch_up_figures("raft", [])) == []


def test_the_segments_that_hold_what_was_missed_are_copied(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    for start in (0, 1_000, 2_000, 3_000):
        (log / f"{start:020}").write_bytes(b"x" * 1_000)
    found = _segments(tmp_path, 1_500, 3_000, 1_000)
    assert [int(one.name) for one in found] == [1_000, 2_000]
    copied, took_ns = _copied(found, tmp_path / "copy")
    assert copied == 2_000
    assert took_ns > 0
    assert sorted(one.name for one in (tmp_path / "copy").iterdir()) == [one.name for one in found]
