"""What consumers could not process comes again, or is kept as a dead letter."""

import pytest

from kourou.engine.inputs import DiskMeasured
from kourou.errors import Code
from kourou.model.message import DELAY_LEVELS_MS
from kourou.model.names import CONTROL_TOPIC, SCHEDULE_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.engine import Engine

RETRY, DEAD = "%RETRY%g", "%DLQ%g"


@pytest.fixture
def failing(engine, draft, records) -> Engine:
    """A group `g`, and a message of `orders` that nobody can process."""
    put_group(engine)
    engine.ask(*records([draft(key="U", tag="t", keys="k1 k2")]))
    return engine


def put_group(engine: Engine, **fields: object) -> None:
    config = GroupConfig("g", **fields)
    reply = engine.ask(UpdateAndCreateSubscriptionGroup(), encode_group_config(config))
    assert reply.code == Code.SUCCESS, reply.remark


def back(offset: int, level: int = 0, group: str = "g", **fields: object) -> ConsumerSendMsgBack:
    return ConsumerSendMsgBack(offset=offset, group=group, delay_level=level, **fields)


def first(engine: Engine) -> int:
    return engine.store.queues["orders", 0][0]


def newest(engine: Engine, topic: str):
    [stored] = [
        one for queue in engine.store.queue_ids(topic) for one in engine.stored(topic, queue)
    ][-1:]
    return stored


@pytest.mark.feature("F215", "F216", "F219", "F220", "F221")
def test_the_whole_way_of_a_message_that_never_succeeds(failing) -> None:
    origin = failing.stored("orders")[0]
    position, passed_ms = first(failing), 0
    for times, gap_ms in enumerate(DELAY_LEVELS_MS[2:], 1):
        assert failing.ask(back(position, origin_topic="orders", origin_msg_id="U")).code == 0
        waits = newest(failing, SCHEDULE_TOPIC)
        assert waits.queue_id == times + 1  # level 3 is the first
        failing.advance(gap_ms - 1)
        assert len(failing.store.queues.get((RETRY, 0), [])) == times - 1
        failing.advance(1)
        passed_ms += gap_ms
        again = newest(failing, RETRY)
        assert again.reconsume_times == times
        assert (again.message_id, again.body, again.tag) == ("U", origin.body, "t")
        assert again.born_timestamp == origin.born_timestamp
        assert again.properties["RETRY_TOPIC"] == "orders"
        assert again.properties["ORIGIN_MESSAGE_ID"] == encode_offset_id(
            ("127.0.0.1", 10911), origin.position
        )
        position = again.position
    assert passed_ms == 1_000 * (4 * 3600 + 45 * 60 + 40)
    assert failing.ask(back(position, reason="no such\x01flight\x02")).code == Code.SUCCESS
    [dead] = failing.stored(DEAD)
    assert (dead.reconsume_times, dead.message_id, dead.body) == (17, "U", origin.body)
    assert dead.properties["DELAY"] == "0"
    assert dead.properties["DLQ_REASON"] == "no such flight "
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == dead.properties["RETRY_TOPIC"] == "orders"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "U"
    topic = failing.control.topics.get(DEAD)
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (6, 1, 1)
    failing.advance(10_000)
    item = failing.core.parts.statistics.item("SNDBCK_PUT_NUMS", "orders@g")
    assert item is not None
    assert item.stats_day.sum == 17
    handler = failing.core.parts.send_back
    assert (dict(handler.sent_back), dict(handler.dead)) == (
        {("orders", "g"): 16},
        {("orders", "g"): 1},
    )


@pytest.mark.feature("F216")
def test_beyond_16_every_gap_is_two_hours(failing) -> None:
    position = first(failing)
    for times in range(20):
        failing.ask(back(position, max_reconsume_times=99))
        assert newest(failing, SCHEDULE_TOPIC).properties["DELAY"] == str(min(times + 3, 18))
        failing.advance(DELAY_LEVELS_MS[min(times + 2, 17)])
        position = newest(failing, RETRY).position


