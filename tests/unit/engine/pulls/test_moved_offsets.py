"""Every corrected pull is noted in OFFSET_MOVED_EVENT, within limits, and none is spoiled by it."""

import pytest

from kourou.engine.effects import Append
from kourou.engine.inputs import Dispatched, Flushed, SpaceChanged
from kourou.engine.pulls import moved_offsets
from kourou.errors import Code
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import OffsetMoved, decode_offset_moved
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.runtime import LogWarning, Reply, Tick
from kourou_rigs.engine import Engine, pull

TOPIC = "OFFSET_MOVED_EVENT"


@pytest.fixture
def filled(engine, draft, records) -> Engine:
    """Three messages in queue 0, none in the others; a group g."""
    engine.ask(*records([draft() for _ in range(3)]))
    for group in (b"g", b"h"):
        engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"%s"}' % group)
    return engine


def notes(engine: Engine) -> list[OffsetMoved]:
    return [decode_offset_moved(message.body) for message in engine.stored(TOPIC)]


def moved(asked: int, given: int, queue_id: int = 0, group: str = "g") -> OffsetMoved:
    return OffsetMoved(group, MessageQueue("orders", "broker-a", queue_id), asked, given)


def kinds(effects: list) -> list[type]:
    return [type(effect) for effect in effects if isinstance(effect, Append | Reply)]


def test_so_many_are_noted_a_second_and_no_more(filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_offsets, "OFFSET_MOVED_QUEUES_MAX", 2)
    for queue_id in range(4):
        assert filled.ask(pull(9, queue_id)).code == Code.PULL_OFFSET_MOVED
    assert [note.queue.queue_id for note in notes(filled)] == [0, 1]
    filled.advance(1_000)
    for queue_id in (3, 2, 1, 0):
        filled.ask(pull(9, queue_id))
    assert [note.queue.queue_id for note in notes(filled)] == [0, 1, 3, 2]
    filled.advance(999)
    filled.ask(pull(9, 0))
    assert len(notes(filled)) == 4


@pytest.mark.fault
@pytest.mark.parametrize("way", ["full", "allocating", "refusing"])
def test_a_note_that_cannot_be_stored_spoils_no_answer(filled, way) -> None:
    """And it is told once, not for each."""
    parts = filled.core.parts
    if way == "refusing":
        parts.pressure.refusing = True
    else:
        parts.appends._allocated_end = filled.store.end
        filled.handle(SpaceChanged(0, full=way == "full"))
    end = filled.store.end
    for queue_id, given in ((0, 3), (1, 0), (2, 0)):
        reply = filled.ask(pull(9, queue_id))
        assert (reply.code, reply.remark) == (Code.PULL_OFFSET_MOVED, "OFFSET_ILLEGAL")
        assert reply.header.next_begin_offset == given
    assert filled.ask(pull(0)).code == Code.SUCCESS
    assert filled.store.end == end
    warnings = [effect.sentence for effect in filled.effects if isinstance(effect, LogWarning)]
    assert len(warnings) == 1
    assert warnings[0].startswith("corrected offsets are not recorded: ")
    parts.pressure.refusing = False
    filled.handle(SpaceChanged(1 << 40, full=False))
    filled.ask(pull(9, 3))
    assert notes(filled) == [moved(9, 0, 3)]
    parts.pressure.refusing = True
    filled.advance(1_000)
    filled.ask(pull(9, 3))
    warnings = [effect for effect in filled.effects if isinstance(effect, LogWarning)]
    assert len(warnings) == 2, "it is news again"


def test_a_pull_that_waited_is_noted_too_and_before_its_answer(filled, draft, records) -> None:
    """Its queue went and came back, and goes on counting: offset 0 is gone for good."""
    filled.ask(DeleteTopicInBroker(topic="orders"))
    filled.ask(*records([draft(queue_id=1)], [("orders", 1)]))
    name = filled.send(pull(0, wait_ms=10_000), peer=2)
    assert name not in filled.replies
    _, received = filled.received(*records([draft()]))
    effects = filled.core.handle(filled.now_ms, [received])
    for effect in effects:
        if isinstance(effect, Append):
            filled.store.append(effect)
    woken = filled.core.handle(filled.now_ms, [Dispatched(filled.store.dispatch())])
    assert kinds(woken) == [Append, Reply]
    assert woken[-1].code == Code.PULL_OFFSET_MOVED
    filled._perform(woken)
    assert notes(filled) == [moved(0, 3)]


def test_a_pull_whose_time_is_up_is_noted_before_its_answer(filled) -> None:
    filled.send(pull(3, wait_ms=1_000))
    filled.store.firsts["orders", 0] = 5
    effects = filled.core.handle(filled.now_ms + 1_000, [Tick(filled.wall_ms + 1_000)])
    assert kinds(effects) == [Append, Reply]
    filled._perform(effects)
    assert notes(filled) == [moved(3, 5)]


def test_nobody_waits_for_a_note_to_reach_the_disk(draft, records) -> None:
    engine = Engine(sync_flush=True)
    engine.send(*records([draft()]))
    engine.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    engine.flush()
    assert engine.ask(pull(9)).code == Code.PULL_OFFSET_MOVED
    assert notes(engine) == [moved(9, 1)]
    read = pull(topic=TOPIC)
    assert engine.ask(read).code == Code.PULL_NOT_FOUND, "but its readers do"
    engine.flush()
    assert engine.ask(read).code == Code.SUCCESS


def test_a_pull_that_waited_for_the_flush_is_noted_before_its_answer(draft, records) -> None:
    engine = Engine(sync_flush=True)
    engine.send(*records([draft()]))
    engine.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    engine.flush()
    _, held = engine.received(pull(1, wait_ms=10_000), peer=2)
    engine.handle(held)
    engine.send(*records([draft()]))
    engine.store.firsts["orders", 0] = 5
    woken = engine.core.handle(engine.now_ms, [Flushed(engine.store.end)])
    (answer,) = [at for at, one in enumerate(woken) if getattr(one, "to", None) == held.to]
    assert Append in [type(effect) for effect in woken[:answer]]
