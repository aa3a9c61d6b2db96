"""The exporter's page of a broker that works: members are asked, and every name has a sample."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou import ConsumerSettings
from kourou.broker.telemetry.exporter_page import (
    EXPORTER_METRICS,
    LEFT_OUT,
    PUT_TIMES,
    LastMinute,
    PageQuestions,
    ReportedConsumer,
    RequestedValues,
    exporter_page,
)
from kourou.broker.telemetry.metrics import BrokerReport
from kourou.engine.inputs import Input
from kourou.engine.view import CoreView
from kourou.errors import Code, Rejected
from kourou.events.control_events import TopicPut
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo, ConsumeStatus
from kourou.protocol.messages.groups import GetConsumerRunningInfo
from kourou.runtime import Received, Reply, ReplyTo
from kourou.service.protocol_server import ProtocolServers
from kourou.telemetry.metric_table import METRICS, MetricKind
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


# -- A broker's figures under the names of RocketMQ 4's exporter -----------------------------------


ADDRESS = "10.0.0.7:20911"


def page(site, parts, asked: RequestedValues | None = None) -> dict[tuple[str, ...], float]:
    made = BrokerReport(site.store, site.clock)
    made.attach(CoreView(parts), ProtocolServers())
    text = exporter_page(
        CoreView(parts),
        site.store,
        made.table(),
        asked or RequestedValues((), 0.0, None),
        address=ADDRESS,
        wall_ms=site.clock.now_ms(),
    ).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def pass_a_minute(parts) -> None:
    for second in range(0, 61, 10):
        parts.statistics.tick(second * 1_000)


def test_rates_are_those_of_the_last_minute(site) -> None:
    parts = site.parts()
    parts.statistics.tick(0)
    for _ in range(120):
        parts.traffic.taken("orders", 50)
    parts.traffic.taken("%RETRY%g", 50)
    parts.traffic.out("orders", "g", 60, 3_000)
    parts.traffic.sent_back["orders", "g"] += 6
    pass_a_minute(parts)
    found = page(site, parts)
    here = ("broker-a", "DefaultCluster")
    assert found["rocketmq_broker_tps", "broker-a", ADDRESS, "DefaultCluster"] == 121 / 60
    assert found["rocketmq_broker_qps", "broker-a", ADDRESS, "DefaultCluster"] == 1
    assert found["rocketmq_producer_tps", *here, "orders"] == 2
    assert found["rocketmq_producer_message_size", *here, "orders"] == 100
    assert found["rocketmq_consumer_tps", *here, "g", "orders"] == 1
    assert found["rocketmq_consumer_message_size", *here, "g", "orders"] == 50
    assert found["rocketmq_send_back_nums", *here, "g", "orders"] == 0.1
    assert ("rocketmq_producer_tps", *here, "%RETRY%g") not in found


def test_offsets_lag_and_age_are_read_of_the_queues(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 1, 1)))
    site.clock.advance(7_000)
    parts = site.parts()
    (topic,) = site.store.topics()
    ends = site.store.queue_range(topic, 0)
    assert ends == (0, 1)
    parts.commits.commit("g", topic, 0, 0)
    parts.commits.commit("done", topic, 0, 1)
    found = page(site, parts)
    here = ("broker-a", "DefaultCluster")
    assert found["rocketmq_producer_offset", *here, topic] == 1
    assert found["rocketmq_consumer_offset", *here, "g", topic] == 0
    assert found["rocketmq_consumer_offset", *here, "done", topic] == 1
    assert found["rocketmq_group_diff", "0", "g", "1", topic] == 1
    assert found["rocketmq_group_diff", "0", "done", "1", topic] == 0
    assert found["rocketmq_group_get_latency_by_storetime", *here, "g", topic] == 7_000
    assert found["rocketmq_group_get_latency_by_storetime", *here, "done", topic] == 0


def test_dead_letters_are_reported_from_the_first_one_on(site) -> None:
    """A group whose dead letters were never handled has committed nothing there."""
    names = {name for name, *_ in page(site, site.parts())}
    dead = {"rocketmq_group_dlqdiff", "rocketmq_topic_dlq_offset"}
    assert not names & dead
    for group in ("g", "h"):
        site.record(TopicPut(TopicConfig(f"%DLQ%{group}", 1, 1)))
    parts = site.parts()
    ranges = {"%DLQ%g": (2, 7), "%DLQ%h": (0, 3)}
    parts.view = Ranges(ranges)
    parts.commits.commit("h", "%DLQ%h", 0, 1)
    found = page(site, parts)
    here = ("broker-a", "DefaultCluster")
    assert found["rocketmq_topic_dlq_offset", *here, "g"] == 7
    assert found["rocketmq_group_dlqdiff", "0", "g", "1", "%DLQ%g"] == 5
    assert found["rocketmq_group_dlqdiff", "0", "h", "1", "%DLQ%h"] == 2


class Ranges:
    """Plays a store's view: one queue of each topic, from an offset to an offset."""

    def __init__(self, ranges: dict[str, tuple[int, int]]) -> None:
        self.ranges = ranges

    def topics(self) -> list[str]:
        return list(self.ranges)

    def queue_ids(self, _: str) -> list[int]:
        return [0]

    def queue_range(self, topic: str, _: int) -> tuple[int, int]:
        return self.ranges[topic]

    def store_time(self, *_: object) -> int:
        return -1

    def record_at(self, _: int) -> None:
        raise Rejected("there is none")


