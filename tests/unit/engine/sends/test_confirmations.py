"""When a sender may be answered."""

from __future__ import annotations

import pytest

from kourou.engine.effects import Flush
from kourou.engine.sends.confirmations import CommitStart, Confirmations, QuorumConfirmations
from kourou.errors import Code
from kourou.runtime import Peer, Reply, ReplyTo
from kourou_rigs.quorum import GivenQuorum

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


def confirmations(*, sync: bool) -> Confirmations:
    return Confirmations(CommitStart(0, 0, sync_flush=sync, flush_timeout_ms=5_000))


@pytest.mark.feature("F096")
def test_async_flush_answers_when_appended() -> None:
    tracker = confirmations(sync=False)
    tracker.append(100)
    reply = Reply(TO)
    assert tracker.defer(0, 100, reply) == [reply]
    assert tracker.take_flush() == []
    assert tracker.confirmed == 100


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


@pytest.mark.feature("F094", "F095")
def test_sync_flush_answers_when_flushed_and_one_flush_serves_a_batch() -> None:
    tracker = confirmations(sync=True)
    first, second, third = Reply(TO), Reply(TO), Reply(TO)
    tracker.append(100)
    assert tracker.defer(0, 100, first) == []
    tracker.append(200)
    assert tracker.defer(0, 200, second) == []
    assert tracker.take_flush() == [Flush()]
    assert tracker.take_flush() == []
    tracker.append(300)
    assert tracker.defer(0, 300, third) == []
    assert tracker.confirmed == 0
    assert tracker.flushed_to(200) == [first, second]
    assert tracker.confirmed == 200
    assert tracker.flushed_to(300) == [third]


def test_a_sender_that_does_not_wait_is_answered_at_once() -> None:
    tracker = confirmations(sync=True)
    tracker.append(100)
    reply = Reply(TO)
    assert tracker.defer(0, 100, reply, wait=False) == [reply]
    assert tracker.confirmed == 0, "readers still wait for the flush"


@pytest.mark.feature("F167")
def test_a_slow_flush_is_reported_as_stored_but_not_promised() -> None:
    tracker = confirmations(sync=True)
    tracker.append(100)
    reply = Reply(TO)
    tracker.defer(1_000, 100, reply)
    assert tracker.expire(5_999) == []
    assert tracker.expire(6_000) == [reply]
    assert reply.code == Code.FLUSH_DISK_TIMEOUT
    assert tracker.flushed_to(100) == [], "it was answered once"


def test_after_a_failed_flush_nobody_is_promised_anything() -> None:
    tracker = confirmations(sync=False)
    tracker.append(100)
    tracker.flushed_to(60)
    owed = Reply(TO)
    sync = confirmations(sync=True)
    sync.append(100)
    sync.defer(0, 100, owed)
    (answer,) = sync.fail("EIO")
    assert isinstance(answer, Reply)
    assert answer.code == Code.OUTCOME_UNKNOWN
    assert sync.flushed_to(100) == []
    tracker.fail("EIO")
    assert tracker.confirmed == 60, "reads stop at the last good flush"


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


@pytest.mark.feature("F160")
def test_only_what_a_majority_has_is_answered_and_read(tracker) -> None:
    assert tracker.confirmed == 40, "not even what was on this disk before it led"
    assert tracker.defer(0, 100, Reply(TO)) == []
    assert tracker.flushed_to(100) == []
    assert tracker.confirmed_to(99) == []
    assert (tracker.confirmed, tracker.pending) == (99, 1)
    assert codes(tracker.confirmed_to(100)) == [Code.SUCCESS]
    assert (tracker.confirmed, tracker.pending) == (100, 0)
    assert tracker.take_flush() == [], "whoever ships flushes"


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
