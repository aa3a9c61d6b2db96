"""Parses and formats times for operators."""

from __future__ import annotations

from datetime import datetime

from kourou.errors import ConfigError

ROCKETMQ_FORMAT = "%Y-%m-%d#%H:%M:%S:%f"


def moment_ms(text: str, now_ms: int) -> int:
    """Parse a time into ms since the epoch: `now`, ms, RocketMQ's format, or ISO 8601.

    RocketMQ's format is `yyyy-MM-dd#HH:mm:ss:SSS`. Times without a time zone are local.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if "#" in text:
            found = datetime.strptime(text, ROCKETMQ_FORMAT).astimezone()
        else:
            found = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time",
            hint="write now, milliseconds, 2013-07-04T12:00 or 2013-07-04#12:00:00:000",
        ) from None
    return int(found.timestamp() * 1000)


def as_text(timestamp_ms: int) -> str | None:
    """A timestamp as local time; None for 0, which means that there is none."""
    if timestamp_ms <= 0:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")
