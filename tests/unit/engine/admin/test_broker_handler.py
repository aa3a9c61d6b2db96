"""The broker as operators ask about and change it."""

import json

import pytest

from kourou.engine.effects import Announce
from kourou.engine.inputs import DiskMeasured, SpaceChanged
from kourou.engine.policy import TopicRules
from kourou.engine.sends.recorder import Cause
from kourou.errors import Code
from kourou.events.control_events import GroupPut, SettingChanged, decode_record_body
from kourou.model.names import AUTO_CREATE_TOPIC, CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.broker_bodies import decode_setting_views
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


def test_a_change_is_shown_recorded_and_in_force(engine) -> None:
    assert shown(engine)["maxMessageSize"] == "1000"
    assert shown(engine)["traceOn"] == "true"
    assert change(engine, "maxMessageSize=2000\ntraceOn=false\n").code == Code.SUCCESS
    assert shown(engine)["maxMessageSize"] == "2000"
    assert shown(engine)["traceOn"] == "false"
    assert (engine.policy.body_size_max, engine.policy.trace_on) == (2_000, False)
    assert [each.tag for each in engine.events()[-2:]] == ["SettingChanged", "SettingChanged"]


@pytest.mark.parametrize(
    "bad", ["maxMessageSize=5000", "listenPort=1", "noSuchKey=1", "storePathRootDir=/x", "traceOn="]
)
def test_one_refused_key_refuses_all(engine, bad) -> None:
    events = len(engine.events())
    reply = change(engine, f"maxMessageSize=2000\n{bad}\n")
    assert reply.code != Code.SUCCESS
    assert reply.remark
    assert len(engine.events()) == events
    assert engine.policy.body_size_max == 1_000


def test_what_the_log_had_room_for_is_in_force(engine) -> None:
    """State, log and policy agree even when the disk fills up between two changes."""
    engine.core.parts.appends._allocated_end = engine.store.end + 450
    engine.handle(SpaceChanged(0, full=True))
    reply = change(engine, "maxMessageSize=2000\ntraceOn=false\n")
    assert reply.code == Code.DISK_FULL
    recorded = engine.control.settings.values
    assert recorded == {"maxMessageSize": 2_000}
    assert (engine.policy.body_size_max, engine.policy.trace_on) == (2_000, True)


def test_name_servers_are_notified_of_another_permission(engine) -> None:
    engine.effects.clear()
    change(engine, "traceOn=false")
    assert Announce() not in engine.effects
    change(engine, "brokerPermission=4")
    assert engine.effects[-1] == Announce() or Announce() in engine.effects
    assert engine.policy.permission == 4


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


def test_control_events_are_read_back_page_by_page(engine) -> None:
    header, everything = events_from(engine, 0)
    assert header.next_offset == header.max_offset == len(everything) == len(engine.events())
    assert [each["offset"] for each in everything] == list(range(len(everything)))
    assert everything[0]["event"]["type"] == "TopicPut"
    assert everything[0]["reason"] == "start"
    header, page = events_from(engine, 2, 3)
    assert (header.next_offset, page) == (5, everything[2:5])
    header, page = events_from(engine, 10_000)
    assert (header.next_offset, page) == (10_000, [])
    for request in (
        GetControlEvents(from_offset=-1, max_count=1),
        GetControlEvents(from_offset=0, max_count=0),
    ):
        assert engine.ask(request).code == Code.SYSTEM_ERROR


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


def test_unconfirmed_events_are_not_shown() -> None:
    engine = Engine(sync_flush=True)
    before, _ = events_from(engine, 0)
    engine.core.parts.recorder.record([GroupPut(GroupConfig("g"))], Cause("t"), engine.wall_ms)
    engine._perform(engine.core.parts.appends.take_done())
    assert events_from(engine, 0)[0].next_offset == before.next_offset
    engine.flush()
    assert events_from(engine, 0)[0].next_offset == before.next_offset + 1


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


def test_settings_are_described_to_whoever_asks_so(engine) -> None:
    change(engine, "maxMessageSize=2000\n")
    reply = engine.ask(GetBrokerConfig(described=True))
    views = {one.name: one for one in decode_setting_views(b"".join(reply.body))}
    size = views["maxMessageSize"]
    assert (size.value, size.configured, size.changeable) == ("2000", "1000", True)
    assert (size.minimum, size.maximum) == (1, 4_000)
    assert views["listenPort"].why_not
    assert header_of(reply).described
    assert not header_of(engine.ask(GetBrokerConfig())).described


def test_the_reason_of_a_change_is_recorded(engine) -> None:
    engine.ask(UpdateBrokerConfig(reason="larger orders"), b"maxMessageSize=2000\n")
    engine.ask(UpdateBrokerConfig(), b"maxMessageSize=3000\n")
    reply = [
        decode_record_body(one.body, offset=one.offset, position=0).reason
        for one in engine.events()[-2:]
    ]
    assert reply == ["larger orders", "UpdateBrokerConfig"]
    assert (
        engine.ask(UpdateBrokerConfig(reason="x" * 10_000), b"traceOn=false\n").code != Code.SUCCESS
    )
    assert shown(engine)["traceOn"] == "true"
