"""Each request ends once, and only one that may lie undelivered costs the socket."""

from __future__ import annotations

import pytest

from kourou.model import limits
from kourou.transport.pending_requests import NEVER_MS, Outcome, Pending, PendingRequests


def request(deadline_ms: int = 100, give_up_ms: int | None = None, size: int = 10) -> Pending:
    def ended(outcome: Outcome) -> None:
        raise AssertionError(outcome)

    return Pending(ended, deadline_ms, give_up_ms or deadline_ms, [bytes(size)])


def sent(deadline_ms: int = 100) -> Pending:
    one = request(deadline_ms)
    one.parts = None
    return one


def test_an_answer_finds_its_request_once() -> None:
    pending = PendingRequests()
    one = sent()
    pending.add_sent(1, one)
    assert pending.in_flight == 1
    assert pending.answered(2) is None
    assert pending.answered(1) is one
    assert pending.answered(1) is None
    assert pending.in_flight == 0


def test_what_never_left_cannot_be_answered() -> None:
    pending = PendingRequests()
    pending.add_waiting(1, request())
    assert pending.answered(1) is None
    assert pending.waiting == 1


def test_waiting_requests_leave_in_order() -> None:
    pending = PendingRequests()
    first, oneway = request(), Pending(None, 100, 100, [b"abc"])
    assert pending.add_waiting(1, first)
    assert pending.add_waiting(2, oneway)
    assert pending.waiting_bytes == 13
    assert pending.first_waiting() is first
    first.parts = None
    pending.first_left()
    assert pending.first_waiting() is oneway
    oneway.parts = None
    pending.first_left()
    assert pending.first_waiting() is None
    assert (pending.waiting, pending.waiting_bytes, pending.in_flight) == (0, 0, 1)


def test_the_waiting_room_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOCKET_HWM_MESSAGES", 2)
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 25)
    pending = PendingRequests()
    assert pending.add_waiting(1, request())
    assert not pending.add_waiting(2, request(size=16))
    assert pending.add_waiting(3, request())
    assert not pending.add_waiting(4, request(size=0))


def test_a_silent_request_is_a_zombie_unless_a_later_one_was_answered() -> None:
    pending = PendingRequests()
    pending.add_sent(1, sent(deadline_ms=10))
    pending.add_sent(2, sent(deadline_ms=50))
    pending.add_sent(3, sent(deadline_ms=50))
    pending.answered(2)
    first = pending.expire(10)
    assert (len(first.left), first.zombie, first.next_check_ms) == (1, False, 50)
    last = pending.expire(50)
    assert (len(last.left), last.zombie, last.next_check_ms) == (1, True, NEVER_MS)


def test_what_waits_gives_up_by_its_own_time() -> None:
    pending = PendingRequests()
    pending.add_waiting(1, request(deadline_ms=100, give_up_ms=20))
    pending.add_waiting(2, request(deadline_ms=100, give_up_ms=30))
    expired = pending.expire(20)
    assert (len(expired.never_left), expired.zombie, expired.next_check_ms) == (1, False, 30)
    assert (pending.waiting, pending.waiting_bytes) == (1, 10)
    one = pending.first_waiting()
    assert one is not None
    one.parts = None
    pending.first_left()
    assert pending.expire(99).left == []
    assert pending.expire(100).left == [one]


def test_taking_out() -> None:
    pending = PendingRequests()
    gone, waits = sent(), request()
    pending.add_sent(1, gone)
    pending.add_waiting(2, waits)
    assert pending.take_sent() == [gone]
    assert pending.take_all() == [waits]
    assert (pending.in_flight, pending.waiting, pending.waiting_bytes) == (0, 0, 0)
