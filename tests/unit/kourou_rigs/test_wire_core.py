"""The real core behind a wire: time passes when a test says so, and flushes may be held."""

from __future__ import annotations

import pytest

from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.messages.sends import SendMessage
from kourou_rigs.wire_broker import Answer
from kourou_rigs.wire_core import CoreBroker


class Wire:
    def __init__(self) -> None:
        self.closed = False
        self.replies: list[Answer] = []

    def reply(self, correlation, answer):
        self.replies.append(answer)

    def hear(self, request, body=b""):
        raise AssertionError("no client is notified here")


@pytest.fixture
def broker():
    return CoreBroker("b", "b:20911", 1, {"T": (1, 1)}, {})


async def test_it_answers_and_shows_what_it_keeps(broker):
    wire = Wire()
    sent = SendMessage(producer_group="p", topic="T", queue_id=0, born_timestamp=1)
    assert broker.answer(wire, 1, sent, b"x") is None
    assert broker.answer(wire, 2, GetMaxOffset(topic="T", queue_id=0), b"") is None
    assert [answer.code for answer in wire.replies] == [0, 0]
    assert [message.body for message in broker.stored("T")] == [b"x"]
    wire.closed = True


async def test_held_flushes_hold_the_answers(broker):
    wire = Wire()
    broker.hold_flushes()
    broker.answer(
        wire, 1, SendMessage(producer_group="p", topic="T", queue_id=0, born_timestamp=1), b"x"
    )
    assert wire.replies == []
    broker.flush()
    assert [answer.code for answer in wire.replies] == [0]
    wire.closed = True
