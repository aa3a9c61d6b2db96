"""What is a pull answered, and when?"""

import pytest

from kourou.engine.inputs import Disconnected
from kourou.errors import Code
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.offsets import (
    GetMaxOffset,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.messages.pulling import PullFlag, PullMessage
from kourou.protocol.messages.topics import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.record import decode_record
from kourou.protocol.record_batch import decode_many
from kourou.testing.engine import Engine, header_of


@pytest.fixture
def group(engine: Engine) -> str:
    make_group(engine)
    return "g"


def make_group(engine: Engine, name: str = "g") -> None:
    body = b'{"groupName":"%s"}' % name.encode()
    assert engine.ask(UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS


def pull(**fields: object) -> PullMessage:
    return PullMessage(
        **{
            "consumer_group": "g",
            "topic": "orders",
            "queue_id": 0,
            "queue_offset": 0,
            "max_msg_nums": 32,
            "sys_flag": int(PullFlag.SUBSCRIPTION),
            "subscription": "*",
            **fields,
        }
    )


def waiting(**fields: object) -> PullMessage:
    return pull(
        sys_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
        suspend_timeout_millis=10_000,
        **fields,
    )


def bodies(reply) -> list[bytes]:
    return [message.body for part in reply.body for message in decode_many(part)]


@pytest.mark.feature("F188", "F073")
def test_a_pull_gets_the_queue_in_order(engine, draft, records, group) -> None:
    engine.ask(*records([draft(body=bytes([n])) for n in range(5)]))
    reply = engine.ask(pull(queue_offset=1))
    header = header_of(reply)
    assert bodies(reply) == [b"\1", b"\2", b"\3", b"\4"]
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (5, 0, 5)


@pytest.mark.feature("F276", "F342", "F343", "F344", "F345")
def test_both_pairs_of_transfer_limits_hold(engine, draft, records, group) -> None:
    engine.ask(*records([draft(body=bytes(100)) for _ in range(100)]))
    engine.ask(
        *records([draft(queue_id=1, body=bytes(100_000)) for _ in range(5)], [("orders", 1)])
    )
    assert len(bodies(engine.ask(pull(max_msg_nums=1_000)))) == 32
    assert len(bodies(engine.ask(pull(queue_id=1)))) == 2, "262,144 bytes"
    engine.store.recent = False
    assert len(bodies(engine.ask(pull(max_msg_nums=1_000)))) == 8
    assert len(bodies(engine.ask(pull(queue_id=1)))) == 1, "the first one whatever its size"
    own = pull(max_msg_nums=1_000, max_msg_bytes=1 << 20)
    assert len(bodies(engine.ask(own))) == 100, "our client states its own budget"


@pytest.mark.feature("F234", "F235", "F236", "F012")
def test_tags_are_compared_by_hash_at_the_broker(engine, draft, records, group) -> None:
    tags = ["Aa", "BB", "C", "Aa", ""]  # "Aa" and "BB" have one hash
    engine.ask(*records([draft(tag=tag, body=tag.encode()) for tag in tags]))
    reply = engine.ask(pull(subscription="Aa"))
    assert bodies(reply) == [b"Aa", b"BB", b"Aa"]
    assert header_of(reply).next_begin_offset == 5
    nothing = engine.ask(pull(subscription="D || E"))
    assert nothing.code == Code.PULL_RETRY_IMMEDIATELY
    assert nothing.header.next_begin_offset == 5
    assert bodies(engine.ask(pull(subscription="C||Aa"))) == [b"Aa", b"BB", b"C", b"Aa"]


@pytest.mark.parametrize(
    ("offset", "code", "following"),
    [(0, 0, 3), (3, 19, 3), (4, 21, 3), (-1, 21, 0)],
)
def test_offsets_outside_the_queue_are_corrected(
    engine, draft, records, group, offset, code, following
) -> None:
    engine.ask(*records([draft() for _ in range(3)]))
    reply = engine.ask(pull(queue_offset=offset))
    assert reply.code == code
    assert reply.header.next_begin_offset == following


def test_an_empty_queue_is_told_as_such(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    assert engine.ask(pull(queue_id=1)).code == Code.PULL_NOT_FOUND
    moved = engine.ask(pull(queue_id=1, queue_offset=7))
    assert (moved.code, moved.header.next_begin_offset) == (Code.PULL_OFFSET_MOVED, 0)


@pytest.mark.feature("F003", "F186", "F187", "F189")
def test_a_waiting_pull_is_answered_by_the_next_message(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1))
    other = engine.send(waiting(queue_id=1), peer=2)
    assert name not in engine.replies
    engine.ask(*records([draft(body=b"news")]))
    assert bodies(engine.replies[name]) == [b"news"]
    assert other not in engine.replies
    engine.advance(10_000)
    assert engine.replies[other].code == Code.PULL_NOT_FOUND


def test_a_waiting_pull_goes_on_waiting_past_other_tags(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1, subscription="A"))
    engine.ask(*records([draft(tag="B")]))
    assert engine.replies[name].code == Code.PULL_RETRY_IMMEDIATELY
    assert engine.replies[name].header.next_begin_offset == 2


def test_a_lost_connection_is_not_answered(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1))
    engine.handle(Disconnected(engine.peer(1)))
    engine.ask(*records([draft()]), peer=2)
    engine.advance(60_000)
    assert name not in engine.replies


