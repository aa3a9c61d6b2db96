"""What handlers say has one meaning each."""

from __future__ import annotations

import pytest

from kourou.client.consumer.outcomes import (
    ConsumedFirst,
    ConsumeResult,
    DeadLetter,
    RetryLater,
    Shown,
    delay_level_of,
    failure_in,
    reason_of,
)
from kourou.errors import BadRequest


@pytest.mark.feature("F213")
@pytest.mark.parametrize("result", [ConsumeResult.CONSUME_SUCCESS, False, 0, "RECONSUME_LATER", {}])
def test_any_other_result_means_consumed(result):
    assert failure_in(result) is None


def test_levels_and_reasons():
    assert delay_level_of(ValueError("x")) == 0
    assert delay_level_of(RetryLater(delay_level=4)) == 4
    assert delay_level_of(DeadLetter("no number")) < 0
    assert reason_of(DeadLetter("no number"), 100) == "no number"
    assert reason_of(ValueError("no\x01num\nber"), 100) == "ValueError: no num ber"
    assert reason_of(ValueError("abcdef"), 15) == "ValueError: abc"


@pytest.mark.parametrize(
    ("level", "says"), [(-1, "DeadLetter"), ("3", "level"), (1.5, "level"), (None, "level")]
)
def test_what_is_no_level_is_refused(level, says):
    with pytest.raises(BadRequest, match=says):
        RetryLater(delay_level=level)


def test_no_level_is_too_high():
    assert RetryLater(delay_level=10**12).delay_level == 1_000


@pytest.mark.parametrize("count", ["2", -1, None])
def test_a_count_that_is_none_is_refused_in_the_handler(count):
    with pytest.raises(BadRequest, match="ConsumedFirst"):
        ConsumedFirst(count)


class Mute(Exception):
    """An exception of an application that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_exception_without_text_has_a_name():
    assert reason_of(Mute(), 100) == str(Shown(Mute())) == "Mute"
    assert str(Shown(ValueError(1))) == "ValueError(1)"


def test_an_exception_as_the_reason_is_its_text():
    assert reason_of(DeadLetter(ValueError("no number")), 100) == "no number"
    assert reason_of(DeadLetter(Mute()), 100) == "DeadLetter"
