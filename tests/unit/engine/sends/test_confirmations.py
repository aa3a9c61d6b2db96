"""When a sender may be answered."""

import pytest

from kourou.engine.effects import Flush
from kourou.engine.sends.confirmations import Confirmations
from kourou.errors import Code
from kourou.runtime.core import Peer, Reply, ReplyTo

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


def confirmations(*, sync: bool) -> Confirmations:
    return Confirmations(sync_flush=sync, flush_timeout_ms=5_000, end=0, flushed=0)


@pytest.mark.feature("F096")
def test_async_flush_answers_when_appended() -> None:
    desk = confirmations(sync=False)
    desk.append(100)
    reply = Reply(TO)
    assert desk.owe(0, 100, reply) == [reply]
    assert desk.want_flush() == []
    assert desk.confirmed == 100


@pytest.mark.feature("F102", "F106")
def test_staged_appends_are_answered_at_once_and_read_when_written() -> None:
    desk = Confirmations(sync_flush=False, flush_timeout_ms=1, end=0, flushed=0, staged=True)
    desk.append(100)
    reply = Reply(TO)
    assert desk.owe(0, 100, reply) == [reply]
    assert desk.want_flush() == []
    assert desk.confirmed == 0
    desk.append(200)
    desk.written_to(100)
    assert desk.confirmed == 100
    desk.flushed_to(100)
    desk.written_to(200)
    assert desk.confirmed == 200
    desk.fail("EIO")
    assert desk.confirmed == 100, "after a failure only what is flushed is sure"


@pytest.mark.feature("F094", "F095")
def test_sync_flush_answers_when_flushed_and_one_flush_serves_a_batch() -> None:
    desk = confirmations(sync=True)
    first, second, third = Reply(TO), Reply(TO), Reply(TO)
    desk.append(100)
    assert desk.owe(0, 100, first) == []
    desk.append(200)
    assert desk.owe(0, 200, second) == []
    assert desk.want_flush() == [Flush()]
    assert desk.want_flush() == []
    desk.append(300)
    assert desk.owe(0, 300, third) == []
    assert desk.confirmed == 0
    assert desk.flushed_to(200) == [first, second]
    assert desk.confirmed == 200
    assert desk.flushed_to(300) == [third]


def test_a_sender_that_does_not_wait_is_answered_at_once() -> None:
    desk = confirmations(sync=True)
    desk.append(100)
    reply = Reply(TO)
    assert desk.owe(0, 100, reply, wait=False) == [reply]
    assert desk.confirmed == 0, "readers still wait for the flush"


@pytest.mark.feature("F167")
def test_a_slow_flush_is_told_as_stored_but_not_promised() -> None:
    desk = confirmations(sync=True)
    desk.append(100)
    reply = Reply(TO)
    desk.owe(1_000, 100, reply)
    assert desk.expire(5_999) == []
    assert desk.expire(6_000) == [reply]
    assert reply.code == Code.FLUSH_DISK_TIMEOUT
    assert desk.flushed_to(100) == [], "it was answered once"


def test_after_a_failed_flush_nobody_is_promised_anything() -> None:
    desk = confirmations(sync=False)
    desk.append(100)
    desk.flushed_to(60)
    owed = Reply(TO)
    sync = confirmations(sync=True)
    sync.append(100)
    sync.owe(0, 100, owed)
    (answer,) = sync.fail("EIO")
    assert isinstance(answer, Reply)
    assert answer.code == Code.OUTCOME_UNKNOWN
    assert sync.flushed_to(100) == []
    desk.fail("EIO")
    assert desk.confirmed == 60, "reads stop at the last good flush"
