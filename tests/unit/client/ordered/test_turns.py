"""A turn: a handler is called in a loop, and looks before each call whether it may go on."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from kourou.client.introspection.running_info import ConsumeLog
from kourou.client.ordered.locks import HOLD_MS, HeldLock
from kourou.client.ordered.turns import (
    TURN_MS,
    DeliveryTurn,
    SingleTurn,
    TurnLog,
    plain_turns,
)


class Clock:
    now = 0

    def now_ms(self) -> int:
        return self.now

    monotonic_ms = now_ms


class MessageLease:
    def __init__(self) -> None:
        self.window = SimpleNamespace(dropped=False)
        self.asked: dict[int, BaseException | None] = {}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock) -> ConsumeLog:
    return ConsumeLog(clock, logging.DEBUG)


@pytest.fixture
def lease() -> MessageLease:
    return MessageLease()


@pytest.fixture
def turn(clock, lease) -> DeliveryTurn:
    queue = SimpleNamespace(topic="T")
    items = [SimpleNamespace(offset=n, lease=lease, queue=queue, attempt=1) for n in range(5)]
    return DeliveryTurn(items, HeldLock(0), clock)


def seen_by(turn, log, do=lambda message: None) -> list[int]:
    seen: list[int] = []

    def handler(message):
        assert turn.calling
        seen.append(message.offset)
        return do(message)

    try:
        plain_turns(handler, log)(turn)
    finally:
        assert not turn.calling
    return seen


def test_its_time_is_over(turn, log, clock) -> None:
    def do(message):
        clock.now += TURN_MS // 2

    assert seen_by(turn, log, do) == [0, 1]


def test_one_item_is_consumed_however_late_it_is(turn, log, clock, monkeypatch) -> None:
    monkeypatch.setattr("kourou.client.ordered.turns.TURN_MS", 0)
    assert seen_by(turn, log) == [0]


def test_the_queue_has_another_window(turn, log, lease) -> None:
    lease.window.dropped = True
    assert seen_by(turn, log) == []


def test_of_a_list_all_have_to_be_acknowledged(clock, log, lease) -> None:
    queue = SimpleNamespace(topic="T")
    both = [SimpleNamespace(offset=n, lease=lease, queue=queue) for n in range(2)]
    for asked, done in (({0: None, 1: None}, 1), ({0: None}, 0)):
        turn = DeliveryTurn([both], HeldLock(0), clock)
        lease.asked = dict(asked)

        def handler(_messages):
            raise ValueError("no")

        try:
            plain_turns(handler, log)(turn)
        except ValueError:
            assert done == 0
        assert turn.done == done


def test_a_message_from_outside_is_handed_over_once(clock, log) -> None:
    seen = []
    message = SimpleNamespace(lease=None)
    turn = SingleTurn([message], HeldLock(-HOLD_MS), clock)

    def handler(item):
        seen.append(item)

    plain_turns(handler, log)(turn)
    assert seen == [message]


def test_the_runner_measures_nothing_and_tells_what_turns_measured(turn, log, clock) -> None:
    def do(message):
        clock.now += 3

    runners = TurnLog(log)
    assert runners.begin(measured=True) < 0
    runners.consumed(turn, 0)
    seen_by(turn, log, do)
    assert runners.collect() == [3]
