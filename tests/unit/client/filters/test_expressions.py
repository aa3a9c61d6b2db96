"""What an application says of the messages it wants, as far as a whole broker."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from kourou import Filter, Sql
from kourou.client.filters.expressions import check_wanted, says, subscription_of
from kourou.errors import BadRequest, Rejected
from kourou.filtering.tags import parse_tags
from kourou.model.subscription import SQL92, Subscription
from kourou.testing.cluster import unique_name


def test_an_sql_is_checked_when_it_is_made():
    assert Sql("a > 1").expression == "a > 1"
    assert Sql("a > 1") == Sql("a > 1")
    with pytest.raises(BadRequest, match="at position 4: unexpected end; expected a property"):
        Sql("a >")
    with pytest.raises(BadRequest, match="the filter expression is"):
        Sql(None)  # type: ignore[arg-type]  # what somebody may pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("NOT a = 1", "at position 5: the property a alone is not a condition; NOT binds tighter"),
        ("a", "at position 1: the property a alone is not a condition"),
        ("b = 1 AND a", "at position 11: the property a alone is not a condition"),
        ("a = 1 = 1", "at position 9: a condition never equals the number 1"),
        ("TRUE = a", "at position 8: TRUE never equals the property a"),
        ("-a = 1", "at position 2: a minus sign without a number is never true"),
        ("a BETWEEN 1 AND -b", "a minus sign without a number is never true"),
        ("a = ''", "at position 5: a property is never empty; expected IS NULL or IS NOT NULL"),
    ],
)
def test_what_nobody_means_is_refused(text: str, problem: str):
    """A broker takes all of these, as RocketMQ's does."""
    with pytest.raises(BadRequest) as refused:
        Sql(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["a = TRUE", "NOT (a = 1)", "(a = 1) = TRUE", "(a > 1) IS NULL", "a = -1", "TRUE", "1 = '1'"],
)
def test_what_may_be_meant_is_taken(text: str):
    Sql(text)


def test_both_ways_of_saying_become_subscriptions():
    assert subscription_of("T", "a || b", version=3) == parse_tags("T", "a || b", version=3)
    by_properties = Subscription("T", "a = 1", SQL92, version=3)
    assert subscription_of("T", Sql("a = 1"), version=3) == by_properties
    assert says(by_properties, Sql("a = 1"))
    assert not says(by_properties, Sql("a = 2"))
    in_python = Subscription("T", "late", version=3, class_filter_mode=True)
    assert subscription_of("T", Filter.named("late"), version=3) == in_python
    assert says(in_python, Filter.named("late"))
    assert not says(in_python, Filter.named("other"))
    assert not says(in_python, "late")
    assert not says(parse_tags("T", "late", version=3), Filter.named("late"))
    check_wanted(Filter.named("late"))
    assert not says(by_properties, "a = 1")
    assert not says(parse_tags("T", "a"), Sql("a = 1"))
    check_wanted(Sql("a = 1"))
    with pytest.raises(BadRequest):
        check_wanted("a && b")


@pytest.mark.feature("F237", "F352")
def test_a_subscription_by_properties(kourou_broker, kourou_topic):
    with kourou_broker.client(unique_name("g")) as mq:
        for number in range(20):
            status = {"status": str(1 + number % 2)}
            mq.send(kourou_topic, b"%d" % number, properties=status, order_key="one queue")
        with mq.subscribe(kourou_topic, Sql("status = 1"), body_type=int) as messages:
            assert [message.body for message in islice(messages, 10)] == [*range(0, 20, 2)]


def test_every_topic_may_have_its_own_kind_of_filter(kourou_broker):
    one, other = kourou_broker.create_topic(queues=1), kourou_broker.create_topic(queues=1)
    heard, both = [], threading.Semaphore(0)

    def handler(message):
        heard.append((message.topic, message.body))
        both.release()

    with kourou_broker.client(unique_name("g")) as mq:
        for text in ("no", "yes"):
            mq.send(one, text, properties={"a": text})
            mq.send(other, text, tag=text)
        with mq.listen({one: Sql("a = 'yes'"), other: "yes"}, handler):
            assert both.acquire(timeout=60)
            assert both.acquire(timeout=60)
    assert sorted(heard) == sorted([(one, b"yes"), (other, b"yes")])


def test_a_pull_consumer_says_it_with_each_pull(kourou_broker):
    topic = kourou_broker.create_topic(queues=1)
    with kourou_broker.client(unique_name("g")) as mq:
        for number in range(4):
            mq.send(topic, b"%d" % number, properties={"n": str(number)})
        consumer = mq.pull_consumer(body_type=int)
        (queue,) = consumer.queues(topic)

        def pulled(expression) -> list[int]:
            return [each.body for each in consumer.pull(queue, 0, expression=expression).messages]

        assert pulled(Sql("n > 1")) == [2, 3]
        assert pulled(Sql("n <= 1")) == [0, 1]
        assert pulled("*") == [0, 1, 2, 3]
        consumer.assign([queue], expression=Sql("n = 3"))
        assert [each.body for each in consumer.poll()] == [3]


@pytest.mark.feature("F352")
def test_where_filters_are_switched_off_a_consumer_does_not_start(kourou_cluster):
    cluster = kourou_cluster(1, settings={"enablePropertyFilter": False})
    topic = cluster.create_topic()
    with cluster.client(unique_name("g")) as mq:
        mq.send(topic, b"x")
        with (
            pytest.raises(Rejected, match="does not support consumer to filter message by SQL92"),
            mq.subscribe(topic, Sql("a = 1")),
        ):
            pass
        with mq.subscribe(topic) as messages:
            assert next(iter(messages)).raw_body == b"x"


def test_a_topic_that_does_not_exist_yet_is_no_reason_not_to_start(kourou_broker):
    with (
        kourou_broker.client(unique_name("g")) as mq,
        mq.subscribe(unique_name("later"), Sql("a = 1")),
    ):
        pass


@pytest.mark.feature("F244")
def test_a_consumer_may_look_at_anything_and_choose_for_itself(kourou_broker):
    """Fully free, and every message travels: the body is no matter for brokers."""
    topic = kourou_broker.create_topic(queues=1)
    with kourou_broker.client(unique_name("g")) as mq:
        for text in ("one", "three", "five", "eleven"):
            mq.send(topic, text)
        with mq.subscribe(topic, body_type=str) as messages:
            chosen = (message.body for message in messages if len(message.body) > 3)
            assert list(islice(chosen, 3)) == ["three", "five", "eleven"]
