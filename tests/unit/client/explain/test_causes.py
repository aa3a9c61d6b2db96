"""Codes are stable, and the page has each with what to do."""

from __future__ import annotations

import re
from pathlib import Path

from kourou.client.explain.causes import MEANINGS, CauseCode
from kourou.client.explain.explanation import PAGE

HERE = Path(__file__).parents[4] / "docs" / PAGE
FIRST = ("stored", "never_stored", "not_found", "expired", "body_damaged", "broker_away")


def test_the_page_has_every_code_with_what_to_do():
    text = HERE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n\n(.+?)\n", text, re.MULTILINE))
    assert list(sections) == [code.value for code in CauseCode]
    for code, meaning in MEANINGS.items():
        expected = f"**{meaning.title}** ({meaning.severity.value}). {meaning.advice}"
        assert sections[code.value] == expected


def test_codes_are_words_that_programs_compare():
    assert [code.value for code in CauseCode][: len(FIRST)] == list(FIRST)
    assert all(code.value == code.name.lower() for code in CauseCode)
    assert len(CauseCode) == 53
