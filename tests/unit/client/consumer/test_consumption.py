"""What `subscribe` and `listen` are asked for."""

from __future__ import annotations

import pytest

from kourou.client.consumer.consumption import (
    BATCH_SIZE,
    chosen_handler,
    consumption,
    group_defaults,
)
from kourou.client.filters.python_filter import Filter
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.errors import BadRequest

DEFAULTS = ConsumerSettings()


def wanted(topics="T", expression="*", settings=DEFAULTS, **changes):
    fields = {"group": None, "body_type": None, "offsets": None, **changes}
    return consumption(settings, topics, expression, **fields)


def test_one_topic_or_several():
    assert wanted("T", "a || b").subscriptions == {"T": "a || b"}
    assert wanted({"T": "a", "U": "*"}).subscriptions == {"T": "a", "U": "*"}
    with pytest.raises(BadRequest):
        wanted({"T": "a"}, "b")


def test_one_name_of_a_filter_means_one_source():
    one, other = (
        Filter(f"def match(message, context):\n    return {answer}\n", name="same")
        for answer in (True, False)
    )
    assert wanted({"T": one, "U": one}).subscriptions == {"T": one, "U": one}
    assert wanted({"T": one, "U": Filter.named("same")}).subscriptions["T"] == one
    with pytest.raises(BadRequest, match="of T and V are different but have the same name, same"):
        wanted({"T": one, "U": "*", "V": other})


@pytest.mark.feature("F198", "F313")
@pytest.mark.parametrize(
    ("batch", "configured", "size", "batched"),
    [
        (False, 1, 1, False),
        (False, 8, 8, False),
        (True, 1, BATCH_SIZE, True),
        (True, 8, 8, True),
        (5, 8, 5, True),
    ],
)
def test_batch_sizes(batch, configured, size, batched):
    settings = ConsumerSettings(consume_message_batch_max_size=configured)
    made = wanted(settings=settings, batch=batch)
    assert (made.settings.consume_message_batch_max_size, made.batched) == (size, batched)


@pytest.mark.feature("F290", "F301")
def test_the_clients_group_fills_what_is_not_given():
    producer, consumer = group_defaults("g", None, None)
    assert (producer.producer_group, consumer.consumer_group) == ("g", "g")
    own = ProducerSettings(producer_group="own")
    producer, consumer = group_defaults("g", own, None)
    assert (producer.producer_group, consumer.consumer_group) == ("own", "g")
    producer, consumer = group_defaults(None, None, None)
    assert producer.producer_group == "DEFAULT_PRODUCER"
    assert consumer.consumer_group == "DEFAULT_CONSUMER"


def test_expressions_that_nobody_means_are_refused_before_anything_is_joined():
    for topics, expression in (("T", "paid &&"), ({"T": "*", "U": "a | b"}, "*"), ("T", 5)):
        with pytest.raises(BadRequest, match="the tag expression"):
            wanted(topics, expression)
    with pytest.raises(BadRequest, match="the tag expression"):
        wanted(None, settings=ConsumerSettings(subscription={"T": "a || *"}))


def test_a_handler_that_cannot_be_called_is_refused():
    with pytest.raises(BadRequest, match=", which is not callable"):
        chosen_handler(DEFAULTS, "*")