@pytest.mark.feature("F217", "F219")
@pytest.mark.parametrize(
    ("group_max", "asked_max", "dead"), [(0, None, 1), (1, None, 0), (9, 0, 1), (0, 5, 0)]
)
def test_who_decides_how_often(engine, draft, records, group_max, asked_max, dead) -> None:
    """The consumer's own number, else the group's."""
    put_group(engine, retry_max_times=group_max)
    engine.ask(*records([draft()]))
    engine.ask(back(first(engine), max_reconsume_times=asked_max))
    assert len(engine.store.queues.get((DEAD, 0), [])) == dead


@pytest.mark.feature("F218")
def test_the_newest_configuration_counts_for_every_instance(engine, draft, records) -> None:
    """Whichever instance gives a message back, and whatever was set when it started."""
    put_group(engine, retry_max_times=0)
    engine.ask(*records([draft()]))
    put_group(engine, retry_max_times=1)
    for peer in (5, 6):
        engine.ask(back(first(engine)), peer=peer)
    assert engine.stored(DEAD) == []
    put_group(engine, retry_max_times=0)
    for peer in (5, 6):
        engine.ask(back(first(engine)), peer=peer)
    assert len(engine.stored(DEAD)) == 2


@pytest.mark.feature("F213")
def test_a_level_of_its_own_and_none_at_all(failing) -> None:
    failing.ask(back(first(failing), 1))
    failing.advance(1_000)
    assert newest(failing, RETRY).properties["DELAY"] == "1"
    failing.ask(back(first(failing), -1))
    assert failing.stored(DEAD)[0].reconsume_times == 1


def test_the_queues_of_the_retry_topic_take_turns(engine, draft, records) -> None:
    put_group(engine, retry_queue_nums=3)
    engine.ask(*records([draft()]))
    for _ in range(6):
        engine.ask(back(first(engine), 1))
    engine.advance(1_000)
    assert [len(engine.stored(RETRY, queue)) for queue in range(3)] == [2, 2, 2]


def test_a_group_without_retry_queues_drops_as_rocketmq_does(engine, draft, records) -> None:
    put_group(engine, retry_queue_nums=0)
    engine.ask(*records([draft()]))
    before = engine.store.end
    assert engine.ask(back(first(engine))).code == Code.SUCCESS
    assert engine.store.end == before


def test_units_mark_the_topic(failing) -> None:
    failing.ask(back(first(failing), unit_mode=True))
    assert failing.control.topics.get(RETRY).topic_sys_flag == 2


# -- what is refused ------------------------------------------------------------------------------


