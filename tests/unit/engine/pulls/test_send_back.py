"""What consumers could not process comes again, or is kept as a dead letter."""

import pytest

from kourou.errors import Code
from kourou.model.message import DELAY_LEVELS_MS
from kourou.model.names import SCHEDULE_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou.protocol.record.message_id import encode_offset_id
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
