"""Log output: one JSON object per line, or text for people.

All code logs through the standard library: `log.warning("event-name: sentence with %(field)s",
{"field": value})`. The event name and the fields are stable, so that lines can be searched and
counted; docs/reference/log-events.md lists them. Lines of other libraries have the same format,
without an event and fields. Never log a secret or a message body.

Control characters are escaped before a line is written, so that a client id with a line break
cannot forge a second line. An event name and the names of fields come from the code alone; in text,
a value that could be read as several fields is quoted, and in JSON no field replaces another one.

State: soft (the standard library's root logger).
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TextIO

from kourou.model.limits import LOG_VALUE_LENGTH_MAX

EVENT = re.compile(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)+): ")
"""How a text begins that names its event: at least two words in kebab case."""

RESERVED = frozenset(
    {"event", "message", "logger", "level", "time", "service", "trace_id", "span_id", "exception"}
)
"""What a JSON line has besides the fields of its event."""

Value = str | int | float | bool

_OURS = "kourou"
_BARE = re.compile(r"[^\s\"\\=\[\]]+")
"""A value that needs no quotes in text."""


class LogFormat(StrEnum):
    """`AUTO` is console on a terminal, else JSON."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


def configure_logs(
    *,
    service: str,
    level: str = "INFO",
    log_format: LogFormat = LogFormat.AUTO,
    stream: TextIO | None = None,
) -> None:
    """Send the log of this process to `stream` (default: stderr), as JSON or as text."""
    out = sys.stderr if stream is None else stream
    console = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Formatter(service, as_text if console else as_json))
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level)


class _Formatter(logging.Formatter):
    """Converts a record to printable values; `render` converts these and the fields to one line."""

    def __init__(
        self, service: str, render: Callable[[Mapping[str, str], Mapping[str, Value]], str]
    ) -> None:
        super().__init__()
        self._service = service
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        event, sentence = split_event(record)
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            **({"event": event} if event else {}),
            "message": printable(sentence, LOG_VALUE_LENGTH_MAX),
            "logger": printable(record.name, LOG_VALUE_LENGTH_MAX),
            "level": record.levelname.lower(),
            "time": f"{second}.{int(record.msecs):03}Z",
            **trace_fields(),
            "service": self._service,
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line["exception"] = "\n".join(map(printable, trace.split("\n")))
        return self._render(line, fields_of(record) if event else {})


def split_event(record: logging.LogRecord) -> tuple[str, str]:
    """Return the event and the sentence of a record; the event of other libraries is "".

    The event is part of the code's text, never of a value.
    """
    text = record.getMessage()
    ours = record.name == _OURS or record.name.startswith(f"{_OURS}.")
    named = EVENT.match(record.msg) if ours and isinstance(record.msg, str) else None
    return ("", text) if named is None else (named[1], text[named.end() :])


def fields_of(record: logging.LogRecord) -> dict[str, Value]:
    """Return the fields of a record, printable; numbers stay numbers.

    All texts together are no longer than the limit, of which each has an equal share.
    """
    if not isinstance(record.args, Mapping):
        return {}
    share = LOG_VALUE_LENGTH_MAX // max(1, len(record.args))
    return {str(name): _plain(value, share) for name, value in record.args.items()}


def _plain(value: object, length_max: int) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    text = str(value)
    if not text and isinstance(value, BaseException):
        text = type(value).__name__  # such as TimeoutError()
    return printable(text, length_max)


def as_json(line: Mapping[str, str], fields: Mapping[str, Value]) -> str:
    """Return a JSON object: the line's values, and the fields next to them."""
    return json.dumps({**fields, **line} if RESERVED & fields.keys() else {**line, **fields})


def as_text(line: Mapping[str, str], fields: Mapping[str, Value]) -> str:
    """Return a line for people: `time level event  sentence [logger] key=value …`.

    A traceback follows on separate, indented lines.
    """
    event = f"{line['event']}  " if "event" in line else ""
    pairs = {**fields, "trace_id": line["trace_id"]} if "trace_id" in line else fields
    shown = "".join(f" {name}={quoted(value)}" for name, value in pairs.items())
    text = f"{line['time']} {line['level']:8} {event}{line['message']} [{line['logger']}]{shown}"
    return text + "".join(f"\n  {one}" for one in line.get("exception", "").split("\n") if one)


def quoted(value: Value) -> str:
    """Return a printable value as it stands after `key=`.

    It is quoted if it is empty or has spaces, quotes, backslashes, brackets or `=`.
    """
    text = str(value)
    if _BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def trace_fields() -> dict[str, str]:
    """Return `trace_id` and `span_id` of the current span, if there is one.

    A process without tracing has not imported OpenTelemetry; then the result is empty.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    current = api.get_current_span().get_span_context()
    if not current.is_valid:
        return {}
    return {"trace_id": f"{current.trace_id:032x}", "span_id": f"{current.span_id:016x}"}


def printable(text: str, length_max: int | None = None) -> str:
    """Return `text` with control characters escaped, truncated to `length_max` characters.

    Text of other users must not control the terminal on which it is shown.
    """
    if length_max is not None and len(text) > length_max:
        text = text[:length_max] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
