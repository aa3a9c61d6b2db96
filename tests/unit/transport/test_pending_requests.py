"""Each request ends once, and only one that may lie undelivered costs the socket."""

from __future__ import annotations

import pytest

from kourou.model import limits
from kourou.transport.pending_requests import Outcome, Pending, PendingRequests


def request(deadline_ms: int = 100, give_up_ms: int | None = None, size: int = 10) -> Pending:
    def ended(outcome: Outcome) -> None:
        raise AssertionError(outcome)

    return Pending(ended, deadline_ms, give_up_ms or deadline_ms, [bytes(size)])


def test_what_never_left_cannot_be_answered() -> None:
    pending = PendingRequests()
    pending.add_waiting(1, request())
    assert pending.answered(1) is None
    assert pending.waiting == 1


def test_the_waiting_room_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOCKET_HWM_MESSAGES", 2)
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 25)
    pending = PendingRequests()
    assert pending.add_waiting(1, request())
    assert not pending.add_waiting(2, request(size=16))
    assert pending.add_waiting(3, request())
    assert not pending.add_waiting(4, request(size=0))


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
