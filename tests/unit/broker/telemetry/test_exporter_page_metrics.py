"""A broker's figures under the names of RocketMQ 4's exporter."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kourou.broker.telemetry.exporter_page import (
    PUT_TIMES,
    ReportedConsumer,
    RequestedValues,
    exporter_page,
)
from kourou.broker.telemetry.metrics import BrokerReport
from kourou.errors import Rejected
from kourou.events.control_events import TopicPut
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo, ConsumeStatus
from kourou.service.protocol_server import ProtocolServers

ADDRESS = "10.0.0.7:20911"


def page(site, parts, asked: RequestedValues | None = None) -> dict[tuple[str, ...], float]:
    made = BrokerReport(site.store, site.clock)
    made.attach(parts, ProtocolServers())
    text = exporter_page(
        parts,
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
