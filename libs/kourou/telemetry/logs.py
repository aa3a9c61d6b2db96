"""Log output: one JSON object per line, or text for people.

All code logs through the standard library, so the lines of libraries have the same format. Control
characters are escaped before a line is written, so that a client id with a line break cannot forge
a second line. Never log a secret or a message body.

State: soft (the standard library's root logger).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TextIO

from kourou.model.limits import LOG_VALUE_LENGTH_MAX


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
    handler.setFormatter(_Formatter(service, as_text if console else json.dumps))
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level)


class _Formatter(logging.Formatter):
    """Converts a record to printable fields; `render` converts the fields to one line."""

    def __init__(self, service: str, render: Callable[[dict[str, str]], str]) -> None:
        super().__init__()
        self._service = service
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "event": printable(record.getMessage()),
            "logger": printable(record.name),
            "level": record.levelname.lower(),
            "time": f"{second}.{int(record.msecs):03}Z",
            **trace_fields(),
            "service": self._service,
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            fields["exception"] = "\n".join(map(printable, trace.split("\n")))
        return self._render(fields)


def as_text(fields: dict[str, str]) -> str:
    """Return a line for people; a traceback follows on separate, indented lines."""
    trace = f" trace_id={fields['trace_id']}" if "trace_id" in fields else ""
    line = f"{fields['time']} {fields['level']:8} {fields['event']} [{fields['logger']}]{trace}"
    return line + "".join(f"\n  {one}" for one in fields.get("exception", "").split("\n") if one)


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


def printable(text: str) -> str:
    """Return `text` with control characters escaped, truncated to the limit of a log line."""
    if len(text) > LOG_VALUE_LENGTH_MAX:
        text = text[:LOG_VALUE_LENGTH_MAX] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