def test_a_deleted_topic_wakes_its_waiters(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1))
    engine.ask(DeleteTopicInBroker(topic="orders"), peer=2)
    assert engine.replies[name].code == Code.TOPIC_NOT_EXIST


@pytest.mark.feature("F094")
def test_nobody_reads_what_is_not_confirmed(draft, records) -> None:
    engine = Engine(sync_flush=True)
    name = engine.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS
    engine.send(*records([draft()]))
    assert engine.ask(pull()).code == Code.PULL_NOT_FOUND
    held = engine.send(waiting())
    assert held not in engine.replies
    engine.flush()
    assert bodies(engine.replies[held]) == [b"hello"]


@pytest.mark.feature("F049", "F048")
def test_only_read_queues_can_be_read(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    engine.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=2, perm=6))
    assert engine.ask(pull(queue_id=3)).code == Code.PULL_NOT_FOUND
    assert engine.ask(pull(queue_id=4)).code == Code.SYSTEM_ERROR
    refused = engine.ask(
        UpdateAndCreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=4, perm=6)
    )
    assert refused.code == Code.SYSTEM_ERROR
    assert "lost to consumers" in refused.remark


def test_who_may_not_read_is_told_why(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    assert engine.ask(pull(consumer_group="x")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert engine.ask(pull(topic="nowhere")).code == Code.TOPIC_NOT_EXIST
    assert engine.ask(pull(sys_flag=0)).code == Code.SUBSCRIPTION_NOT_EXIST
    assert engine.ask(pull(subscription="||")).code == Code.SUBSCRIPTION_PARSE_FAILED
    engine.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=2))
    assert engine.ask(pull()).code == Code.NO_PERMISSION


@pytest.mark.feature("F195", "F071")
def test_progress_is_stored_and_recorded_once_in_five_seconds(
    engine, draft, records, group
) -> None:
    engine.ask(*records([draft() for _ in range(9)]))
    for offset in (3, 5, 4):
        engine.ask(
            UpdateConsumerOffset(
                consumer_group="g", topic="orders", queue_id=0, commit_offset=offset
            )
        )
    asked = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
    assert header_of(engine.ask(asked)).offset == 4
    events = len(engine.store.queues["rmq_sys_kourou_control", 0])
    engine.advance(100)
    engine.advance(5_000)
    control = engine.store.queues["rmq_sys_kourou_control", 0]
    assert len(control) == events + 1
    assert decode_record(engine.store.records[control[-1]]).tag == "ProgressRecorded"
    assert engine.control.progress.offset("g", "orders", 0) == 4


def test_a_pull_carries_a_commit(engine, draft, records, group) -> None:
    engine.ask(*records([draft() for _ in range(9)]))
    flag = int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
    engine.ask(pull(sys_flag=flag, commit_offset=6))
    asked = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
    assert header_of(engine.ask(asked)).offset == 6
    engine.ask(pull(consumer_group="stranger", sys_flag=flag, commit_offset=2))
    assert engine.core.desks.commits.offset("stranger", "orders", 0) is None


@pytest.mark.feature("F194")
def test_a_group_without_progress_begins_a_young_queue_at_its_start(
    engine, draft, records, group
) -> None:
    engine.ask(*records([draft()]))
    asked = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
    assert header_of(engine.ask(asked)).offset == 0
    engine.store.recent = False
    assert engine.ask(asked).code == Code.QUERY_NOT_FOUND
    assert header_of(engine.ask(GetMaxOffset(topic="orders", queue_id=0))).offset == 1
