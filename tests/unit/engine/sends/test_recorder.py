"""How a decision becomes a fact."""

from __future__ import annotations

import pytest

from kourou.engine.control import ControlState, encode_state, evolve
from kourou.engine.effects import Append, ConfigChanged
from kourou.engine.inputs import SpaceChanged, StoreFailed
from kourou.engine.sends.recorder import BATCH_BYTES, read_control_events
from kourou.errors import Code
from kourou.events.control_events import (
    Cause,
    EventLost,
    GroupPut,
    ProgressRecorded,
    TopicPut,
    decode_record_body,
)
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.record.message_record import encode_draft
from kourou.runtime import LogWarning
from kourou_rigs.engine import Engine

TOPIC, GROUP = TopicConfig("orders", 4, 4), GroupConfig("g")
CAUSE = Cause("me", "why", "ab" * 16)


def record(engine, *events):
    parts = engine.core.parts
    parts.recorder.record(events, CAUSE, engine.wall_ms)
    return parts.appends.take_done()


def test_the_record_says_who_why_and_when_and_stands_where_it_is_reported(engine) -> None:
    engine._perform(record(engine, TopicPut(TOPIC)))
    last = engine.events()[-1]
    told = decode_record_body(last.body, offset=last.offset, position=last.position)
    assert (told.actor, told.reason, told.trace_id) == ("me", "why", "ab" * 16)
    assert told.at_ms == last.store_timestamp == engine.wall_ms
    assert (last.tag, last.keys) == ("TopicPut", ("topic/orders",))
    assert engine.control.next_offset == last.offset + 1


def test_many_events_are_few_appends(engine) -> None:
    """A broker that stops records the progress of each group: an append each takes minutes."""
    groups = [f"group-{number}" for number in range(10_000)]
    before = len(engine.events())
    done = record(engine, *(ProgressRecorded(group, {"orders": {0: 7}}) for group in groups))
    appends = [effect for effect in done if isinstance(effect, Append)]
    sizes = [sum(len(data) for _, data in one.pieces) for one in appends]
    assert len(appends) == -(-sum(sizes) // BATCH_BYTES)
    assert max(sizes) <= BATCH_BYTES
    assert done.count(ConfigChanged("offsets")) == len(appends)
    engine._perform(done)
    stored = engine.events()[before:]
    assert [one.keys for one in stored] == [(f"progress/{group}",) for group in groups]
    last = stored[-1]
    assert engine.control.next_offset == last.offset + 1
    again = ControlState()
    for each in engine.events():
        evolve(again, decode_record_body(each.body, offset=each.offset, position=each.position))
    assert encode_state(again) == encode_state(engine.control)


def test_an_event_that_is_larger_than_a_batch_is_an_append_of_its_own() -> None:
    engine = Engine(segment_size=4 * BATCH_BYTES)
    large = ProgressRecorded("large", {"orders" * 20: dict.fromkeys(range(200_000), 1)})
    small = ProgressRecorded("small", {"orders": {0: 1}})
    done = [effect for effect in record(engine, small, large, small) if isinstance(effect, Append)]
    sizes = [sum(len(data) for _, data in one.pieces) for one in done]
    assert [size > BATCH_BYTES for size in sizes] == [False, True, False]


def test_the_core_writes_what_a_failing_request_had_recorded(engine) -> None:
    before = len(engine.events())
    appends = engine.core.parts.appends
    request = UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=6)
    appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    assert "full" in engine.ask(request).remark
    assert len(engine.events()) == before
    assert "orders" not in engine.control.topics
    engine.handle(SpaceChanged(1 << 40, full=False))
    assert engine.ask(request).code == 0
    assert len(engine.events()) == before + 1


def test_events_of_a_clock_that_went_back_keep_their_order(engine) -> None:
    engine._perform(record(engine, TopicPut(TOPIC)))
    engine.wall_ms -= 1_000_000
    engine._perform(record(engine, GroupPut(GROUP)))
    times = [each.store_timestamp for each in engine.events()]
    assert times == sorted(times)


# -- answering whoever caused control events -------------------------------------------------------


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


# -- reading control events back, and who is told of those that are lost ---------------------------


@pytest.mark.parametrize(
    ("tag", "about_users"),
    [
        ("TopicPut", False),
        ("UserPut", True),
        ("AccessModeSet", True),
        ("OfNewerBuild", None),
        ("", None),
    ],
)
def test_a_lost_event_is_reported_and_tells_by_its_tag_whether_it_was_about_users(
    engine, tag: str, about_users: bool | None
) -> None:
    parts = engine.core.parts
    first = engine.control.next_offset
    draft = encode_draft(
        topic=CONTROL_TOPIC.encode(),
        queue_id=0,
        body=b"no event",
        properties=b"TAGS\x01" + tag.encode() if tag else b"",
        born_timestamp=1,
        born_host=bytes(8),
    )
    parts.appends.write_one(draft, (CONTROL_TOPIC, 0), engine.wall_ms)
    engine.perform(parts.appends.take_done())
    warnings: list[LogWarning] = []
    [lost] = read_control_events(engine.store, first, engine.store.end, warnings.append)
    assert isinstance(lost.event, EventLost)
    assert warnings[-1].sentence == f"control event {first} is unreadable and is skipped"
    assert lost.event.about_users is about_users
