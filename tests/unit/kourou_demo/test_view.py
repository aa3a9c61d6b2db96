"""Both views tell everything; the plain one in lines."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from kourou_demo.picture import MemberPicture, Picture, TablePicture
from kourou_demo.verdict import Numbers
from kourou_demo.view import LINES_EVERY, LiveView, PlainView, View

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
