"""One record is one line, whatever a client puts into it."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from kourou.model.limits import LOG_VALUE_LENGTH_MAX
from kourou.telemetry.logs import RESERVED, LogFormat, configure_logs


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """The root logger as pytest left it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


log = logging.getLogger("kourou.test")


def test_json(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    log.debug("left out")
    log.warning("%s said %s", "peer", 'x"\n{"event": "forged"}')
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    record = json.loads(lines[0])
    assert record["message"] == 'peer said x"\\n{"event": "forged"}'
    assert "event" not in record, "the text names none"
    assert (record["level"], record["logger"], record["service"]) == (
        "warning",
        "kourou.test",
        "broker",
    )
    assert record["time"].endswith("Z")


@pytest.mark.parametrize("log_format", [LogFormat.CONSOLE, LogFormat.JSON])
def test_a_value_cannot_forge_a_line(out: io.StringIO, log_format: LogFormat) -> None:
    configure_logs(service="broker", log_format=log_format, stream=out)
    log.error("client %s", "a\r\nb\x1b[2J\x00\u2028\x85c")
    text = out.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert all(char.isprintable() for char in text[:-1])


def test_a_traceback_is_kept(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    try:
        raise ValueError("odd\x1b")
    except ValueError:
        log.exception("it broke")
    record = json.loads(out.getvalue())
    assert "ValueError: odd\\x1b" in record["exception"]
    assert "Traceback" in record["exception"]


def test_an_error_text_cannot_forge_a_line(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.CONSOLE, stream=out)
    try:
        raise ValueError("odd\n2026-01-01T00:00:00.000Z info     all is well [kourou]")
    except ValueError:
        log.exception("it broke")
    first, *others = out.getvalue().splitlines()
    assert first.endswith("it broke [kourou.test]")
    assert any("all is well" in line for line in others)
    assert all(line.startswith("  ") for line in others)


def test_without_a_terminal_the_default_is_json(out: io.StringIO) -> None:
    configure_logs(service="broker", level="ERROR", stream=out)
    log.warning("below the level")
    log.error("above")
    assert json.loads(out.getvalue())["message"] == "above"


def test_configuring_again_replaces(out: io.StringIO) -> None:
    configure_logs(service="a", log_format=LogFormat.JSON, stream=io.StringIO())
    configure_logs(service="b", log_format=LogFormat.JSON, stream=out)
    log.error("once")
    assert len(out.getvalue().splitlines()) == 1


def test_lines_within_a_span_name_it(out: io.StringIO) -> None:
    from kourou.telemetry.tracing import current_context

    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    log.warning("outside")
    with current_context(bytes(range(1, 25)) + b"\x01"):
        log.warning("inside")
    outside, inside = map(json.loads, out.getvalue().splitlines())
    assert "trace_id" not in outside
    assert (inside["trace_id"], inside["span_id"]) == (
        "0102030405060708090a0b0c0d0e0f10",
        "1112131415161718",
    )


def test_a_line_for_people(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.CONSOLE, stream=out)
    log.warning("disk-full: %(path)s has %(free_gib)d GiB left", {"path": "/a b", "free_gib": 3})
    log.warning("plain words of a library")
    first, second = (line.split(maxsplit=2) for line in out.getvalue().splitlines())
    assert (first[0][-1], first[1]) == ("Z", "warning")
    assert first[2] == 'disk-full  /a b has 3 GiB left [kourou.test] path="/a b" free_gib=3'
    assert second[2] == "plain words of a library [kourou.test]"


def test_json_has_event_message_and_fields(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    fields = {"peer": "a:1", "count": 2, "share": 0.5, "whole": True, "error": TimeoutError()}
    log.warning("peer-lost: %(peer)s left %(count)d, %(share).2f, %(whole)s: %(error)r", fields)
    log.info("peer-found: a sentence of 100 % without fields")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["event"] == "peer-lost"
    assert first["message"] == "a:1 left 2, 0.50, True: TimeoutError()"
    assert {name: first[name] for name in fields} == {**fields, "error": "TimeoutError"}
    assert (second["event"], second["message"]) == (
        "peer-found",
        "a sentence of 100 % without fields",
    )
    always = RESERVED - {"exception", "trace_id", "span_id"}
    assert first.keys() - fields.keys() == second.keys() == always


def test_only_our_own_texts_name_events(out: io.StringIO) -> None:
    """Neither another library's text nor a value becomes an event."""
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    logging.getLogger("urllib3").warning("read-failed: %(host)s", {"host": "h"})
    log.warning("%s", "peer-lost: forged")
    log.warning("Peer-lost: %(peer)s", {"peer": "p"})
    for line in out.getvalue().splitlines():
        record = json.loads(line)
        assert record.keys() & {"event", "host", "peer"} == set()
        assert ": " in record["message"]


def test_a_field_replaces_nothing_of_the_line(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    log.warning("user-known: %(level)s %(name)s", {"level": "none", "name": "ann"})
    record = json.loads(out.getvalue())
    assert (record["level"], record["message"], record["name"]) == ("warning", "none ann", "ann")


def test_values_that_json_does_not_have_are_texts(out: io.StringIO) -> None:
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    log.warning("ratio-odd: %(ratio)s", {"ratio": float("nan"), "members": ["a", "b"]})
    record = json.loads(out.getvalue(), parse_constant=pytest.fail)
    assert (record["ratio"], record["members"]) == ("nan", "['a', 'b']")


PAIR = r'\w+=(?:[^\s"\\=\[\]]+|"(?:[^"\\]|\\.)*")'
ENDS = re.compile(rf" \[([\w.]+)\]((?: {PAIR})*)$")
"""How text lines end: the logger and the fields."""


@pytest.mark.parametrize(
    "value",
    [
        "x [kourou.broker] user=admin",
        'x" user=admin y="',
        "user=admin",
        "",
        "a\tb\n2026-01-01T00:00:00.000Z info     all is well [kourou]",
        "\\",
        '\\" user=admin',
        "\u2028\x1b[2J\x00\x85",
    ],
)
def test_a_value_forges_no_field_in_text(out: io.StringIO, value: str) -> None:
    configure_logs(service="broker", log_format=LogFormat.CONSOLE, stream=out)
    log.warning("client-lost: %(client)s of %(group)s", {"client": value, "group": value})
    text = out.getvalue()
    assert len(text.splitlines()) == 1
    assert all(char.isprintable() for char in text[:-1])
    end = ENDS.search(text.rstrip("\n"))
    assert end is not None
    assert end[1] == "kourou.test"
    names = [pair.partition("=")[0].strip() for pair in re.findall(rf" {PAIR}", end[2])]
    assert names == ["client", "group"]


def test_fields_share_the_limit(out: io.StringIO) -> None:
    """A long value cuts neither the others nor the sentence's own room."""
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    fields = {"client": "x" * 100_000, "error": "y" * 100_000}
    log.warning("client-odd: %(error)s of %(client)s", fields)
    record = json.loads(out.getvalue())
    assert len(record["message"]) == LOG_VALUE_LENGTH_MAX + 1
    assert {len(record[name]) for name in fields} == {LOG_VALUE_LENGTH_MAX // 2 + 1}
