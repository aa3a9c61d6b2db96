"""Tables of texts that others wrote: they neither control the terminal nor look like more rows."""

from __future__ import annotations

import sys

import pytest

from kourou.cli.admin.report import Report, printable_lines
from kourou.errors import Rejected

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2Jpaid\nM2  forged\x9b2K"
ESCAPED = r"\x1b]52;c;ZXZpbA==\x07\x1b[2Jpaid\nM2  forged\x9b2K"


@pytest.mark.fault
@pytest.mark.parametrize("on_terminal", [False, True])
def test_texts_of_others_are_escaped(
    on_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    report = Report(
        ("message_id", "body", "ms"),
        [("M1", HOSTILE, 5)],
        ["thread\tmain\n  at \x1b[31mx"],
        missing={"broker-a": Rejected("no topic \x1b[2J")},
    )
    report.show(as_json=False)
    shown = capsys.readouterr()
    assert ESCAPED in shown.out
    assert shown.out.count("M2") == 1
    assert r"  at \x1b[31mx" in shown.out.splitlines()
    assert not [code for code in ("\x07", "\x1b]", "\x1b[2J", "\x1b[31") if code in shown.out]
    assert shown.err.strip() == r"missing: broker-a: no topic \x1b[2J"


def test_lines_stay() -> None:
    assert printable_lines("a\tb\n\x1bc\n") == "a    b\n\\x1bc\n"
