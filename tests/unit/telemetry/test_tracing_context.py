"""A trace context as bytes and as text."""

from __future__ import annotations

import pytest

from kourou.telemetry.tracing_context import (
    context_of,
    contexts_among,
    is_sampled,
    traceparent_of,
)

TEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BYTES = bytes.fromhex("0af7651916cd43dd8448eb211c80319cb7ad6b716920333101")


def test_both_forms_mean_the_same() -> None:
    assert context_of(TEXT) == BYTES
    assert traceparent_of(BYTES) == TEXT


def test_only_the_last_bit_says_sampled() -> None:
    assert is_sampled(BYTES)
    assert is_sampled(BYTES[:24] + b"\x03")
    assert not is_sampled(BYTES[:24] + b"\x02")
    assert not is_sampled(bytes(25))
    assert not is_sampled(b"")


def test_sampled_contexts_are_found_in_the_bytes_of_records() -> None:
    def record(text: str) -> bytes:
        return b"\x00body\x00TAGS\x01t\x02traceparent\x01" + text.encode() + b"\x02UNIQ_KEY\x01k"

    other = TEXT.replace("b7ad", "c8be")
    unsampled = TEXT[:-1] + "0"
    run = record(TEXT) + record(unsampled) + record(other) + record(TEXT)
    found = [BYTES, context_of(other)]
    assert contexts_among(run, 8) == found
    assert contexts_among(memoryview(run), 1) == found[:1]
    assert contexts_among(record("00-" + "0" * 32 + TEXT[35:]), 8) == [], "no trace has this id"
    assert contexts_among(b"", 8) == []


def test_a_later_version_may_say_more() -> None:
    assert context_of("01" + TEXT[2:] + "-more") == BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT[:-1],
        TEXT.upper(),
        TEXT + "-more",
        "ff" + TEXT[2:],
        "00-" + "0" * 32 + TEXT[35:],
        TEXT[:36] + "0" * 16 + "-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
    ],
)
def test_what_is_no_traceparent(text: str) -> None:
    assert context_of(text) is None
