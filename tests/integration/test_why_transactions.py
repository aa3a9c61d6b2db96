"""Why is a message where it is that is half of a transaction?"""

from __future__ import annotations

from contextlib import suppress

import pytest

from kourou import ProducerSettings
from kourou.errors import KourouError
from kourou.testing.cluster import Cluster

TRIES = 300
STEP_S = 0.1
SETTINGS = {
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 1,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("why"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster):
    return cluster.create_topic(queues=1)


@pytest.fixture
def why(cluster, shop):
    """Asks until the first cause has this code, while time goes on by little."""

    def ask(message, code, **more):
        for _ in range(TRIES):
            told = shop.admin.explain.message(message, **more)
            if told.causes[0].code == code:
                return told
            cluster.clock.advance(STEP_S)
        raise AssertionError(f"{codes(told)}, not {code}: {told}")

    return ask


def codes(answer) -> list[str]:
    return [one.code for one in answer.causes]


@pytest.fixture
def shop(cluster):
    with cluster.client(producer=ProducerSettings(producer_group="shop")) as mq:
        yield mq


def test_half_of_an_open_transaction_is_nobodys_and_then_rolled_back(shop, topic, why):
    shop.transaction_check(topic)(lambda message: None)
    with shop.transaction(topic, b"booked") as booking:
        told = why(booking.id, "transaction_open")
        facts = told.causes[0].facts
        assert (facts["producer_group"], facts["checks"]) == ("shop", 0)
        told = why(booking.id, "transaction_open", group="till", topic=topic)
        assert codes(told.groups[0]) == ["transaction_open", "group_unknown"]
        booking.rollback()
    told = why(booking.id, "transaction_rolled_back")
    assert {one.kind for one in told.places} == {"half"}


def test_a_committed_half_is_a_message_like_others(shop, topic, why):
    shop.transaction_check(topic)(lambda message: None)
    with shop.transaction(topic, b"booked") as booking:
        pass
    told = why(booking.id, "nobody_consumes", topic=topic)
    assert [one.kind for one in told.places] == ["half", "sent"]


def test_a_transaction_that_nobody_can_tell_about_is_given_up(shop, cluster, topic, why):
    shop.transaction_check(topic)(lambda message: None)
    # The broker has given it up by then, and may say so to its end.
    with suppress(KourouError), shop.transaction(topic, b"booked") as booking:
        cluster.clock.advance(5)
        told = why(booking.id, "transaction_given_up")
        assert told.causes[0].facts["checks"] >= 1
        assert [one.kind for one in told.places][-1] == "given_up"
        booking.rollback()
