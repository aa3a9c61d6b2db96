"""May this message be stored, and what is its sender told?"""

import pytest

from kourou.engine.inputs import SpaceChanged
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou_rigs.engine import Engine, header_of


def bodies(engine: Engine, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in engine.stored(topic, queue_id)]


@pytest.mark.parametrize("damage", ["topic", "topics", "queue", "sizes", "lane"])
def test_a_batch_that_lies_is_refused_whole(engine, draft, records, damage) -> None:
    good, other = draft(), draft("other")
    engine.ask(*records([good]))
    before = dict(engine.store.records)
    match damage:
        case "topic":
            request, body = records([good, other])
        case "topics":
            targets = [("orders", 0), ("other", 0)]
            request, body = records([good, other], targets, target_of=[1, 0])
        case "queue":
            request, body = records([good, draft(queue_id=1)])
        case "sizes":
            request, body = records([good, good])
            body = body[:-1]
        case "lane":
            request, body = records([good, good], target_of=[0, 5])
    reply = engine.ask(request, body)
    assert reply.code in (Code.MESSAGE_ILLEGAL, Code.SYSTEM_ERROR)
    assert reply.remark
    assert engine.store.records == before


@pytest.mark.parametrize("count", [1, 3, 20])
def test_damaged_bodies_are_refused_and_nothing_is_stored(engine, draft, records, count) -> None:
    damaged = draft(body=b"whole").replace(b"whole", b"whale")
    reply = engine.ask(*records([draft()] * (count - 1) + [damaged]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "BODYCRC" in reply.remark
    assert ("orders", 0) not in engine.store.queues


@pytest.mark.feature("F172", "F296")
@pytest.mark.parametrize("count", [1, 3])
def test_the_brokers_own_limit_holds_for_every_body(draft, records, count) -> None:
    """Alone, and as the last one of a batch."""
    policy = BrokerPolicy("DefaultCluster", "broker-a", body_size_max=131_072)
    engine = Engine(policy=policy)
    small = [draft()] * (count - 1)
    assert engine.ask(*records([*small, draft(body=bytes(131_072))])).code == Code.SUCCESS
    reply = engine.ask(*records([*small, draft(body=bytes(131_073))]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "maxMessageSize is 131072" in reply.remark
    assert len(engine.stored("orders")) == count


@pytest.mark.feature("F172", "F296")
def test_too_large_a_body_is_refused_and_nothing_is_stored(draft, records) -> None:
    engine = Engine(segment_size=32 << 20)
    engine.ask(*records([draft()]))
    before = dict(engine.store.records)
    big = draft(body=bytes(4 * 1024 * 1024 + 1))
    reply = engine.ask(*records([draft(), big]))
    assert reply.code == Code.MESSAGE_ILLEGAL
    assert "maxMessageSize is 4194304" in reply.remark
    assert engine.store.records == before
    assert engine.ask(*records([draft(body=bytes(4 * 1024 * 1024))])).code == Code.SUCCESS


@pytest.mark.feature("F065")
def test_a_batch_that_crosses_a_segment_is_cut_there(draft, records) -> None:
    engine = Engine(segment_size=16_384)
    drafts = [draft(body=bytes([n]) * 700) for n in range(50)]
    header = header_of(engine.ask(*records(drafts)))
    assert len(header.runs) > 1
    assert bodies(engine, "orders", 0) == [bytes([n]) * 700 for n in range(50)]
    for position, raw in engine.store.records.items():
        assert position // 16_384 == (position + len(raw) - 1) // 16_384
        assert position % 16_384 + len(raw) + 8 <= 16_384


def test_a_lane_named_twice_is_refused(engine, draft, records) -> None:
    """Each target is numbered by itself: two for one queue would give its offsets out twice."""
    drafts = [draft(), draft()]
    reply = engine.ask(*records(drafts, [("orders", 0), ("orders", 0)], [0, 1]))
    assert reply.code == Code.SYSTEM_ERROR
    reply = engine.ask(*records(drafts, [("orders", 0), ("a", 0), ("b", 0)], [0, 0]))
    assert reply.code == Code.SYSTEM_ERROR
    assert ("orders", 0) not in engine.store.queues
    assert "a" not in engine.control.topics


def test_a_deleted_topic_goes_on_counting_after_a_restart_too(engine, draft, records) -> None:
    """Also where its queues were written in the very turn that deletes it."""
    _, send = engine.received(*records([draft(), draft()]))
    _, delete = engine.received(DeleteTopicInBroker(topic="orders"))
    engine.handle(send, delete)
    assert engine.control.topics.retired == {"orders": {0: 2}}


def test_many_at_once_fail_as_a_whole_when_there_is_no_room(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.appends._allocated_end = engine.store.end + 1_000
    full = SpaceChanged(0, full=True)
    engine.handle(full)
    reply = engine.ask(*records([draft(body=bytes(300)) for _ in range(4)]))
    assert reply.code == Code.DISK_FULL
    assert header_of(engine.ask(*records([draft(body=b"small")]))).target_offsets == [1]


def test_a_refused_queue_has_no_offset(engine, draft, records) -> None:
    """Also at a broker where the queue would have one."""
    drafts = [draft(), draft(queue_id=99)]
    header = header_of(engine.ask(*records(drafts, [("orders", 0), ("orders", 99)], [0, 1])))
    assert [bool(code) for code in header.target_codes] == [False, True]
    assert header.target_offsets == [0, -1]
