"""When a sender may be answered that waits for followers."""

from __future__ import annotations

import pytest

from kourou.engine.effects import Flush
from kourou.engine.sends.confirmations import CopiedConfirmations
from kourou.errors import Code
from kourou.runtime.core import Peer, Reply, ReplyTo

TO = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 7)


def confirmations(*, sync: bool = False, staged: bool = False) -> CopiedConfirmations:
    return CopiedConfirmations(
        sync_flush=sync, flush_timeout_ms=5_000, end=0, flushed=0, staged=staged,
        slave_timeout_ms=3_000,
    )  # fmt: skip


def codes(effects: list) -> list[int]:
    return [effect.code for effect in effects]


@pytest.mark.feature("F128", "F129", "F141")
def test_a_sender_is_answered_when_every_member_has_its_bytes() -> None:
    desk = confirmations()
    desk.copied_to(0, 1)
    desk.append(100)
    assert desk.owe(0, 100, Reply(TO)) == []
    assert desk.want_flush() == []
    assert desk.confirmed == 0, "readers wait for the copy, too"
    assert desk.copied_to(99, 1) == []
    assert desk.owed == 1
    assert codes(desk.copied_to(100, 1)) == [Code.SUCCESS]
    assert (desk.confirmed, desk.owed) == (100, 0)


def test_who_does_not_wait_is_answered_at_once() -> None:
    desk = confirmations()
    desk.copied_to(0, 1)
    desk.append(100)
    assert codes(desk.owe(0, 100, Reply(TO), wait=False)) == [Code.SUCCESS]
    assert desk.confirmed == 0


def test_with_nobody_in_the_set_the_leader_confirms_alone_and_says_so() -> None:
    desk = confirmations()
    desk.append(100)
    (reply,) = desk.owe(0, 100, Reply(TO))
    assert (reply.code, reply.remark) == (
        Code.SLAVE_NOT_AVAILABLE,
        "stored; no follower is connected to replicate it",
    )
    assert desk.confirmed == 100
    assert codes(desk.owe(0, 100, Reply(TO), decision=True)) == [Code.SUCCESS]


def test_whoever_waits_when_the_last_member_leaves_is_told() -> None:
    desk = confirmations()
    desk.copied_to(0, 1)
    desk.append(100)
    desk.owe(0, 100, Reply(TO))
    desk.owe(0, 100, Reply(TO), decision=True)
    assert codes(desk.copied_to(0, 0)) == [Code.FLUSH_SLAVE_TIMEOUT, Code.SUCCESS]
    assert desk.confirmed == 100


def test_who_waits_too_long_is_told_that_it_is_stored() -> None:
    desk = confirmations()
    desk.copied_to(0, 1)
    desk.append(100)
    desk.owe(1_000, 100, Reply(TO))
    desk.owe(1_000, 100, Reply(TO), decision=True)
    assert desk.expire(3_999) == []
    assert codes(desk.expire(4_000)) == [Code.FLUSH_SLAVE_TIMEOUT]
    assert desk.owed == 1, "a decision waits until it is sure, or the follower has left"
    assert codes(desk.copied_to(100, 1)) == [Code.SUCCESS]


def test_with_sync_flush_both_are_waited_for() -> None:
    desk = confirmations(sync=True)
    desk.copied_to(0, 1)
    desk.append(100)
    desk.owe(0, 100, Reply(TO))
    assert desk.want_flush() == [Flush()]
    assert desk.copied_to(100, 1) == []
    assert desk.confirmed == 0
    assert codes(desk.flushed_to(100)) == [Code.SUCCESS]
    desk.append(200)
    desk.owe(0, 200, Reply(TO))
    desk.copied_to(200, 1)
    assert desk.expire(4_999) == [], "it is copied: the disk may take its own time"
    assert codes(desk.expire(5_000)) == [Code.FLUSH_DISK_TIMEOUT]


def test_without_a_follower_a_sender_still_waits_for_the_disk() -> None:
    desk = confirmations(sync=True)
    desk.append(100)
    assert desk.owe(0, 100, Reply(TO)) == []
    assert desk.want_flush() == [Flush()]
    assert codes(desk.flushed_to(100)) == [Code.SLAVE_NOT_AVAILABLE]


def test_what_was_confirmed_stays_so_when_a_follower_that_lacks_it_joins() -> None:
    desk = confirmations()
    desk.append(100)
    assert desk.confirmed == 100
    desk.copied_to(40, 1)
    assert desk.confirmed == 100
    desk.append(200)
    assert desk.confirmed == 100
    desk.copied_to(200, 1)
    assert desk.confirmed == 200
    desk.copied_to(150, 2)
    assert desk.confirmed == 200


def test_staged_bytes_are_copied_when_they_are_written_and_answered_then() -> None:
    desk = confirmations(staged=True)
    desk.copied_to(0, 1)
    desk.append(100)
    assert desk.owe(0, 100, Reply(TO)) == []
    desk.written_to(100)
    assert codes(desk.copied_to(100, 1)) == [Code.SUCCESS]


def test_after_a_failure_nothing_more_is_promised() -> None:
    desk = confirmations()
    desk.copied_to(0, 1)
    desk.append(100)
    desk.flushed_to(50)
    desk.owe(0, 100, Reply(TO))
    assert codes(desk.fail("EIO")) == [Code.OUTCOME_UNKNOWN]
    assert desk.copied_to(100, 1) == []
    assert desk.confirmed == 50
    assert codes(desk.owe(0, 100, Reply(TO))) == [Code.OUTCOME_UNKNOWN]
