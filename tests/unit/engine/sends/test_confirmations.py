"""When a sender may be answered; what senders see of it is in transcripts and with the roles."""

from __future__ import annotations

import pytest

from kourou.engine.sends.confirmations import CommitStart, Confirmations, QuorumConfirmations
from kourou.errors import Code
from kourou.runtime import Peer, Reply, ReplyTo
from kourou_rigs.quorum import GivenQuorum

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


@pytest.mark.feature("F102", "F106")
def test_staged_appends_are_answered_at_once_and_read_when_written() -> None:
    tracker = Confirmations(CommitStart(0, 0, flush_timeout_ms=1, staged=True))
    tracker.append(100)
    reply = Reply(TO)
    assert tracker.defer(0, 100, reply) == [reply]
    assert tracker.take_flush() == []
    assert tracker.confirmed == 0
    tracker.append(200)
    tracker.written_to(100)
    assert tracker.confirmed == 100
    tracker.flushed_to(100)
    tracker.written_to(200)
    assert tracker.confirmed == 200
    tracker.fail("EIO")
    assert tracker.confirmed == 100, "after a failure only what is flushed is sure"


# -- when a sender may be answered whose records a majority has to hold ----------------------------


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


def test_what_is_confirmed_already_is_answered_at_once(tracker) -> None:
    tracker.confirmed_to(100)
    assert codes(tracker.defer(0, 100, Reply(TO), decision=True)) == [Code.SUCCESS]


def test_who_does_not_wait_is_answered_at_once(tracker, quorum) -> None:
    quorum.sure = False
    assert codes(tracker.defer(0, 100, Reply(TO), wait=False)) == [Code.SUCCESS]


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
