"""Validation and parsing of settings that are neither numbers nor flags."""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime
from typing import Any

from kourou.client.consumer.allocation import BY_NAME, allocation_named
from kourou.client.settings.declaration import Form
from kourou.errors import ConfigError
from kourou.model.subscription import MATCH_ALL, ConsumeFromWhere
from kourou.protocol.bodies.heartbeat_body import consume_from_where

HALF_AN_HOUR_MS = 1_800_000
_FOURTEEN_DIGITS = re.compile(r"[0-9]{14}", re.ASCII)
_TIMESTAMP_TEXT = "local time yyyyMMddHHmmss"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_offset_store(value: Any) -> bool:
    return callable(getattr(value, "load", None)) and callable(getattr(value, "save", None))


def _is_http(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _from_where(text: str) -> Any:
    try:
        return consume_from_where(text)  # accepts the three deprecated spellings of RocketMQ
    except ValueError:
        return text


def _allocation(text: str) -> Any:
    try:
        return allocation_named(text)
    except ConfigError:
        return text


def _subscriptions(text: str) -> dict[str, str]:
    """Return `T=a || b;U` as expressions by topic; a topic without an expression means all tags."""
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {topic.strip(): expression.strip() or MATCH_ALL for topic, _, expression in pairs}


ADDRESS = Form("an IPv4 or IPv6 address", _is_ip)
URL = Form("an http:// or https:// address", _is_http)
ALLOCATION = Form(
    f"a strategy of kourou.client.consumer.allocation; in a file one of {', '.join(BY_NAME)}",
    callable,
    _allocation,
)
OFFSET_STORE = Form("an object with load and save", _is_offset_store)
SUBSCRIPTION = Form(
    "tag expressions by topic, in a file TOPIC=EXPRESSION;TOPIC=EXPRESSION", parse=_subscriptions
)
FROM_WHERE = Form("one of " + ", ".join(ConsumeFromWhere), parse=_from_where)


def consume_timestamp_ms(text: str, now_ms: int) -> int:
    """Return `yyyyMMddHHmmss` in local time as ms since the epoch; half an hour ago if empty.

    Raises ConfigError for any other text.
    """
    if not text:
        return now_ms - HALF_AN_HOUR_MS
    try:
        if _FOURTEEN_DIGITS.fullmatch(text) is None:
            raise ValueError(text)
        moment = datetime.strptime(text, "%Y%m%d%H%M%S").astimezone()
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):  # OverflowError: years outside the clock's range
        raise ConfigError(f"consumeTimestamp is {text!r}, which is not {_TIMESTAMP_TEXT}") from None


def _is_timestamp(text: str) -> bool:
    try:
        consume_timestamp_ms(text, 0)
    except ConfigError:
        return False
    return True


TIMESTAMP = Form(f"a {_TIMESTAMP_TEXT}", _is_timestamp)
