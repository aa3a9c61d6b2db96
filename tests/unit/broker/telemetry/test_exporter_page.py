"""The exporter's page of a broker that works: members are asked, and every name has a sample."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou import ConsumerSettings
from kourou.broker.telemetry.exporter_page import EXPORTER_METRICS, LastMinute, PageQuestions
from kourou.engine.inputs import Input
from kourou.errors import Code
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.groups import GetConsumerRunningInfo
from kourou.runtime.core import Received, Reply, ReplyTo
from kourou.testing.cluster import Cluster
from kourou_rigs.clock import ManualClock


def test_the_last_minute_is_the_increase_since_a_snapshot() -> None:
    minute = LastMinute(0)
    assert minute.look(30_000, [5, 0]) == [5, 0], "the process is younger than a minute"
    assert minute.look(60_000, [7, 1]) == [7, 1]
    assert minute.look(100_000, [9, 1]) == [4, 1]
    assert minute.look(125_000, [9, 4]) == [2, 3]
    assert minute.look(400_000, [99, 9]) is None, "nobody looked a minute ago"
    assert minute.look(460_000, [100, 9]) == [1, 0]


async def test_an_answer_that_comes_late_or_never_is_not_waited_for() -> None:
    asked: list[Input] = []
    questions = PageQuestions(asked.append, ManualClock())
    request = GetConsumerRunningInfo(consumer_group="g", client_id="c")
    with pytest.raises(TimeoutError):
        await questions.question(request, 1)
    (received,) = asked
    assert isinstance(received, Received)
    questions.reply(Reply(received.to))  # too late, and forgotten
    question = asyncio.create_task(questions.question(request, 60_000))
    await asyncio.sleep(0)
    later = asked[-1]
    assert isinstance(later, Received)
    assert isinstance(later.to, ReplyTo)
    questions.reply(Reply(later.to, Code.SYSTEM_ERROR))
    assert (await question).code == Code.SYSTEM_ERROR


def scraped(cluster: Cluster, names: str) -> tuple[int, str]:
    admin = cluster.members[0].service._admin
    assert admin is not None
    try:
        with urllib.request.urlopen(f"http://{admin.address}/metrics?names={names}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_every_name_has_a_true_sample(tmp_path: Path) -> None:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    retried = ConsumerSettings(consumer_group="g", consume_from_where=first)
    dead = ConsumerSettings(
        consumer_group="strict", consume_from_where=first, max_reconsume_times=0
    )

    def fail_some(message) -> None:
        if message.body == b"bad" and message.attempt == 1:
            raise ValueError("no")

    with Cluster(tmp_path, settings={"adminEnable": "true", "adminPort": "0"}) as cluster:
        cluster.create_topic("orders", queues=1)
        with (
            cluster.client("p") as mq,
            cluster.client("g", consumer=retried) as one,
            cluster.client("strict", consumer=dead) as other,
        ):
            mq.send_many("orders", [b"good", b"bad", b"good"])
            with one.listen("orders", fail_some) as soft, other.listen("orders", fail_some) as hard:
                while not (soft.counts.sent_back and hard.counts.sent_back):
                    cluster.clock.advance(0)
                scraped(cluster, "exporter")
                cluster.clock.advance(15)
                mq.send_many("orders", [b"good"] * 3)  # between two looks of the consumers
                cluster.clock.advance(46)
                status, text = scraped(cluster, "exporter")
        unknown, _ = scraped(cluster, "other")
    assert (status, unknown) == (200, 400)
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    assert EXPORTER_METRICS.keys() == {sample.name for sample in samples}
    for sample in samples:
        assert sample.labels.keys() == set(EXPORTER_METRICS[sample.name].labels)
    consumed = {
        (sample.labels["group"], sample.labels["topic"]): sample.value
        for sample in samples
        if sample.name == "rocketmq_client_consume_ok_msg_tps"
    }
    assert consumed["g", "orders"] > 0
    assert consumed["strict", "orders"] > 0
    ends = {
        sample.labels.get("topic", sample.labels.get("group")): sample.value
        for sample in samples
        if sample.name in ("rocketmq_topic_dlq_offset", "rocketmq_producer_offset")
    }
    assert (ends["strict"], ends["orders"]) == (1, 6)
