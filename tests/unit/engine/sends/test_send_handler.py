"""May this message be stored, and what is its sender told?"""

import msgspec
import numpy as np
import pytest

from kourou.engine.effects import Append
from kourou.engine.inputs import RegistrationDone, SpaceChanged, StoreFailed
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.engine import Engine, header_of


def bodies(engine: Engine, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in engine.stored(topic, queue_id)]


@pytest.mark.feature("F010", "F011", "F053")
def test_a_first_send_creates_the_topic_by_the_template(engine, draft, records) -> None:
    reply = engine.ask(*records([draft()]))
    assert header_of(reply).target_offsets == [0]
    topic = engine.control.topics.get("orders")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    events = engine.store.queues[CONTROL_TOPIC, 0]
    last = decode_record(engine.store.records[events[-1]])
    assert last.tag == "TopicPut"
    assert last.keys == ("topic/orders",)
    at = engine.store.queues["orders", 0][0]
    assert events[-1] < at, "the event that made the topic comes before its first message"


@pytest.mark.feature("F053", "F331")
def test_without_auto_creation_an_unknown_topic_is_refused(draft, records) -> None:
    engine = Engine()
    reply = engine.ask(
        msgspec.structs.replace(records([draft()])[0], default_topic="NoSuchTemplate"),
        draft(),
    )
    header = header_of(reply)
    assert header.target_codes == [Code.TOPIC_NOT_EXIST]
    assert header.target_offsets == [-1]
    assert ("orders", 0) not in engine.store.queues


@pytest.mark.feature("F011", "F063")
def test_a_batch_over_topics_and_queues_is_numbered_lane_by_lane(engine, draft, records) -> None:
    targets = [("orders", 0), ("orders", 3), ("paid", 1)]
    target_of = [0, 1, 0, 2, 2, 1, 0]
    drafts = [
        draft(*targets[target], body=f"{number}".encode())
        for number, target in enumerate(target_of)
    ]
    first = header_of(engine.ask(*records(drafts, targets, target_of)))
    second = header_of(engine.ask(*records(drafts, targets, target_of)))
    assert first.target_offsets == [0, 0, 0]
    assert second.target_offsets == [3, 2, 2]
    assert bodies(engine, "orders", 0) == [b"0", b"2", b"6"] * 2
    assert bodies(engine, "orders", 3) == [b"1", b"5"] * 2
    assert bodies(engine, "paid", 1) == [b"3", b"4"] * 2
    positions = np.concatenate([engine.store.queues[target] for target in targets])
    assert len(set(positions.tolist())) == 14


def test_refused_lanes_do_not_hold_back_the_others(engine, draft, records) -> None:
    targets = [("orders", 0), ("SCHEDULE_TOPIC_XXXX", 0), ("orders", 9)]
    drafts = [draft(*targets[target], body=bytes([target])) for target in (0, 1, 2, 0)]
    header = header_of(engine.ask(*records(drafts, targets, [0, 1, 2, 0])))
    assert header.target_codes == [0, Code.NO_PERMISSION, Code.SYSTEM_ERROR]
    assert "queue ID 9" in header.target_remarks[2]
    assert bodies(engine, "orders", 0) == [b"\0", b"\0"]
    assert ("orders", 9) not in engine.store.queues


@pytest.mark.feature("F052")
def test_permissions_are_kept(engine, draft, records) -> None:
    for perm, code in ((4, Code.NO_PERMISSION), (6, Code.SUCCESS), (2, Code.SUCCESS)):
        engine.ask(
            UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=perm)
        )
        header = header_of(engine.ask(*records([draft()])))
        assert header.target_codes == [code]


@pytest.mark.feature("F052")
@pytest.mark.parametrize("permission", [0, 4])
def test_a_broker_that_takes_no_writes_stores_nothing(engine, draft, records, permission) -> None:
    """Alone, as a batch, and as one of several sends of a turn."""
    engine.ask(*records([draft()]))
    engine.core.parts.apply("brokerPermission", permission)
    for count in (1, 3):
        header = header_of(engine.ask(*records([draft() for _ in range(count)])))
        assert header.target_codes == [Code.NO_PERMISSION]
        assert "broker-a does not accept messages" in header.target_remarks[0]
    turn = [engine.received(*records([draft() for _ in range(20)])) for _ in range(2)]
    engine.handle(*[*(received for _, received in turn), RegistrationDone(9)])
    for name, _ in turn:
        assert header_of(engine.replies[name]).target_codes == [Code.NO_PERMISSION]
    assert len(bodies(engine, "orders")) == 1
    engine.core.parts.apply("brokerPermission", 2)
    assert header_of(engine.ask(*records([draft()]))).target_offsets == [1]


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


@pytest.mark.feature("F167", "F094")
def test_sync_flush_answers_after_the_flush(draft, records) -> None:
    engine = Engine(sync_flush=True)
    name = engine.send(*records([draft()]))
    assert name not in engine.replies
    assert engine.flushes_wanted > 0
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS
    late = engine.send(*records([draft()]))
    engine.advance(5_000)
    assert engine.replies[late].code == Code.FLUSH_DISK_TIMEOUT
    hasty = engine.send(*records([draft()], wait=False))
    assert engine.replies[hasty].code == Code.SUCCESS


def test_after_a_failed_flush_senders_learn_that_the_outcome_is_unknown(draft, records) -> None:
    engine = Engine(sync_flush=True)
    waiting = engine.send(*records([draft()]))
    engine.handle(StoreFailed("EIO"))
    assert engine.replies[waiting].code == Code.OUTCOME_UNKNOWN
    assert engine.ask(*records([draft()])).code == Code.STORE_FAULTED


def test_a_full_disk_refuses_and_a_freed_one_takes_again(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.appends._allocated_end = engine.store.end + 100
    engine.handle(SpaceChanged(engine.store.end + 100, full=True))
    reply = engine.ask(*records([draft()]))
    assert reply.code == Code.DISK_FULL
    assert len(bodies(engine, "orders", 0)) == 1
    engine.handle(SpaceChanged(1 << 40, full=False))
    assert header_of(engine.ask(*records([draft()]))).target_offsets == [1]


def test_a_topic_that_was_deleted_and_is_back_goes_on_counting(engine, draft, records) -> None:
    engine.ask(*records([draft(), draft()]))
    assert engine.ask(DeleteTopicInBroker(topic="orders")).code == Code.SUCCESS
    assert ("orders", 0) not in engine.store.queues
    header = header_of(engine.ask(*records([draft()])))
    assert header.target_offsets == [2], "its first records are still in the log: offset 0 is taken"
    assert engine.store.queue_range("orders", 0) == (2, 3)


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


def test_requests_of_one_turn_are_stored_in_order_before_any_answer(engine, draft, records) -> None:
    turn = [engine.received(*records([draft(body=bytes([n]))])) for n in range(3)]
    effects = engine.core.handle(
        engine.now_ms, [*(received for _, received in turn), RegistrationDone(9)]
    )
    kinds = [type(effect).__name__ for effect in effects]
    for number, kind in enumerate(kinds):
        if kind == "Reply":
            assert "Append" in kinds[:number]
    appended = [effect.end for effect in effects if isinstance(effect, Append)]
    assert appended == sorted(appended)
    assert kinds.count("Reply") == 3
