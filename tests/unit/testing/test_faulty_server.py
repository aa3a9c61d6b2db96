"""Which frames an ordered fault strikes; what becomes of them is proved by test_chaos.py."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest
from kourou.protocol.messages.pulls import GetMaxOffset, PullMessage
from kourou.protocol.messages.sends import SendRecords
from kourou.testing.faulty_server import Fault, FaultKind, codes_of


def test_what_is_meant_by_a_word_a_type_or_nothing():
    assert SendRecords.code in codes_of("send")
    assert codes_of("pull") == {PullMessage.code}
    assert codes_of(GetMaxOffset) == {GetMaxOffset.code}
    assert codes_of(None) is None
    with pytest.raises(BadRequest, match="known: send, pull"):
        codes_of("sned")


def test_it_strikes_so_many_times_and_counts():
    fault = Fault(FaultKind.LOST, codes_of("pull"), answers=False, times=2)
    assert not fault.meets(PullMessage.code, answer=True)
    assert not fault.meets(SendRecords.code, answer=False)
    struck = [fault.meets(PullMessage.code, answer=False) for _ in range(3)]
    assert struck == [True, True, False]
    assert fault.met == 2


def test_without_a_number_it_strikes_for_ever():
    fault = Fault(FaultKind.LATE, None, answers=True, times=None)
    assert all(fault.meets(code, answer=True) for code in range(100))
    assert fault.met == 100
