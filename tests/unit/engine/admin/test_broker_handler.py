"""The broker as operators ask about and change it."""

import json

import pytest

from kourou.engine.inputs import DiskMeasured, SpaceChanged
from kourou.engine.policy import TopicRules
from kourou.engine.sends.recorder import Cause
from kourou.errors import Code
from kourou.events.control_events import GroupPut, SettingChanged
from kourou.model.names import AUTO_CREATE_TOPIC, CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.protocol.messages.broker_admin import (
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetControlEvents,
    UpdateBrokerConfig,
)
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.settings.declaration import Setting
from kourou_rigs.engine import Engine, header_of

SPECS = [
    Setting("maxMessageSize", 1_000, dynamic=True, low=1, high=4_000),
    Setting("traceOn", True, dynamic=True),
    Setting("brokerPermission", 6, dynamic=True, low=0, high=7),
    Setting("autoCreateTopicEnable", True, dynamic=True),
    Setting("listenPort", 10_911),
]


@pytest.fixture
def engine() -> Engine:
    return Engine(specs=SPECS)


def change(engine: Engine, text: str):
    return engine.ask(UpdateBrokerConfig(), text.encode())


def shown(engine: Engine) -> dict[str, str]:
    reply = engine.ask(GetBrokerConfig())
    lines = b"".join(reply.body).decode().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_what_the_log_had_room_for_is_in_force(engine) -> None:
    """State, log and policy agree even when the disk fills up between two changes."""
    engine.core.parts.appends._allocated_end = engine.store.end + 450
    engine.handle(SpaceChanged(0, full=True))
    reply = change(engine, "maxMessageSize=2000\ntraceOn=false\n")
    assert reply.code == Code.DISK_FULL
    recorded = engine.control.settings.values
    assert recorded == {"maxMessageSize": 2_000}
    assert len(engine.events()) == engine.control.next_offset
    assert (engine.policy.body_size_max, engine.policy.trace_on) == (2_000, True)


@pytest.mark.feature("F331", "F053")
def test_switching_automatic_topics_on_makes_the_topic_to_inherit_from() -> None:
    engine = Engine(specs=[Setting("autoCreateTopicEnable", False, dynamic=True)])
    event = next(t for t in engine.control.topics if t.name == AUTO_CREATE_TOPIC)
    from kourou.events.control_events import TopicDeleted

    engine.core.parts.recorder.record([TopicDeleted(event, {})], Cause("t"), engine.wall_ms)
    engine._perform(engine.core.parts.appends.take_done())
    assert not engine.core.parts.topic_handler.rules.auto_create
    change(engine, "autoCreateTopicEnable=true")
    assert engine.core.parts.topic_handler.rules.auto_create
    made = engine.control.topics.get(AUTO_CREATE_TOPIC)
    assert made is not None
    assert made.write_queue_nums == TopicRules().default_queue_nums


def test_a_value_that_is_no_longer_allowed_has_no_effect(engine) -> None:
    engine.core.parts.recorder.record(
        [SettingChanged("maxMessageSize", 9_999, None)], Cause("t"), engine.wall_ms
    )
    engine._perform(engine.core.parts.appends.take_done())
    assert shown(engine)["maxMessageSize"] == "1000"


def test_runtime_figures_tell_the_bounds_of_the_log(engine) -> None:
    body = b"".join(engine.ask(GetBrokerRuntimeInfo()).body)
    table = json.loads(body)["table"]
    assert table["commitLogMaxOffset"] == str(engine.store.end)
    assert table["commitLogMinOffset"] == "0"
    assert table["remainHowManyDataToFlush"] == "0"
    first = decode_record(engine.store.record_at(0))
    assert table["earliestMessageTimeStamp"] == str(first.store_timestamp)


def test_a_day_ends_at_midnight_of_the_disk_s_looks(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    totals = engine.core.parts.statistics.broker_totals
    for hour, morning in ((23, "0"), (0, "1"), (1, "1")):
        engine.handle(DiskMeasured(100, 50, engine.wall_ms, hour))
        assert totals()["msgPutTotalTodayMorning"] == morning


def events_from(engine: Engine, offset: int, count: int = 1_000):
    reply = engine.ask(GetControlEvents(from_offset=offset, max_count=count))
    return header_of(reply), json.loads(b"".join(reply.body))


def test_where_the_log_begins_is_said_when_its_beginning_is_gone(engine) -> None:
    """Retention deletes old segments; the event store has what they held."""
    assert events_from(engine, 0)[0].min_offset == 0
    target = (CONTROL_TOPIC, 0)
    engine.store.queues[target] = engine.store.queues[target][3:]
    engine.store.firsts[target] = 3
    header, rest = events_from(engine, 0)
    assert (header.min_offset, rest[0]["offset"]) == (3, 3)
    assert header.next_offset == header.max_offset
    assert events_from(engine, 5)[0].min_offset == 3


def test_a_record_that_is_no_event_does_not_hide_the_others(engine) -> None:
    appends = engine.core.parts.appends
    draft = encode_draft(
        topic=CONTROL_TOPIC.encode(),
        queue_id=0,
        body=b"\xffno event",
        properties=b"",
        born_timestamp=1,
        born_host=bytes(8),
    )
    offset, _ = appends.write_one(draft, (CONTROL_TOPIC, 0), engine.wall_ms)
    engine.core.parts.confirmations.append(appends.end)
    engine.core.parts.recorder.record([GroupPut(GroupConfig("g"))], Cause("t"), engine.wall_ms)
    engine._perform(appends.take_done())
    _, (lost, good) = events_from(engine, offset)
    assert (lost["offset"], lost["event"]["type"]) == (offset, "EventLost")
    assert good["event"]["type"] == "GroupPut"
