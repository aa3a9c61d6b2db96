"""When a sender may be answered whose records a majority has to hold."""

from __future__ import annotations

import pytest

from kourou.engine.sends.confirmations import CommitStart, QuorumConfirmations
from kourou.errors import Code
from kourou.runtime.core import Peer, Reply, ReplyTo
from kourou_rigs.quorum import GivenQuorum

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


@pytest.fixture
def quorum() -> GivenQuorum:
    return GivenQuorum(leader="n0", confirmed=40)


@pytest.fixture
def tracker(quorum) -> QuorumConfirmations:
    start = CommitStart(50, 50, flush_timeout_ms=5_000)
    found = QuorumConfirmations(quorum, start, slave_timeout_ms=3_000)
    found.append(100)
    return found


def codes(effects: list) -> list[int]:
    return [effect.code for effect in effects]


@pytest.mark.feature("F160")
def test_only_what_a_majority_has_is_answered_and_read(tracker) -> None:
    assert tracker.confirmed == 40, "not even what was on this disk before it led"
    assert tracker.defer(0, 100, Reply(TO)) == []
    assert tracker.flushed_to(100) == []
    assert tracker.confirmed_to(99) == []
    assert (tracker.confirmed, tracker.pending) == (99, 1)
    assert codes(tracker.confirmed_to(100)) == [Code.SUCCESS]
    assert (tracker.confirmed, tracker.pending) == (100, 0)
    assert tracker.want_flush() == [], "whoever ships flushes"


def test_what_is_confirmed_already_is_answered_at_once(tracker) -> None:
    tracker.confirmed_to(100)
    assert codes(tracker.defer(0, 100, Reply(TO), decision=True)) == [Code.SUCCESS]


def test_who_is_not_sure_to_lead_answers_nothing(tracker, quorum) -> None:
    quorum.sure = False
    tracker.defer(0, 100, Reply(TO))
    assert tracker.confirmed_to(100) == []
    assert tracker.defer(0, 90, Reply(TO)) == []
    assert tracker.confirmed == 100, "readers may have it all the same"
    assert tracker.expire(2_999) == []
    quorum.sure = True
    assert codes(tracker.expire(2_999)) == [Code.SUCCESS, Code.SUCCESS]


def test_who_does_not_wait_is_answered_at_once(tracker, quorum) -> None:
    quorum.sure = False
    assert codes(tracker.defer(0, 100, Reply(TO), wait=False)) == [Code.SUCCESS]


def test_after_too_long_a_message_is_stored_here_and_a_decision_is_open(tracker) -> None:
    tracker.defer(1_000, 100, Reply(TO))
    tracker.defer(1_000, 100, Reply(TO), decision=True)
    tracker.defer(1_001, 100, Reply(TO))
    assert tracker.expire(3_999) == []
    message, decision = tracker.expire(4_000)
    assert (message.code, message.remark) == (
        Code.FLUSH_SLAVE_TIMEOUT,
        "stored here; no majority replicated it in time",
    )
    assert decision.code == Code.OUTCOME_UNKNOWN
    assert tracker.pending == 1


def test_who_leads_no_more_tells_all_who_wait_that_nobody_knows(tracker) -> None:
    tracker.defer(0, 100, Reply(TO))
    tracker.defer(0, 100, Reply(TO), decision=True)
    answers = tracker.fail("n1 leads now")
    assert codes(answers) == [Code.OUTCOME_UNKNOWN, Code.OUTCOME_UNKNOWN]
    assert "n1 leads now" in answers[0].remark
    assert codes(tracker.defer(0, 30, Reply(TO))) == [Code.OUTCOME_UNKNOWN]
    assert codes(tracker.defer(0, 100, Reply(TO), wait=False)) == [Code.OUTCOME_UNKNOWN]
    assert tracker.confirmed == 40


def test_confirmed_never_falls_and_never_runs_ahead(tracker) -> None:
    tracker.confirmed_to(90)
    tracker.confirmed_to(80)
    assert tracker.confirmed == 90
    with pytest.raises(AssertionError):
        tracker.confirmed_to(101)
