"""What we make of delayed and failed messages is what a real RocketMQ 4.9.8 made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.sends.topic_rewrite import Redirects
from kourou.model.message import Property, StoredMessage, parse_delay_levels
from kourou.model.names import SCHEDULE_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.protocol.record.layout import parts_of
from kourou.protocol.record.message_record import decode_record, moved_draft, real_target
from kourou_rigs.engine import Engine

LOG = Path(__file__).parent / "rocketmq-4.9.8/store-clean/commitlog" / f"{0:020d}"
DELAYED, DELIVERED = 861, 3706
FIRST, WAITING, RETRIED, DEAD = 0, 3963, 4516, 4864
LEVELS_MS = parse_delay_levels("1s 2s 3s 4s 5s")
OURS = (Property.DLQ_ORIGIN_TOPIC, Property.DLQ_ORIGIN_MESSAGE_ID)


@pytest.fixture(scope="module")
def log() -> RecordColumns:
    return scan(LOG.read_bytes())


def record(log: RecordColumns, position: int) -> memoryview:
    return log.record(log.positions.tolist().index(position))


def same(ours: StoredMessage, theirs: StoredMessage) -> None:
    """But for places, times and hosts, which no other broker can share."""
    for name in ("topic", "queue_id", "body", "flag", "sys_flag", "born_timestamp", "body_crc"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.reconsume_times == theirs.reconsume_times
    own = {name: value for name, value in ours.properties.items() if name not in OURS}
    assert own == theirs.properties


@pytest.mark.feature("F247", "F249")
@pytest.mark.parametrize(("waiting", "delivered"), [(DELAYED, DELIVERED), (WAITING, RETRIED)])
def test_a_delivery(log: RecordColumns, waiting: int, delivered: int) -> None:
    raw = record(log, waiting)
    parts = parts_of(raw, 0, len(raw))
    target = real_target(bytes(raw[parts.props_at :]))
    assert target is not None
    draft = moved_draft(raw, target)
    theirs = record(log, delivered)
    same(decode_record(draft, verify=False), decode_record(theirs))
    # Byte for byte, but for the checksum that we add.
    kept = bytes(theirs[parts_of(theirs, 0, len(theirs)).props_at :])
    assert draft[parts_of(draft, 0, len(draft)).props_at :].startswith(kept)


def test_a_delayed_send(log: RecordColumns) -> None:
    """What its sender sent is what waits, without where it belongs."""
    raw = record(log, DELAYED)
    stored = decode_record(raw).properties
    target = (stored[Property.REAL_TOPIC], int(stored[Property.REAL_QID]))
    gone = (Property.REAL_TOPIC, Property.REAL_QID)
    draft = moved_draft(raw, target, tuple((name.encode(), None) for name in gone))
    moved, place = Redirects(LEVELS_MS).moved(draft, target, 0)
    assert place == (SCHEDULE_TOPIC, 0)
    same(decode_record(moved, verify=False), decode_record(raw))


@pytest.mark.feature("F215", "F216", "F221")
def test_a_failed_message_s_way(log: RecordColumns) -> None:
    engine = Engine()
    engine.ask(UpdateAndCreateSubscriptionGroup(), encode_group_config(GroupConfig("CG1")))
    broker_parts = engine.core.parts
    raw = record(log, FIRST)
    draft = moved_draft(raw, ("TopicA", 2))
    _, position = broker_parts.appends.write_one(draft, ("TopicA", 2), engine.wall_ms)
    broker_parts.confirmations.append(broker_parts.appends.end)
    engine.perform(broker_parts.appends.take_done())
    found: list[StoredMessage] = []
    engine.ask(ConsumerSendMsgBack(offset=position, group="CG1", delay_level=0))
    found += engine.stored(SCHEDULE_TOPIC, 2)
    engine.advance(10_000)
    found += engine.stored("%RETRY%CG1")
    again = ConsumerSendMsgBack(offset=found[1].position, group="CG1", delay_level=-1)
    engine.ask(again)
    found += engine.stored("%DLQ%CG1")
    for ours, place in zip(found, (WAITING, RETRIED, DEAD), strict=True):
        theirs = decode_record(record(log, place))
        # The first copy lies elsewhere here.
        assert ours.properties[Property.ORIGIN_MESSAGE_ID].startswith("7F000001")
        ours.properties[Property.ORIGIN_MESSAGE_ID] = "7F00000100005D670000000000000000"
        same(ours, theirs)
