"""Log lines: one JSON object a line, or text for people.

Lives here: how lines look, that nobody can forge one, and which trace they belong to.
May not live here: what is worth a line.

Everything logs through the standard library, so libraries' lines look the same. Control characters
are escaped before a line is written: a client id with a line break in it must not make a second
line. Never log a secret or a message's body.

State: soft (the standard library's root logger).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog

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
    """Send every line of this process to `stream` (stderr), as JSON or as text."""
    out = sys.stderr if stream is None else stream
    console = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and out.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[Any] = [structlog.processors.format_exc_info, _named(service), escape_controls]
    if console:
        renderer: Any = structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="time")
    else:
        renderer = structlog.processors.JSONRenderer(default=str)
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *last,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level)


def _named(service: str) -> Any:
    def add(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = service
        return event

    return add


def add_trace(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """`trace_id` and `span_id` of the span that is current, if there is one.

    A process without tracing has not imported OpenTelemetry, and nothing is asked.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        current = api.get_current_span().get_span_context()
        if current.is_valid:
            event["trace_id"] = f"{current.trace_id:032x}"
            event["span_id"] = f"{current.span_id:016x}"
    return event


def escape_controls(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Make every text of a line printable; only a traceback keeps its line breaks."""
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(map(printable, str(value).split("\n")))
        elif isinstance(value, str):
            event[key] = printable(value)
    return event


def printable(text: str) -> str:
    """`text` with control characters as escapes, cut to what a line may hold."""
    if len(text) > LOG_VALUE_LENGTH_MAX:
        text = text[:LOG_VALUE_LENGTH_MAX] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
