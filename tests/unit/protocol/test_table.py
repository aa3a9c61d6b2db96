"""The request table is complete, consistent, and says who may do what."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from kourou.access.requirements import CallerKind
from kourou.errors import Code
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.sends import SEND_SHORT_NAMES, SendMessage
from kourou.protocol.request import Answerer, Request, Response
from kourou.protocol.table import BROKER, REQUESTS, _row, _table
from kourou_rigs.engine import Engine

# -- every row, written down a second time ---------------------------------------------------------

ROWS = Path(__file__).with_name("requests.txt")
_FIELD = re.compile(r"(\w+)([!~+]*)(?::([ilbt]))?")
_TYPES = {
    "i": {"type": "int", "bits": 32},
    "l": {"type": "int", "bits": 64},
    "b": {"type": "bool", "bits": 0},
    None: {"type": "str", "bits": 0},
}


class Row(NamedTuple):
    """One request of requests.txt."""

    code: int
    head: str
    asked: list[str]
    told: list[str]
    answers: frozenset[int]


def rows() -> Iterator[Row]:
    words: dict[str, set[int]] = {}
    for block in ROWS.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines and lines[0].startswith("$"):
            for line in lines:
                word, _, codes = line.partition(" = ")
                words[word] = _codes(codes, words)
        elif lines:
            parts = {
                sign: [one for line in lines[1:] if line[0] == sign for one in line[2:].split()]
                for sign in "><?"
            }
            assert len(lines) == 1 + sum(line[:2] in ("> ", "< ", "? ") for line in lines[1:])
            code, _, head = lines[0].partition(" ")
            answers = frozenset(_codes(" ".join(parts["?"]), words))
            yield Row(int(code), head, parts[">"], parts["<"], answers)


def _codes(text: str, words: dict[str, set[int]]) -> set[int]:
    found: set[int] = set()
    for word in text.split():
        found |= words[word] if word.startswith("$") else {int(word)}
    return found


WRITTEN = {row.code: row for row in rows()}


def test_the_written_rows_and_the_table_have_the_same_codes():
    assert len(WRITTEN) == len(list(rows()))
    assert set(REQUESTS) == set(WRITTEN)


@pytest.mark.parametrize("row", WRITTEN.values(), ids=lambda row: row.head.split()[0])
def test_a_row_of_the_table_is_what_is_written(row: Row):
    spec = REQUESTS[row.code]
    marks = [
        name
        for name, there in (
            ("oneway", spec.oneway),
            ("letters", spec.short_names),
            ("zmq", not spec.remoting),
        )
        if there
    ]
    head = [
        spec.name,
        " ".join(sorted(spec.answered_by)),
        spec.requirement.text,
        f"{spec.body} -> {spec.reply_body}",
        *marks,
    ]
    assert " | ".join(head) == row.head
    assert spec.answers == row.answers
    short_names = (
        {name: short_name for short_name, name in SEND_SHORT_NAMES.items()}
        if spec.short_names
        else {}
    )
    check_fields(spec.header, row.asked, short_names)
    assert (spec.response is None) == (not row.told)
    if spec.response is not None:
        check_fields(spec.response, row.told, {})


def check_fields(header: type[msgspec.Struct], written: list[str], short_names: dict[str, str]):
    """The fields of a header are these, with these types, and as optional as their marks say."""
    fields = {
        short_names.get(field.encode_name, field.encode_name): field
        for field in msgspec.inspect.type_info(header).fields
    }
    wanted = {}
    for one in written:
        match = _FIELD.fullmatch(one)
        assert match is not None, one
        wanted[match[1]] = (match[2], match[3])
    assert len(wanted) == len(written)
    assert set(fields) == set(wanted), header.__name__
    for name, (marks, kind) in wanted.items():
        field = fields[name]
        assert field.required == ("!" in marks), f"{header.__name__}.{name}"
        if "~" in marks:
            assert not field.required, f"{header.__name__}.{name}"
        if kind == "t":
            continue
        found = field.type
        if isinstance(found, msgspec.inspect.UnionType):
            (found,) = [
                each for each in found.types if not isinstance(each, msgspec.inspect.NoneType)
            ]
        name_of = type(found).__name__.removesuffix("Type").lower()
        bits = 0
        if isinstance(found, msgspec.inspect.IntType):
            assert found.le is not None, f"{header.__name__}.{name}"
            bits = found.le.bit_length() + 1
            assert found.ge in (-found.le - 1, 0), f"{header.__name__}.{name}"
        assert {"type": name_of, "bits": bits} == _TYPES[kind], f"{header.__name__}.{name}"


# -- what holds over all rows ----------------------------------------------------------------------


def test_names_are_unique():
    names = [spec.name for spec in REQUESTS.values()]
    assert len(set(names)) == len(names)


def test_answers_are_known_codes_and_name_neither_success_nor_system_error():
    known = {int(code) for code in Code} | {209, 210, 211}
    for spec in REQUESTS.values():
        assert spec.answers <= known, spec.name
        assert not spec.answers & {Code.SUCCESS, Code.SYSTEM_ERROR}, spec.name


def test_what_goes_to_clients_is_guarded_by_notify_unless_it_is_forwarded():
    for spec in REQUESTS.values():
        if spec.answered_by == {Answerer.CLIENT}:
            assert spec.requirement.caller is CallerKind.SERVER, spec.name
    assert {spec.code for spec in REQUESTS.values() if spec.oneway} == {
        39,
        40,
        220,
        30_024,
        *range(30_040, 30_047),
    }


def test_a_table_that_contradicts_itself_does_not_start():
    good = _row("SEND_MESSAGE", SendMessage, BROKER)
    with pytest.raises(AssertionError, match="repeats"):
        _table([good, good])
    with pytest.raises(AssertionError, match="no row of needs"):
        _table([_row("SEND_UNKNOWN", SendMessage, BROKER)])
    with pytest.raises(AssertionError, match="has no service that handles it"):
        _table([_row("SEND_MESSAGE", SendMessage, frozenset())])
    with pytest.raises(AssertionError, match="carrier"):
        _table([_row("SEND_MESSAGE", SendMessage, BROKER, remoting=False)])


def test_an_answer_that_is_not_in_its_row_fails_whatever_test_gets_it(monkeypatch):
    request = UpdateConsumerOffset(consumer_group="g", topic="none", queue_id=0, commit_offset=1)
    assert Engine().ask(request).code == Code.TOPIC_NOT_EXIST
    poorer = {15: replace(REQUESTS[15], answers=frozenset())}
    monkeypatch.setattr("kourou_rigs.engine.REQUESTS", poorer)
    with pytest.raises(AssertionError, match="may not get 17"):
        Engine().ask(request)


# -- the base of all headers -----------------------------------------------------------------------


HEADERS = sorted(
    {spec.header for spec in REQUESTS.values()}
    | {spec.response for spec in REQUESTS.values() if spec.response is not None},
    key=lambda header: header.__name__,
)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_every_header_is_frozen_keyword_only_and_a_header(header):
    assert issubclass(header, (Request, Response))
    config = header.__struct_config__
    assert config.frozen
    with pytest.raises(TypeError, match="positional"):
        header("a positional argument")
    assert header.__doc__
