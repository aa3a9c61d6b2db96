"""What is a pull answered, and when?"""

import pytest

from kourou.engine.effects import Append, Project
from kourou.engine.inputs import RegistrationDone, SpaceChanged
from kourou.engine.pulls import pull_handler as holds
from kourou.engine.pulls import pull_handler as pulls
from kourou.errors import Code
from kourou.model.limits import REPAIR_MS
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import (
    GetMaxOffset,
    PullFlag,
    PullMessage,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.record.message_record import decode_record
from kourou.runtime.core import Disconnected, Reply
from kourou_rigs.engine import Engine, MemoryStore, header_of
from kourou_rigs.records import decode_many


@pytest.fixture
def group(engine: Engine) -> str:
    make_group(engine)
    return "g"


def make_group(engine: Engine, name: str = "g", more: bytes = b"") -> None:
    body = b'{"groupName":"%s"%s}' % (name.encode(), more)
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


def test_a_pull_gets_no_more_messages_than_it_asks_for(engine, draft, records, group) -> None:
    engine.ask(*records([draft() for _ in range(40)]))
    for recent in (True, False):
        engine.store.recent = recent
        assert len(bodies(engine.ask(pull(max_msg_nums=3)))) == 3
        assert len(bodies(engine.ask(pull(max_msg_nums=3, max_msg_bytes=1 << 20)))) == 3


def test_the_budget_of_our_own_client_has_limits_too(
    draft, records, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(segment_size=32 << 20)
    make_group(engine)
    engine.ask(*records([draft(body=bytes(1_000_000)) for _ in range(6)]))
    greedy = pull(max_msg_nums=1 << 30, max_msg_bytes=1 << 30)
    engine.core.parts.apply("maxPullBytes", 1 << 30)
    assert len(bodies(engine.ask(greedy))) == 4, "4 MiB whatever the settings say"
    engine.core.parts.apply("maxPullBytes", 2_500_000)
    assert len(bodies(engine.ask(greedy))) == 2
    assert len(bodies(engine.ask(pull(max_msg_bytes=0)))) == 1, "the first one whatever its size"
    engine.core.parts.apply("maxPullBytes", 1 << 30)
    monkeypatch.setattr(pulls, "PULL_MESSAGES_MAX", 3)
    assert len(bodies(engine.ask(greedy))) == 3


class Damaged(MemoryStore):
    """The message at offset 1 of every queue cannot be read."""

    def read_queue(self, topic, queue_id, offset, **limits):
        read = super().read_queue(topic, queue_id, offset, **limits)
        if offset <= 1 < read.next_offset:
            del read.records[1 - offset]
            read.corrupt_offsets.append(1)
        return read


def test_only_our_own_client_is_reported_of_a_hole(engine, draft, records, group) -> None:
    """A RocketMQ client knows no such answer: it can only be led past the hole."""
    engine.ask(*records([draft(body=bytes([n])) for n in range(3)]))
    engine.store.__class__ = Damaged
    one = {"queue_offset": 1, "max_msg_nums": 1}
    theirs = engine.ask(pull(**one))
    assert (theirs.code, theirs.body) == (Code.PULL_RETRY_IMMEDIATELY, ())
    ours = engine.ask(pull(max_msg_bytes=1_000, **one))
    assert (ours.code, ours.remark) == (Code.MESSAGE_CORRUPT, "unreadable offsets: 1")
    assert theirs.header.next_begin_offset == ours.header.next_begin_offset == 2
    for fields in ({}, {"max_msg_bytes": 1_000}):
        assert bodies(engine.ask(pull(**fields))) == [b"\0", b"\2"], "what can be read is given"


def test_what_other_members_can_mend_is_waited_for_but_not_for_ever(
    engine, draft, records, group
) -> None:
    engine.ask(*records([draft(body=bytes([n])) for n in range(3)]))
    engine.core.parts.pulls.heals = True
    engine.store.__class__ = Damaged
    before = engine.ask(pull())
    assert (bodies(before), header_of(before).next_begin_offset) == ([b"\0"], 1)
    there = engine.ask(pull(queue_offset=1))
    assert (there.code, there.header.next_begin_offset) == (Code.PULL_NOT_FOUND, 1)
    engine.store.__class__ = MemoryStore
    assert bodies(engine.ask(pull(queue_offset=1))) == [b"\1", b"\2"]
    engine.store.__class__ = Damaged
    engine.advance(REPAIR_MS)
    assert bodies(engine.ask(pull())) == [b"\0", b"\2"], "nobody has it"


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


def test_an_empty_queue_is_reported_as_such(engine, draft, records, group) -> None:
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
    assert engine.core.parts.traffic.pulls_empty == 0, "one has waited, and got something"
    engine.advance(10_000)
    assert engine.replies[other].code == Code.PULL_NOT_FOUND
    assert engine.core.parts.traffic.pulls_empty == 1


def test_nobody_waits_where_long_polling_is_switched_off(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.apply("longPollingEnable", False)
    assert engine.ask(waiting(queue_offset=1)).code == Code.PULL_NOT_FOUND
    assert engine.core.parts.pulls.held == 0


@pytest.mark.feature("F187")
@pytest.mark.parametrize("asked_ms", [1, 10_000, 20_000])
def test_a_pull_is_held_for_exactly_as_long_as_it_asks(
    engine, draft, records, group, asked_ms
) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(
        pull(
            queue_offset=1,
            sys_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
            suspend_timeout_millis=asked_ms,
        )
    )
    engine.advance(asked_ms - 1)
    assert name not in engine.replies
    engine.advance(1)
    assert engine.replies[name].code == Code.PULL_NOT_FOUND


@pytest.mark.feature("F187", "F189")
def test_a_held_pull_has_its_message_before_any_time_passes(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1))
    engine.advance(9_999)
    before_ms = engine.now_ms
    engine.ask(*records([draft(body=b"news")]))
    assert engine.now_ms == before_ms
    assert bodies(engine.replies[name]) == [b"news"]


def test_nobody_waits_longer_than_the_broker_allows(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.apply("longPollingTimeMillsMax", 3_000)
    name = engine.send(waiting(queue_offset=1))
    engine.advance(2_999)
    assert name not in engine.replies
    engine.advance(1)
    assert engine.replies[name].code == Code.PULL_NOT_FOUND


def test_beyond_the_limit_of_waiting_pulls_they_are_answered_at_once(
    engine, draft, records, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.ask(*records([draft()]))
    monkeypatch.setattr(holds, "HOLDS_MAX", 1)
    engine.send(waiting(queue_offset=1))
    assert engine.ask(waiting(queue_offset=1)).code == Code.PULL_NOT_FOUND
    for budget in (0, 1_000):
        own = waiting(queue_offset=1, max_msg_bytes=budget)
        assert engine.ask(own).code == Code.POLLING_FULL
    assert engine.ask(waiting()).code == Code.SUCCESS, "who finds something need not wait"
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=2))
    assert name not in engine.replies, "there is room again"


def test_a_waiting_pull_goes_on_waiting_past_other_tags(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1, subscription="A"))
    for _ in range(3):
        engine.ask(*records([draft(tag="B")]))
    assert name not in engine.replies, "no conversation for what is not wanted"
    assert engine.core.parts.pulls.held == 1
    engine.ask(*records([draft(tag="A", body=b"at last"), draft(tag="B")]))
    assert bodies(engine.replies[name]) == [b"at last"]
    assert engine.replies[name].header.next_begin_offset == 6


def test_a_waiting_pull_tells_at_its_end_how_far_it_has_come(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    name = engine.send(waiting(queue_offset=1, subscription="A"))
    engine.ask(*records([draft(tag="B")]))
    engine.advance(10_000)
    assert engine.replies[name].code == Code.PULL_NOT_FOUND
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
    assert "could not be consumed" in refused.remark


@pytest.mark.feature("F046")
def test_write_queues_hold_messages_and_read_queues_hold_progress(
    engine, draft, records, group
) -> None:
    def target(queue_id: int) -> Reply:
        return engine.ask(*records([draft(queue_id=queue_id)], targets=[("orders", queue_id)]))

    engine.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=6, write_queue_nums=3, perm=6))
    for queue_id in range(3):
        assert target(queue_id).header.target_codes == [Code.SUCCESS]
    assert engine.core.parts.view.queue_ids("orders") == [0, 1, 2]
    assert target(3).header.target_codes == [Code.SYSTEM_ERROR], "a read queue takes no messages"
    for queue_id in range(6):
        commit = UpdateConsumerOffset(
            consumer_group="g", topic="orders", queue_id=queue_id, commit_offset=queue_id
        )
        assert engine.ask(commit).code == Code.SUCCESS
    found = [engine.core.parts.commits.offset("g", "orders", queue_id) for queue_id in range(6)]
    assert found == [0, 1, 2, 3, 4, 5]
    assert engine.core.parts.view.queue_ids("orders") == [0, 1, 2], "and has no files"


