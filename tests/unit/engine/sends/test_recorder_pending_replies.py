"""Answering whoever caused control events."""

import pytest

from kourou.engine.inputs import StoreFailed
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou_rigs.engine import Engine

REQUEST = UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=6)


@pytest.mark.feature("F094")
def test_what_changes_nothing_waits_for_what_was_changed_before() -> None:
    engine = Engine(sync_flush=True)
    engine.send(REQUEST)
    again = engine.send(REQUEST)
    assert again not in engine.replies, "the topic may still vanish with the power"
    engine.flush()
    assert engine.replies[again].code == Code.SUCCESS
    events = len(engine.events())
    assert engine.ask(REQUEST).code == Code.SUCCESS, "now nothing is unconfirmed"
    assert len(engine.events()) == events


@pytest.mark.parametrize("sync_flush", [True, False])
def test_a_failed_store_promises_nothing(sync_flush) -> None:
    engine = Engine(sync_flush=sync_flush)
    first = engine.send(REQUEST)
    engine.handle(StoreFailed("EIO"))
    if sync_flush:
        assert engine.replies[first].code == Code.OUTCOME_UNKNOWN
    assert engine.ask(REQUEST).code == Code.OUTCOME_UNKNOWN, "unchanged, but not on disk either"


def test_the_event_names_its_cause(engine) -> None:
    name, received = engine.received(REQUEST)
    received.trace = bytes(range(16)) + bytes(9)
    engine.handle(received)
    assert engine.replies[name].code == Code.SUCCESS
    told = engine.events()[-1].body
    assert b'"trace_id":"000102030405060708090a0b0c0d0e0f"' in told
    assert b'"actor":"local:127.0.0.1:40001#1"' in told
    assert b'"reason":"UpdateAndCreateTopic"' in told
