"""Asking over messages from threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kourou import ClientSettings, ConsumerSettings, ProducerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def asked(cluster, broker):
    cluster.topics["c1_REPLY_TOPIC"] = (1, 1)
    return broker


@pytest.fixture
def opened(cluster, tools):
    def make() -> Client:
        return Client(
            tools.NAMESRV,
            settings=ClientSettings(log_messages=False),
            producer=ProducerSettings(producer_group="p"),
            consumer=ConsumerSettings(consumer_group="g", consume_from_where=FIRST),
            dial=cluster.dial,
        )

    return make


def test_threads_ask_and_threads_reply(asked, opened) -> None:
    def handler(message):
        return message.body.decode() + "!"

    with opened() as mq, opened() as other, other.listen("T", handler, replies=True):
        with ThreadPoolExecutor(4) as threads:
            replies = list(threads.map(lambda n: mq.request("T", str(n), body_type=str), range(20)))
        assert [reply.body for reply in replies] == [f"{n}!" for n in range(20)]
        assert len(mq._core.requests) == 0


def test_replying_by_hand(asked, opened) -> None:
    with opened() as mq, opened() as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(mq.request, "T", b"ping")
        with other.subscribe("T") as messages:
            for message in messages:
                other.reply(message, b"pong")
                message.ack()
                break
        assert waiting.result().body == b"pong"
        plain = mq.send("T", b"no request")
        assert plain.message_id
