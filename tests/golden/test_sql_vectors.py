"""What a real RocketMQ's filter said of expressions and messages, said by ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kourou.errors import Rejected
from kourou.filtering.sql import Unmatchable, compiled
from kourou.filtering.sql_grammar import parse

GOLDEN = Path(__file__).parent / "rocketmq-4.9.8"
LINE = re.compile(
    r"(?P<text>.*?) *\{(?P<properties>[^}]*)\} +(?P<verdict>eval=\w+|EVALERR|COMPILEERR).*",
    re.DOTALL,
)

TRAILING = {
    "a = 007",
    "a = 1 garbage",
    "a = 1 )",
    "a LIKE 'x%'",
    "a + 1 > 2",
    "a-b = 1",
    "a CONTAINS 'x'",
}
"""Where we depart: RocketMQ stops reading after the first whole expression, and we refuse."""

NOT_STORED = {"a = ''"}
"""RocketMQ's test held an empty value, which no stored message can have."""


def verdict(text: str, properties: bytes) -> str:
    try:
        found = compiled(parse(text))
    except Rejected:
        return "refused"
    try:
        verdict = found.evaluate_stored(properties)
    except Unmatchable:
        return "failed"
    return {True: "true", False: "false", None: "null"}[verdict]


def vectors() -> list[tuple[str, bytes, str]]:
    """Expression, stored properties, verdict."""
    found = []
    begun = ""
    for row in (GOLDEN / "sql-vectors.txt").read_text(encoding="utf-8").splitlines():
        begun += row  # one expression goes over two lines
        line = LINE.fullmatch(begun)
        if line is None:
            begun += "\n"
            continue
        begun = ""
        pairs = [pair.partition("=") for pair in line["properties"].split(", ") if pair]
        said = line["verdict"].removeprefix("eval=")
        found.append(
            (
                line["text"].strip(),
                "\x02".join(f"{name}\x01{value}" for name, _, value in pairs).encode(),
                {"EVALERR": "failed", "COMPILEERR": "refused"}.get(said, said),
            )
        )
    return found


VECTORS = vectors()


def test_all_vectors_are_read() -> None:
    assert len(VECTORS) == 108
    texts = {text for text, _, _ in VECTORS}
    assert texts >= TRAILING | NOT_STORED
    assert "a = 1 -- x\n AND b = 3" in texts


@pytest.mark.feature("F237")
@pytest.mark.parametrize(("text", "properties", "expected"), VECTORS)
def test_vectors(text: str, properties: bytes, expected: str) -> None:
    if text in TRAILING:
        assert expected != "refused"
        expected = "refused"
    if text in NOT_STORED:
        expected = "null"
    assert verdict(text, properties) == expected


@pytest.mark.feature("F237")
def test_random_expressions_are_judged_alike() -> None:
    """Where RocketMQ takes what we refuse, it has only looked at what stands before the place."""
    departing = 0
    lines = (GOLDEN / "sql-judged.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        expected, text, properties = json.loads(line)
        found = verdict(text, properties.encode())
        if found != expected:
            assert found == "refused", (text, properties, expected, found)
            with pytest.raises(Rejected) as refused:
                parse(text)
            place = re.search(r"at position (\d+): unexpected ", str(refused.value))
            assert place, (text, str(refused.value))
            before = text[: int(place[1]) - 1]
            assert verdict(before, properties.encode()) == expected, text
            departing += 1
    assert len(lines) == 1_820
    assert 0 < departing < 100
