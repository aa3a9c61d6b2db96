"""The verdict is ok only when every number agrees with another one."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kourou_demo.ledger import Ledger, LedgerWriter
from kourou_demo.picture import MemberPicture, Picture, TablePicture
from kourou_demo.verdict import GroupOfThree, LateArrivals, Numbers, SparkTables, WorstDay
from kourou_demo.view import LINES_EVERY, LiveView, PlainView, View

GOOD = Numbers(
    events=100,
    published=100,
    stored=100,
    consumed_unique=100,
    redelivered=7,
    queried=5,
    queried_expected=5,
    replayed=20,
    replayed_expected=20,
    worst_day=WorstDay(
        calls=40,
        calls_expected=40,
        retried=3,
        retried_expected=3,
        dead_letters=4,
        dead_letters_expected=4,
        resent=4,
        reminders=10,
        reminders_expected=10,
        tickets=8,
        tickets_expected=8,
        asked=2,
        asked_expected=2,
    ),
    late_arrivals=LateArrivals(
        late=9,
        late_expected=9,
        late_bytes=90,
        overnight=6,
        overnight_expected=6,
        overnight_bytes=60,
        bytes_in_all=1_000,
    ),
    group=GroupOfThree(
        expected=50,
        acknowledged=50,
        stored=50,
        redelivered=2,
        failover_ms=1_300,
        epoch_before=1,
        epoch_after=3,
        logs_are_equal=True,
    ),
    spark=SparkTables(rows=100, while_sent=80, totals=144, totals_right=144),
)


def test_agreeing_numbers_are_ok() -> None:
    assert GOOD.disagreements() == []
    found = json.loads(GOOD.as_json())
    promised = {
        "published": 100,
        "stored": 100,
        "consumed_unique": 100,
        "redelivered": 7,
        "lost": 0,
        "queried": 5,
        "replayed": 20,
        "calls": 40,
        "out_of_order": 0,
        "retried": 3,
        "dead_letters": 4,
        "resent": 4,
        "reminders": 10,
        "early": 0,
        "tickets": 8,
        "unwanted_tickets": 0,
        "asked": 2,
        "late": 9,
        "overnight": 6,
        "raft_acknowledged": 50,
        "raft_lost": 0,
        "raft_stored_twice": 0,
        "raft_redelivered": 2,
        "raft_failover_ms": 1_300,
        "raft_epochs": [1, 3],
        "raft_lag_bytes": 0,
        "raft_logs_equal": True,
        "spark_rows": 100,
        "spark_rows_while_sent": 80,
        "spark_duplicates": 0,
        "aggregates_match": True,
        "spark_left_out": None,
        "trace_id": None,
        "trace_services": None,
        "ok": True,
    }
    assert list(found.items()) == list(promised.items()), "in the order that is promised"


@pytest.mark.parametrize(
    "change",
    [
        {"published": 99, "stored": 99, "consumed_unique": 99, "spark": SparkTables(left_out="x")},
        {"stored": 101},
        {"consumed_unique": 99},
        {"consumed_unique": 101},
        {"queried": 4},
        {"queried": 0, "queried_expected": 0},
        {"replayed": 19},
        {"replayed": 0, "replayed_expected": 0},
        {"faults": ["the broker did not stop"]},
    ],
)
def test_any_disagreement_is_not_ok(change: dict[str, object]) -> None:
    bad = replace(GOOD, **change)
    assert bad.disagreements()
    assert json.loads(bad.as_json())["ok"] is False


WRONG_IN_AN_ACT: dict[str, list[dict[str, int]]] = {
    "worst_day": [
        {"calls": 39},
        {"calls": 41},
        {"calls": 0, "calls_expected": 0},
        {"out_of_order": 1},
        {"retried": 2},
        {"retried": 0, "retried_expected": 0},
        {"dead_letters": 3},
        {"dead_letters": 5},
        {"dead_letters": 0, "dead_letters_expected": 0, "resent": 0},
        {"resent": 3},
        {"reminders": 9},
        {"reminders": 0, "reminders_expected": 0},
        {"early": 1},
        {"tickets": 7},
        {"tickets": 9},
        {"tickets": 0, "tickets_expected": 0},
        {"unwanted_tickets": 1},
        {"asked": 1},
        {"asked": 0, "asked_expected": 0},
    ],
    "late_arrivals": [
        {"late": 8},
        {"late": 10},
        {"late": 0, "late_expected": 0},
        {"late_bytes": 1_000},
        {"overnight": 5},
        {"overnight": 7},
        {"overnight": 0, "overnight_expected": 0},
        {"overnight_bytes": 1_000},
    ],
    "group": [
        {"acknowledged": 49, "stored": 49},
        {"acknowledged": 51, "stored": 51},
        {"expected": 0, "acknowledged": 0, "stored": 0},
        {"lost": 1},
        {"stored": 49},
        {"stored": 51},
        {"failover_ms": 0},
        {"epoch_after": 1},
        {"epoch_before": 0},
        {"lag_bytes": 7},
        {"logs_are_equal": False},
    ],
    "spark": [
        {"rows": 99},
        {"rows": 101},
        {"duplicates": 1},
        {"missing": 1},
        {"strange": 1},
        {"totals_right": 143},
        {"totals": 0, "totals_right": 0},
    ],
}


@pytest.mark.parametrize(
    ("act", "change"),
    [(act, change) for act, changes in WRONG_IN_AN_ACT.items() for change in changes],
)
def test_any_disagreement_of_one_act_is_not_ok(act: str, change: dict[str, int]) -> None:
    wrong = replace(getattr(GOOD, act), **change)
    bad = replace(GOOD, **{act: wrong})
    assert len(bad.disagreements()) == 1
    view = json.loads(bad.as_json())
    assert view["ok"] is False
    totals_are_wrong = act == "spark" and "totals_right" in change
    assert view["aggregates_match"] is not totals_are_wrong


def test_a_machine_without_a_jail_owes_no_filter_over_bodies() -> None:
    arrivals = replace(GOOD.late_arrivals, overnight=0, overnight_bytes=0, lacking="Landlock")
    without = replace(GOOD, late_arrivals=arrivals)
    assert without.disagreements() == []
    assert json.loads(without.as_json())["overnight"] is None
    assert replace(without, late_arrivals=replace(arrivals, late=8)).disagreements()


def test_without_spark_there_is_the_reason_and_nothing_else() -> None:
    without = replace(GOOD, spark=SparkTables(left_out="no Java: apt install"))
    assert without.disagreements() == []
    view = json.loads(without.as_json())
    names = ("spark_rows", "spark_rows_while_sent", "spark_duplicates", "aggregates_match")
    assert [view[name] for name in names] == [None] * 4
    assert (view["spark_left_out"], view["ok"]) == ("no Java: apt install", True)


# -- ledger ----------------------------------------------------------------------------------------


def test_deliveries_are_read_while_more_come(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    assert ledger.count == 0
    assert ledger.rows().tolist() == []
    with LedgerWriter(path) as writer:
        writer.add([7, 1])
        assert (ledger.count, ledger.rows().tolist()) == (2, [7, 1])
        writer.add([336_775])
        assert ledger.rows(2).tolist() == [336_775]
        assert ledger.rows(3).tolist() == []


def test_a_kill_loses_nothing_that_was_added(tmp_path: Path) -> None:
    source = (
        "import os, signal, sys; from pathlib import Path\n"
        "from kourou_demo.ledger import LedgerWriter\n"
        "LedgerWriter(Path(sys.argv[1])).add([1, 2, 3])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "ledger"
    done = subprocess.run([sys.executable, "-c", source, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Ledger(path).rows().tolist() == [1, 2, 3]


# -- both views tell everything; the plain one in lines --------------------------------------------


PICTURE = Picture(
    goal=1_000,
    available=500,
    publish_rate=2_000.0,
    members=[MemberPicture("ann", 300, 900.0), MemberPicture("bob", 100, killed=True)],
    tables=[TablePicture("Parquet", 200, 700.0)],
)


def play(view: View) -> None:
    view.chapter("a chapter")
    for _ in range(LINES_EVERY):
        view.show(PICTURE)
    view.note("a note")
    view.table("a table", ("one", "two"), [("1", "2"), ("three", "four")])
    view.close()
    view.verdict(Numbers(events=1_000, published=1_000), 3.2)


def test_the_plain_view_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    play(PlainView())
    lines = capsys.readouterr().out.splitlines()
    assert "== a chapter" in lines
    assert "   published 500 (2,000/s)  ann 300  bob killed at 100  lag 100  Parquet 200" in lines
    assert "     one    two" in lines
    assert "     three  four" in lines
    assert "!! 1000 were lost" in lines
    assert lines[-1] == "== NOT OK after 3 s"


def test_the_live_view_ends_with_what_was_counted() -> None:
    out = io.StringIO()
    play(LiveView(Console(file=out, force_terminal=True, width=100)))
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    for part in ("a chapter", "a note", "a table", "three", "ann", "killed", "NOT OK", "1000 were"):
        assert part in said