def test_an_unknown_group(failing) -> None:
    assert failing.ask(back(first(failing), group="h")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("wrong", [-1, 1, 2**62])
def test_a_position_where_nothing_lies(failing, wrong) -> None:
    before = failing.store.end
    at = wrong if wrong != 1 else first(failing) + 1
    reply = failing.ask(back(at))
    assert reply.code == Code.SYSTEM_ERROR
    assert str(at) in reply.remark
    assert failing.store.end == before


def test_a_message_of_the_broker_s_own(failing) -> None:
    position = failing.store.queues[CONTROL_TOPIC, 0][0]
    reply = failing.ask(back(position))
    assert (reply.code, CONTROL_TOPIC in reply.remark) == (Code.NO_PERMISSION, True)


def test_another_message_than_the_consumer_means(failing) -> None:
    for fields in ({"origin_topic": "paid"}, {"origin_msg_id": "V"}):
        reply = failing.ask(back(first(failing), **fields))
        assert reply.code == Code.SYSTEM_ERROR
        assert "not" in reply.remark
    offset_id = encode_offset_id(("127.0.0.1", 10911), first(failing))
    for fields in ({"origin_topic": ""}, {"origin_msg_id": offset_id}, {"origin_msg_id": ""}):
        assert failing.ask(back(first(failing), **fields)).code == Code.SUCCESS


def test_topics_of_a_name_space_are_known_without_it(engine, draft, records) -> None:
    put_group(engine)
    engine.ask(*records([draft(topic="ns%orders")], [("ns%orders", 0)]))
    position = engine.store.queues["ns%orders", 0][0]
    assert engine.ask(back(position, origin_topic="orders")).code == Code.SUCCESS


def test_a_retry_topic_that_may_not_be_written(failing) -> None:
    failing.ask(back(first(failing)))
    failing.ask(
        UpdateAndCreateTopic(
            topic=RETRY, default_topic="", read_queue_nums=1, write_queue_nums=1, perm=4
        )
    )
    assert failing.ask(back(first(failing))).code == Code.NO_PERMISSION


def test_a_broker_that_takes_no_writes_or_has_no_room(failing) -> None:
    failing.policy.change(permission=4)
    assert failing.ask(back(first(failing))).code == Code.NO_PERMISSION
    failing.policy.change(permission=6)
    failing.handle(DiskMeasured(100, 1, failing.wall_ms, 3))
    assert failing.ask(back(first(failing))).code == Code.DISK_FULL


def test_the_answer_waits_for_the_disk(draft, records) -> None:
    engine = Engine(sync_flush=True)
    name = engine.send(UpdateAndCreateSubscriptionGroup(), encode_group_config(GroupConfig("g")))
    engine.send(*records([draft()]))
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS
    name = engine.send(back(first(engine)))
    assert name not in engine.replies
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS


# -- a consumer that sends it again by itself (rule 5) --------------------------------------------


def resend(times: int, times_max: int | None, **properties: str) -> SendMessage:
    known = {
        "UNIQ_KEY": "U",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "X",
        "DELAY": str(3 + times),
        "TRAN_MSG": "true",
        **properties,
    }
    return SendMessage(
        producer_group="CLIENT_INNER_PRODUCER",
        topic=RETRY,
        queue_id=0,
        born_timestamp=1,
        properties=encode_properties(known).decode(),
        reconsume_times=times,
        max_reconsume_times=times_max,
    )


@pytest.mark.feature("F221")
def test_a_message_sent_to_the_retry_topic_waits_or_is_dead(failing) -> None:
    assert failing.ask(resend(1, 2), b"again").code == Code.SUCCESS
    assert newest(failing, SCHEDULE_TOPIC).properties["REAL_TOPIC"] == RETRY
    header = failing.ask(resend(2, 2, DLQ_REASON="bad"), b"last").header
    [dead] = failing.stored(DEAD)
    assert (header.queue_id, header.queue_offset) == (0, 0)
    assert (dead.body, dead.reconsume_times) == (b"last", 2)
    assert (dead.properties["DLQ_REASON"], dead.properties["DLQ_ORIGIN_TOPIC"]) == ("bad", "orders")
    failing.advance(2 * 3600_000)
    assert len(failing.stored(DEAD)) == 1
    assert dict(failing.core.parts.send_back.dead) == {("orders", "g"): 1}


def test_without_a_number_of_its_own_the_group_s_counts(failing) -> None:
    failing.ask(resend(16, None), b"x")
    assert len(failing.stored(DEAD)) == 1
    failing.ask(resend(15, None), b"x")
    assert len(failing.stored(DEAD)) == 1


def test_the_retry_topic_of_nobody(failing) -> None:
    request = SendMessage(
        producer_group="p", topic="%RETRY%nobody", queue_id=0, born_timestamp=1, properties=""
    )
    assert failing.ask(request, b"x").code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_what_is_stored_is_whole(failing) -> None:
    failing.ask(back(first(failing), -1))
    raw = failing.store.records[failing.store.queues[DEAD, 0][0]]
    assert decode_record(raw).properties["KEYS"] == "k1 k2"
    assert TopicConfig(DEAD, 1, 1) == failing.control.topics.get(DEAD)
