"""One report, two faces."""

from __future__ import annotations

import json

import pytest

from kourou.cli.admin.report import Report
from kourou.errors import Unavailable

REPORT = Report(("name", "count", "ok", "when"), [("a", 5, True, None), ("long", 12, False, "now")])


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    assert REPORT.lines() == [
        "name  count  ok   when",
        "a         5  yes  -",
        "long     12  no   now",
    ]


def test_json_has_one_object_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    REPORT.show(as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"name": "a", "count": 5, "ok": True, "when": None}


def test_remarks_stand_below_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Report(remarks=["done"]).show(as_json=False)
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_who_did_not_answer_is_named_beside_the_rows(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Report(("name",), [("a",)], missing={"broker-b": Unavailable("away")}).show(as_json=as_json)
    printed = capsys.readouterr()
    assert printed.err == "missing: broker-b: away\n"
    assert "broker-b" not in printed.out