def test_who_may_not_read_is_reported_why(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    assert engine.ask(pull(topic="nowhere")).code == Code.TOPIC_NOT_EXIST
    assert engine.ask(pull(sys_flag=0)).code == Code.SUBSCRIPTION_NOT_EXIST
    assert engine.ask(pull(subscription="||")).code == Code.SUBSCRIPTION_PARSE_FAILED
    engine.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=2))
    assert engine.ask(pull()).code == Code.NO_PERMISSION


def test_a_broker_that_is_not_readable_refuses_pulls(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    for permission in (0, 2):
        engine.core.parts.apply("brokerPermission", permission)
        reply = engine.ask(pull())
        assert reply.code == Code.NO_PERMISSION
        assert "broker-a is not readable" in reply.remark
    engine.core.parts.apply("brokerPermission", 4)
    assert engine.ask(pull()).code == Code.SUCCESS


def test_a_group_that_may_not_consume_is_refused(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    make_group(engine, more=b',"consumeEnable":false')
    reply = engine.ask(pull())
    assert reply.code == Code.NO_PERMISSION
    assert "consumer group g may not consume" in reply.remark


@pytest.mark.feature("F332")
def test_a_pull_makes_its_group_as_a_heartbeat_does(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    _, received = engine.received(pull(consumer_group="new"))
    effects = engine.core.handle(engine.now_ms, [received, RegistrationDone(9)])
    kinds = [type(effect) for effect in effects if isinstance(effect, Append | Reply)]
    assert kinds == [Append, Reply], "the group and its retry topic, then the answer"
    assert effects[-1].code == Code.SUCCESS
    assert engine.control.groups.get("new").consume_enable
    assert engine.control.topics.get("%RETRY%new").read_queue_nums == 1
    before = len(engine.events())
    engine._perform(effects[:-1])
    made = engine.events()[before:]
    assert [event.tag for event in made] == ["GroupPut", "TopicPut"]
    assert b"first pull of a consumer" in made[0].body
    before = len(engine.events())
    assert engine.ask(pull(consumer_group="new")).code == Code.SUCCESS
    assert len(engine.events()) == before, "once"


@pytest.mark.feature("F332")
def test_a_pull_makes_no_group_where_none_may_be_made(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    assert engine.ask(pull(consumer_group="no name")).code == Code.SYSTEM_ERROR
    engine.core.parts.apply("autoCreateSubscriptionGroup", False)
    refused = engine.ask(pull(consumer_group="x"))
    assert refused.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "autoCreateSubscriptionGroup is false" in refused.remark
    assert not {"no name", "x"} & set(engine.control.groups.table)
    assert engine.ask(pull(consumer_group="CID_RMQ_SYS_ours")).code == Code.SUCCESS


@pytest.mark.fault
def test_a_full_disk_makes_no_group_and_says_so(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.core.parts.appends._allocated_end = engine.store.end
    for full, told in ((True, "the disk is full"), (False, "still being allocated")):
        engine.handle(SpaceChanged(0, full=full))
        reply = engine.ask(pull(consumer_group="new"))
        assert reply.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
        assert told in reply.remark
    engine.handle(SpaceChanged(1 << 40, full=False))
    assert engine.ask(pull(consumer_group="new")).code == Code.SUCCESS


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
    engine.core.parts.apply("autoCreateSubscriptionGroup", False)
    engine.ask(pull(consumer_group="stranger", sys_flag=flag, commit_offset=2))
    assert engine.core.parts.commits.offset("stranger", "orders", 0) is None


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


@pytest.mark.feature("F273", "F274")
def test_who_is_far_behind_is_redirected_to_pull_from_a_follower_and_back_again(
    engine, draft, records, group
) -> None:
    request, body = records([draft()] * 3)
    engine.send(request, body)

    def suggested(**fields: object) -> int:
        return header_of(engine.ask(pull(**fields))).suggest_which_broker_id

    engine.store.recent = False
    assert suggested() == 0, "slaveReadEnable is off"
    engine.policy.change(slave_read=True)
    assert suggested() == 1
    make_group(engine, "h", b',"whichBrokerWhenConsumeSlowly":3,"brokerId":2')
    assert suggested(consumer_group="h") == 3
    engine.store.recent = True
    assert suggested() == 0
    assert suggested(consumer_group="h") == 2


def test_what_somebody_waits_for_is_projected_at_once(engine, draft, records, group) -> None:
    engine.ask(*records([draft()]))
    assert Project() not in engine.effects, "nobody waits"
    engine.send(waiting(queue_offset=1))
    engine.ask(*records([draft(queue_id=1)], [("orders", 1)]))
    assert Project() not in engine.effects, "somebody waits for another queue"
    engine.ask(*records([draft()]))
    kinds = [type(effect) for effect in engine.effects]
    assert kinds.count(Project) == 1
    assert kinds.index(Project) > kinds.index(Reply)
