"""When a sender may be answered that waits for followers."""

from __future__ import annotations

import pytest

from kourou.engine.effects import Flush
from kourou.engine.sends.confirmations import CommitStart, CopiedConfirmations
from kourou.errors import Code
from kourou.runtime import Peer, Reply, ReplyTo

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


def confirmations(*, sync: bool = False, staged: bool = False) -> CopiedConfirmations:
    start = CommitStart(0, 0, sync_flush=sync, flush_timeout_ms=5_000, staged=staged)
    return CopiedConfirmations(start, slave_timeout_ms=3_000)


def codes(effects: list) -> list[int]:
    return [effect.code for effect in effects]


@pytest.mark.feature("F128", "F129", "F141")
def test_a_sender_is_answered_when_every_member_has_its_bytes() -> None:
    tracker = confirmations()
    tracker.copied_to(0, 1)
    tracker.append(100)
    assert tracker.defer(0, 100, Reply(TO)) == []
    assert tracker.take_flush() == []
    assert tracker.confirmed == 0, "readers wait for the copy, too"
    assert tracker.copied_to(99, 1) == []
    assert tracker.pending == 1
    assert codes(tracker.copied_to(100, 1)) == [Code.SUCCESS]
    assert (tracker.confirmed, tracker.pending) == (100, 0)


def test_who_does_not_wait_is_answered_at_once() -> None:
    tracker = confirmations()
    tracker.copied_to(0, 1)
    tracker.append(100)
    assert codes(tracker.defer(0, 100, Reply(TO), wait=False)) == [Code.SUCCESS]
    assert tracker.confirmed == 0


def test_with_nobody_in_the_set_the_leader_confirms_alone_and_says_so() -> None:
    tracker = confirmations()
    tracker.append(100)
    (reply,) = tracker.defer(0, 100, Reply(TO))
    assert (reply.code, reply.remark) == (
        Code.SLAVE_NOT_AVAILABLE,
        "stored; no follower is connected to replicate it",
    )
    assert tracker.confirmed == 100
    assert codes(tracker.defer(0, 100, Reply(TO), decision=True)) == [Code.SUCCESS]


def test_whoever_waits_when_the_last_member_leaves_is_reported() -> None:
    tracker = confirmations()
    tracker.copied_to(0, 1)
    tracker.append(100)
    tracker.defer(0, 100, Reply(TO))
    tracker.defer(0, 100, Reply(TO), decision=True)
    assert codes(tracker.copied_to(0, 0)) == [Code.FLUSH_SLAVE_TIMEOUT, Code.SUCCESS]
    assert tracker.confirmed == 100


def test_who_waits_too_long_is_reported_that_it_is_stored() -> None:
    tracker = confirmations()
    tracker.copied_to(0, 1)
    tracker.append(100)
    tracker.defer(1_000, 100, Reply(TO))
    tracker.defer(1_000, 100, Reply(TO), decision=True)
    assert tracker.expire(3_999) == []
    assert codes(tracker.expire(4_000)) == [Code.FLUSH_SLAVE_TIMEOUT]
    assert tracker.pending == 1, "a decision waits until it is sure, or the follower has left"
    assert codes(tracker.copied_to(100, 1)) == [Code.SUCCESS]


def test_with_sync_flush_both_are_waited_for() -> None:
    tracker = confirmations(sync=True)
    tracker.copied_to(0, 1)
    tracker.append(100)
    tracker.defer(0, 100, Reply(TO))
    assert tracker.take_flush() == [Flush()]
    assert tracker.copied_to(100, 1) == []
    assert tracker.confirmed == 0
    assert codes(tracker.flushed_to(100)) == [Code.SUCCESS]
    tracker.append(200)
    tracker.defer(0, 200, Reply(TO))
    tracker.copied_to(200, 1)
    assert tracker.expire(4_999) == [], "it is copied: the disk may take its own time"
    assert codes(tracker.expire(5_000)) == [Code.FLUSH_DISK_TIMEOUT]


def test_without_a_follower_a_sender_still_waits_for_the_disk() -> None:
    tracker = confirmations(sync=True)
    tracker.append(100)
    assert tracker.defer(0, 100, Reply(TO)) == []
    assert tracker.take_flush() == [Flush()]
    assert codes(tracker.flushed_to(100)) == [Code.SLAVE_NOT_AVAILABLE]


def test_what_was_confirmed_stays_so_when_a_follower_that_lacks_it_joins() -> None:
    tracker = confirmations()
    tracker.append(100)
    assert tracker.confirmed == 100
    tracker.copied_to(40, 1)
    assert tracker.confirmed == 100
    tracker.append(200)
    assert tracker.confirmed == 100
    tracker.copied_to(200, 1)
    assert tracker.confirmed == 200
    tracker.copied_to(150, 2)
    assert tracker.confirmed == 200


def test_staged_bytes_are_copied_when_they_are_written_and_answered_then() -> None:
    tracker = confirmations(staged=True)
    tracker.copied_to(0, 1)
    tracker.append(100)
    assert tracker.defer(0, 100, Reply(TO)) == []
    tracker.written_to(100)
    assert codes(tracker.copied_to(100, 1)) == [Code.SUCCESS]


def test_after_a_failure_nothing_more_is_promised() -> None:
    tracker = confirmations()
    tracker.copied_to(0, 1)
    tracker.append(100)
    tracker.flushed_to(50)
    tracker.defer(0, 100, Reply(TO))
    assert codes(tracker.fail("EIO")) == [Code.OUTCOME_UNKNOWN]
    assert tracker.copied_to(100, 1) == []
    assert tracker.confirmed == 50
    assert codes(tracker.defer(0, 100, Reply(TO))) == [Code.OUTCOME_UNKNOWN]
