"""When a sender may be answered whose records a majority has to hold."""

from __future__ import annotations

import pytest

from kourou.engine.sends.confirmations import QuorumConfirmations
from kourou.errors import Code
from kourou.runtime.core import Peer, Reply, ReplyTo
from kourou_rigs.quorum import GivenQuorum

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


@pytest.fixture
def quorum() -> GivenQuorum:
    return GivenQuorum(leader="n0", confirmed=40)


@pytest.fixture
def desk(quorum) -> QuorumConfirmations:
    found = QuorumConfirmations(
        quorum, flush_timeout_ms=5_000, end=50, flushed=50, slave_timeout_ms=3_000
    )
    found.append(100)
    return found


def codes(effects: list) -> list[int]:
    return [effect.code for effect in effects]


@pytest.mark.feature("F160")
def test_only_what_a_majority_has_is_answered_and_read(desk) -> None:
    assert desk.confirmed == 40, "not even what was on this disk before it led"
    assert desk.owe(0, 100, Reply(TO)) == []
    assert desk.flushed_to(100) == []
    assert desk.confirmed_to(99) == []
    assert (desk.confirmed, desk.owed) == (99, 1)
    assert codes(desk.confirmed_to(100)) == [Code.SUCCESS]
    assert (desk.confirmed, desk.owed) == (100, 0)
    assert desk.want_flush() == [], "whoever ships flushes"


def test_what_is_confirmed_already_is_answered_at_once(desk) -> None:
    desk.confirmed_to(100)
    assert codes(desk.owe(0, 100, Reply(TO), decision=True)) == [Code.SUCCESS]


def test_who_is_not_sure_to_lead_answers_nothing(desk, quorum) -> None:
    quorum.sure = False
    desk.owe(0, 100, Reply(TO))
    assert desk.confirmed_to(100) == []
    assert desk.owe(0, 90, Reply(TO)) == []
    assert desk.confirmed == 100, "readers may have it all the same"
    assert desk.expire(2_999) == []
    quorum.sure = True
    assert codes(desk.expire(2_999)) == [Code.SUCCESS, Code.SUCCESS]


def test_who_does_not_wait_is_answered_at_once(desk, quorum) -> None:
    quorum.sure = False
    assert codes(desk.owe(0, 100, Reply(TO), wait=False)) == [Code.SUCCESS]


def test_after_too_long_a_message_is_stored_here_and_a_decision_is_open(desk) -> None:
    desk.owe(1_000, 100, Reply(TO))
    desk.owe(1_000, 100, Reply(TO), decision=True)
    desk.owe(1_001, 100, Reply(TO))
    assert desk.expire(3_999) == []
    message, decision = desk.expire(4_000)
    assert (message.code, message.remark) == (
        Code.FLUSH_SLAVE_TIMEOUT,
        "stored here; no majority replicated it in time",
    )
    assert decision.code == Code.OUTCOME_UNKNOWN
    assert desk.owed == 1


def test_who_leads_no_more_tells_all_who_wait_that_nobody_knows(desk) -> None:
    desk.owe(0, 100, Reply(TO))
    desk.owe(0, 100, Reply(TO), decision=True)
    answers = desk.fail("n1 leads now")
    assert codes(answers) == [Code.OUTCOME_UNKNOWN, Code.OUTCOME_UNKNOWN]
    assert "n1 leads now" in answers[0].remark
    assert codes(desk.owe(0, 30, Reply(TO))) == [Code.OUTCOME_UNKNOWN]
    assert codes(desk.owe(0, 100, Reply(TO), wait=False)) == [Code.OUTCOME_UNKNOWN]
    assert desk.confirmed == 40


def test_confirmed_never_falls_and_never_runs_ahead(desk) -> None:
    desk.confirmed_to(90)
    desk.confirmed_to(80)
    assert desk.confirmed == 90
    with pytest.raises(AssertionError):
        desk.confirmed_to(101)
