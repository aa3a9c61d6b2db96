"""The demo as a newcomer runs it: every count agrees, and nobody needs RocketMQ's carrier."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FLIGHTS = 336_776
FEW = 1_000
SECONDS_MAX = 90
"""What the demo may take by its own clock, on two cores and with nothing else running."""

WORST_DAY = {
    "calls": 1_832,
    "out_of_order": 0,
    "retried": 34,
    "dead_letters": 472,
    "resent": 472,
    "reminders": 458,
    "early": 0,
    "tickets": 325,
    "unwanted_tickets": 0,
    "asked": 20,
}
"""Of 8 February 2013: 458 flights left, 34 more than an hour late, 472 were cancelled. Two thirds
of those got a ticket, and 10 more were booked by the desk that died."""


def demo(*options: str, tcp: str) -> tuple[list[str], dict[str, Any]]:
    """What it told, and its verdict, which is good."""
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", "demo", "--plain", "--json", *options],
        capture_output=True,
        text=True,
        env=os.environ | {"KOUROU_TCP_ENABLE": tcp},
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert done.stderr == "", "what fails on purpose does not reach the terminal"
    *told, verdict = done.stdout.splitlines()
    return told, json.loads(verdict)


@pytest.mark.feature("F178", "F183", "F213", "F221", "F224", "F248", "F252", "F254")
def test_a_small_demo_is_ok_without_the_tcp_carrier(tmp_path: Path) -> None:
    """Each act has all its parts; the numbers are those of the first day of the year."""
    told, verdict = demo("--events", str(FEW), "--keep", str(tmp_path / "kept"), tcp="false")
    assert "tcp" not in (tmp_path / "kept" / "namesrv.log").read_text().replace("tcp://", "")
    assert [line for line in told if line.startswith("== ")][1:-1] == [
        "== 1,000 flights of 2013, published and consumed by a group of two",
        "== one aircraft's day, by key: N216JB on 2013-01-01",
        "== back to the first flight of 2013-01-02 01:00, by store time",
        "== second act, the worst day: 2013-01-01, 842 flights, 4 cancelled",
        "== in order: 3,352 calls of the 838 flights that left, heard by two gates",
        "== retries and dead letters: 842 departures, 51 of them late, 4 cancelled",
        "== delays: 838 reminders for passengers, each after a while",
        "== transactions: a ticket for each cancelled flight, 1 of which find no seat",
    ]
    assert verdict.pop("redelivered") >= 0
    assert 1 <= verdict.pop("replayed") <= FEW
    assert verdict == {
        "published": FEW,
        "stored": FEW,
        "consumed_unique": FEW,
        "lost": 0,
        "queried": 4,
        "calls": 3_352,
        "out_of_order": 0,
        "retried": 51,
        "dead_letters": 4,
        "resent": 4,
        "reminders": 838,
        "early": 0,
        "tickets": 13,
        "unwanted_tickets": 0,
        "asked": 20,
        "ok": True,
    }


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_whole_demo_is_ok_three_times() -> None:
    """The last time nobody listens for RocketMQ's clients: the demo owes them nothing."""
    took = []
    for tcp in ("true", "true", "false"):
        lines, verdict = demo(tcp=tcp)
        print(f"{lines[-1]}: {verdict}")  # noqa: T201 - the counts are results of the test
        assert verdict["published"] == verdict["stored"] == verdict["consumed_unique"] == FLIGHTS
        assert (verdict["lost"], verdict["ok"]) == (0, True)
        assert verdict["redelivered"] >= 0
        assert verdict["queried"] >= 1
        assert 1 <= verdict["replayed"] < FLIGHTS
        assert {name: verdict[name] for name in WORST_DAY} == WORST_DAY
        closing = re.fullmatch(r"== ok after (\d+) s", lines[-1])
        assert closing, lines[-5:]
        took.append(int(closing[1]))
    assert max(took) < SECONDS_MAX, took
