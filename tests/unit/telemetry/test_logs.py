"""One record is one line, whatever a client puts into it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kourou.model.limits import LOG_VALUE_LENGTH_MAX
from kourou.telemetry.logs import LogFormat, configure_logs, printable


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
    assert record["event"] == 'peer said x"\\n{"event": "forged"}'
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
    assert json.loads(out.getvalue())["event"] == "above"


def test_configuring_again_replaces(out: io.StringIO) -> None:
    configure_logs(service="a", log_format=LogFormat.JSON, stream=io.StringIO())
    configure_logs(service="b", log_format=LogFormat.JSON, stream=out)
    log.error("once")
    assert len(out.getvalue().splitlines()) == 1


def test_long_texts_are_cut() -> None:
    assert len(printable("x" * 100_000)) == LOG_VALUE_LENGTH_MAX + 1
    assert printable("tidy ü") == "tidy ü"


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
    log.warning("disk_full free=%d", 3)
    time, level, text = out.getvalue().split(maxsplit=2)
    assert (time[-1], level, text) == ("Z", "warning", "disk_full free=3 [kourou.test]\n")
