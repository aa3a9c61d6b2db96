"""A trace context as bytes and as text."""

from __future__ import annotations

import pytest

from kourou.telemetry.tracing_context import context_of, is_sampled, traceparent_of

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