def test_what_consumers_report_has_their_labels(site) -> None:
    rates = {"orders": ConsumeStatus(consume_ok_tps=3.5, consume_failed_msgs=2, pull_rt=1.25)}
    info = ConsumerRunningInfo(queues={MessageQueue("orders", "b", 0): None}, rates=rates)
    asked = RequestedValues([ReportedConsumer("g", "c@1", "10.0.0.9:4711", info)], 0.25, range(13))
    found = page(site, site.parts(), asked)
    who = ("10.0.0.9:4711", "c@1", "g", "orders")
    assert found["rocketmq_client_consume_ok_msg_tps", *who] == 3.5
    assert found["rocketmq_client_consume_fail_msg_count", *who] == 2
    assert found["rocketmq_client_consumer_pull_rt", *who] == 1.25


def test_the_runtime_metrics(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 1, 1)))
    parts = site.parts()
    parts.traffic.taken("orders", 50)
    parts.traffic.taken("orders", 150)
    rows = page(site, parts, RequestedValues((), 0.25, range(13)))
    found = {
        name.removeprefix("rocketmq_brokeruntime_"): value for (name, *_), value in rows.items()
    }
    assert found["put_message_size_total"] == 200
    assert found["put_message_average_size"] == 100
    assert found["msg_put_total_today_now"] == 2
    assert found["commitlog_minoffset"] == 0
    assert found["commitlog_maxoffset"] == site.store.end
    assert found["earliest_message_timestamp"] == site.clock.now_ms()
    assert found["send_threadpoolqueue_headwait_timemills"] == 0.25
    assert [found[f"pmdt_{span}"] for span in PUT_TIMES] == list(range(13))
    total, free = site.store.usage()
    assert found["commitlogdir_capacity_total"] == total
    assert found["commitlogdir_capacity_free"] == free
    labels = next(labels for (name, *labels) in rows if name.endswith("_commitlog_maxoffset"))
    assert labels[1:] == ["10.0.0.7", ADDRESS, "409", "DefaultCluster", f"Kourou {_version()}"]


def _version() -> str:
    from kourou import __version__

    return __version__


def test_what_is_not_known_is_left_out_and_not_0(site) -> None:
    names = {name for name, *_ in page(site, site.parts())}
    assert not [name for name in names if "pmdt" in name]
    assert "rocketmq_brokeruntime_earliest_message_timestamp" not in names


# -- table -----------------------------------------------------------------------------------------


_PUT_TIMES = (
    "0ms 0to10ms 10to50ms 50to100ms 100to200ms 200to500ms 500to1s 1to2s 2to3s 3to4s 4to5s 5to10s "
    "10stomore"
)
_BOTH = (
    *(f"brokeruntime_pmdt_{span}" for span in _PUT_TIMES.split()),
    *(f"brokeruntime_{p}_threadpoolqueue_headwait_timemills" for p in ("pull", "query", "send")),
    "brokeruntime_commitlog_disk_ratio",
    "brokeruntime_commitlog_maxoffset",
    "brokeruntime_commitlog_minoffset",
    "brokeruntime_dispatch_behind_bytes",
    "brokeruntime_msg_gettotal_today_now",
    "brokeruntime_msg_gettotal_todaymorning",
    "brokeruntime_msg_gettotal_yesterdaymorning",
    "brokeruntime_msg_put_total_today_now",
    "brokeruntime_msg_puttotal_todaymorning",
    "brokeruntime_msg_puttotal_yesterdaymorning",
    "broker_qps",
    "broker_tps",
    "client_consume_fail_msg_count",
    "client_consume_ok_msg_tps",
    "client_consume_rt",
    "client_consumer_pull_rt",
    "client_consumer_pull_tps",
    "consumer_message_size",
    "consumer_offset",
    "consumer_tps",
    "group_get_latency_by_storetime",
    "producer_message_size",
    "producer_offset",
    "producer_tps",
)
OVERVIEW = (
    *_BOTH,
    "brokeruntime_commitlogdir_capacity_free",
    "brokeruntime_commitlogdir_capacity_total",
    "brokeruntime_consumequeue_disk_ratio",
    "brokeruntime_getfound_tps10",
    "brokeruntime_getmiss_tps10",
    "brokeruntime_gettotal_tps10",
    "brokeruntime_gettransfered_tps10",
    "brokeruntime_put_message_average_size",
    "brokeruntime_put_message_size_total",
    "brokeruntime_put_tps10",
    "client_consume_fail_msg_tps",
)
"""Of "RocketMQ Exporter Overview", Grafana's dashboard 10477, without their common beginning."""

DETAILED = (
    *_BOTH,
    "brokeruntime_earliest_message_timestamp",
    "group_diff",
    "group_retrydiff",
    "topic_dlq_offset",
    "topic_retry_offset",
)
"""Of the second dashboard in the exporter's repository, `rocketmq-exporter`."""


def test_every_name_of_the_popular_dashboards_is_served() -> None:
    assert (len(OVERVIEW), len(DETAILED)) == (51, 45)
    wanted = {f"rocketmq_{name}" for name in (*OVERVIEW, *DETAILED)}
    assert wanted - EXPORTER_METRICS.keys() == set()


def test_the_table_has_gauges_with_labels_and_sentences() -> None:
    for spec in EXPORTER_METRICS.values():
        assert re.fullmatch(r"rocketmq_[a-z0-9_]+", spec.name)
        assert spec.kind is MetricKind.GAUGE, "as the exporter has them, counters too"
        assert spec.labels
        assert spec.about


def test_no_name_has_two_meanings() -> None:
    """Both pages of one broker can be scraped side by side."""
    assert not EXPORTER_METRICS.keys() & METRICS.keys()
    assert all(reason for reason in LEFT_OUT.values())
