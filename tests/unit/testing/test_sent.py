"""What was sent is found by what is known of it; a question that fails says what is there."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from kourou.protocol.record.message_id import decode_offset_id
from kourou.testing.sent import SHOWN_MAX, TopicConditions

TOPIC = "orders"


class Order(msgspec.Struct):
    id: str
    amount: int


@pytest.fixture
def send(kourou_client, kourou_topic):
    def one(body=b"", **options):
        return kourou_client.send(kourou_topic, body, **options)

    return one


def test_one_is_found_by_all_that_is_known_of_it(kourou_sent, kourou_topic, send):
    send(b"1", tag="paid", keys=["A-1", "A-2"], properties={"shop": "north"})
    send(b"2", tag="open", keys=["B-1"])
    send(Order("C-1", 7), tag="json")
    for which in (
        {"tag": "paid"},
        {"key": "A-2"},
        {"body": b"1"},
        {"body": "1"},
        {"properties": {"shop": "north"}},
        {"where": lambda message: message.body == b"1"},
        {"tag": "paid", "key": "A-1", "body": b"1"},
    ):
        assert kourou_sent.one(kourou_topic, **which).body == b"1", which
    for which in (
        {"tag": "Paid"},
        {"key": "A"},
        {"body": b"3"},
        {"properties": {"shop": "south"}},
        {"properties": {"town": "north"}},
        {"tag": "paid", "key": "B-1"},
    ):
        kourou_sent.none(kourou_topic, **which)


def test_bodies_are_compared_as_what_they_were_sent_as(kourou_sent, kourou_topic, send):
    send(Order("C-1", 7))
    send(b"no order at all")
    found = kourou_sent.one(kourou_topic, body=Order("C-1", 7), body_type=Order)
    assert found.body == Order("C-1", 7)
    assert (
        kourou_sent.one(kourou_topic, body=Order("C-1", 7)).raw_body == b'{"id":"C-1","amount":7}'
    )
    kourou_sent.none(kourou_topic, body=Order("C-1", 8), body_type=Order)


def test_a_misspelt_word_does_not_fit_everything(kourou_sent):
    with pytest.raises(TypeError, match="no message is known by tagg; known: body, body_type, key"):
        kourou_sent.one(TOPIC, tagg="paid")
    assert str(TopicConditions(TOPIC, {"tag": "paid"})) == "'orders' with tag='paid'"


def test_what_earlier_tests_sent_is_not_looked_at(kourou_broker, kourou_topic, send):
    send(b"1")
    later = kourou_broker.sent()
    later.none(kourou_topic)
    send(b"2")
    assert later.one(kourou_topic).body == b"2"


def test_what_earlier_tests_sent_is_not_new_after_a_restart_either(kourou_cluster):
    cluster = kourou_cluster(1)
    topic = cluster.create_topic()
    with cluster.client() as client:
        client.send(topic, b"earlier")
        sent = cluster.sent()
        cluster.chaos.kill()
        cluster.chaos.restart()
        sent.none(topic)
        client.send(topic, b"new")
        assert sent.one(topic).body == b"new"


def test_what_came_after_a_power_loss_is_new_however_short_the_log_is_then(kourou_cluster):
    seldom = {"flushCommitLogTimed": True, "flushIntervalCommitLog": 10_000}
    cluster = kourou_cluster(1, settings=seldom)
    topic = cluster.create_topic()
    with cluster.client() as client:
        cluster.clock.advance(seconds=30)
        lost = [client.send(topic, b"lost, with its place in the log" * 100) for _ in range(50)]
        sent = cluster.sent()
        cluster.members[0].disk._rng.choice = min  # the worst of fates: hardly a sector stays
        cluster.chaos.power_loss()
        cluster.chaos.restart()
        client.send(topic, b"new")
        found = sent.one(topic, body=b"new")
        places = [decode_offset_id(one.offset_message_id)[1] for one in lost]
        assert found.position < max(places), "else this shows nothing"


def test_all_there_is_and_exactly_so_many(kourou_sent, kourou_topic, send):
    for number in range(6):
        send(b"%d" % number)
    assert [one.body for one in kourou_sent.all(kourou_topic)] == [b"%d" % n for n in range(6)]
    assert len(kourou_sent.all(kourou_topic, 6)) == 6
    with pytest.raises(AssertionError, match=r"6 messages in .*, not 5"):
        kourou_sent.all(kourou_topic, 5)
    with pytest.raises(AssertionError, match=r"6 messages in .*, not 7, after 0 s"):
        kourou_sent.all(kourou_topic, 7, within_s=0)
    assert len(kourou_sent.eventually(kourou_topic, 3)) == 6


def test_a_question_waits_for_what_another_thread_sends(kourou_sent, kourou_topic, send):
    threading.Timer(0.01, send, [b"late"]).start()
    assert kourou_sent.one(kourou_topic).body == b"late"


def test_a_failed_question_shows_what_is_there(kourou_sent, kourou_topic, send):
    for number in range(SHOWN_MAX + 2):
        send(b"x" * 100, tag=f"t{number}", keys="k")
    with pytest.raises(AssertionError) as failed:
        kourou_sent.one(kourou_topic, tag="paid", within_s=0)
    said = str(failed.value)
    assert f"0 messages in '{kourou_topic}' with tag='paid', not 1, after 0 s" in said
    assert f"the topic has {SHOWN_MAX + 2} messages of this test" in said
    assert "tag='t0' keys=('k',) body=b'xxx" in said
    assert "'..." in said
    assert "and 2 more" in said


def test_none_of_a_topic_that_is_there_or_not(kourou_sent, kourou_topic, send):
    kourou_sent.none("never-made")
    send()
    with pytest.raises(AssertionError, match=r"1 messages in .*, not 0"):
        kourou_sent.none(kourou_topic)


def test_consumed_waits_for_the_group_and_says_what_it_has_not_read(
    kourou_sent, kourou_topic, kourou_client, send
):
    placed = send(b"1").queue
    with pytest.raises(AssertionError, match="group 'g' has not consumed") as failed:
        kourou_sent.consumed(kourou_topic, "g", within_s=0)
    assert f"{placed}: committed nothing of 0 to 1" in str(failed.value)
    puller = kourou_client.pull_consumer("g")
    puller.commit({placed: 1})
    kourou_sent.consumed(kourou_topic, "g")
    kourou_client.send(kourou_topic, b"2", queue=placed)
    with pytest.raises(AssertionError, match="committed up to 1 of 0 to 2"):
        kourou_sent.consumed(kourou_topic, "g", within_s=0)


async def test_async_tests_ask_the_same_and_their_loop_goes_on(
    kourou_async_sent, kourou_async_client, kourou_topic
):
    asking = asyncio.ensure_future(kourou_async_sent.one(kourou_topic, tag="paid"))
    queue = (await kourou_async_client.send(kourou_topic, b"1", tag="paid")).queue
    assert (await asking).body == b"1"
    assert len(await kourou_async_sent.all(kourou_topic)) == 1
    assert len(await kourou_async_sent.all(kourou_topic, 1, tag="paid")) == 1
    assert len(await kourou_async_sent.eventually(kourou_topic)) == 1
    await kourou_async_sent.none(kourou_topic, tag="open")
    puller = await kourou_async_client.pull_consumer("g")
    await puller.commit({queue: 1})
    await kourou_async_sent.consumed(kourou_topic, "g")
    with pytest.raises(AssertionError, match="1 messages"):
        await kourou_async_sent.all(kourou_topic, 2, within_s=0)
