"""When a sender may be answered."""

import pytest

from kourou.engine.effects import Flush
from kourou.engine.sends.confirmations import CommitStart, Confirmations
from kourou.errors import Code
from kourou.runtime.core import Peer, Reply, ReplyTo

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


def confirmations(*, sync: bool) -> Confirmations:
    return Confirmations(CommitStart(0, 0, sync_flush=sync, flush_timeout_ms=5_000))


@pytest.mark.feature("F096")
def test_async_flush_answers_when_appended() -> None:
    tracker = confirmations(sync=False)
    tracker.append(100)
    reply = Reply(TO)
    assert tracker.defer(0, 100, reply) == [reply]
    assert tracker.want_flush() == []
    assert tracker.confirmed == 100


@pytest.mark.feature("F102", "F106")
def test_staged_appends_are_answered_at_once_and_read_when_written() -> None:
    tracker = Confirmations(CommitStart(0, 0, flush_timeout_ms=1, staged=True))
    tracker.append(100)
    reply = Reply(TO)
    assert tracker.defer(0, 100, reply) == [reply]
    assert tracker.want_flush() == []
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
    assert tracker.want_flush() == [Flush()]
    assert tracker.want_flush() == []
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
