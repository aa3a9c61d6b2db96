"""A broker's metrics under RocketMQ 5's names."""

from __future__ import annotations

import re

import pytest

from kourou.engine.events import GroupPut, ProgressRecorded, TopicPut
from kourou.engine.peer import Peer
from kourou.errors import Code
from kourou.model.group import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.sending import SendRecords
from kourou.protocol.record import encode_draft
from kourou.telemetry.metric_table import METRICS
from kourou.transport.zmq_server import ZmqServer
from kourou_broker.measures import Measures
from kourou_broker.metrics import broker_metrics
from kourou_broker.rpc_latency import TimedReplyTo


def page(site, desks, measures=None) -> dict[str, float]:
    server = ZmqServer("127.0.0.1:0", lambda _frames: None, lambda _peer: None, listener="lan")
    text = broker_metrics(desks, site.store, server, measures or Measures()).decode()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def value(found: dict[str, float], name: str, **labels: str) -> float:
    (match,) = [
        amount
        for sample, amount in found.items()
        if re.match(rf"{name}(_total)?{{", sample)
        and all(f'{key}="{text}"' in sample for key, text in labels.items())
    ]
    return match


def test_traffic_by_topic_and_group(site) -> None:
    desks = site.desks()
    for size in (50, 150, 100, 5_000):
        desks.traffic.taken("orders", size)
    desks.traffic.out("%RETRY%g", "g", 2, 200)
    desks.traffic.refuse(13)
    desks.traffic.repeats_removed = 5
    found = page(site, desks)
    who = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}
    assert value(found, "rocketmq_messages_in_total", topic="orders", **who) == 4
    assert value(found, "rocketmq_throughput_in_total", topic="orders", **who) == 5_300
    size = "rocketmq_message_size"
    assert value(found, f"{size}_bucket", topic="orders", le="1024", **who) == 3
    assert value(found, f"{size}_bucket", topic="orders", le="4096", **who) == 3
    assert value(found, f"{size}_bucket", topic="orders", le="524288", **who) == 4
    assert value(found, f"{size}_sum", topic="orders", **who) == 5_300
    assert value(found, "rocketmq_messages_out_total", consumer_group="g", is_retry="true") == 2
    assert value(found, "kourou_requests_refused_total", response_code="13") == 1
    assert value(found, "kourou_repeats_removed_total") == 5


def test_lag_is_what_a_group_has_yet_to_read(site) -> None:
    site.record(
        TopicPut(TopicConfig("orders", 2, 2)),
        GroupPut(GroupConfig("g")),
        ProgressRecorded("g", {"orders": {0: 1, 1: 7}}),
    )
    desks = site.desks()
    for _ in range(4):
        draft = encode_draft(
            topic=b"orders",
            queue_id=0,
            body=b"x",
            properties=b"",
            born_timestamp=1,
            born_host=bytes(8),
        )
        desks.appends.write_one(draft, ("orders", 0), 1)
    site.perform(desks.appends.take_done())
    found = page(site, desks)
    labels = {"topic": "orders", "consumer_group": "g"}
    assert value(found, "rocketmq_consumer_lag_messages", **labels) == 3
    low, high = site.store.log_range()
    assert value(found, "rocketmq_storage_size") == high - low
    assert value(found, "rocketmq_topic_number") == 1
    assert value(found, "rocketmq_broker_permission") == 6


def test_every_name_is_in_the_table(site) -> None:
    for sample in page(site, site.desks()):
        name = re.sub(r"_(bucket|count|sum)$", "", sample.split("{")[0])
        assert name in METRICS


def test_retention_tells_what_went_and_what_is_to_go(site) -> None:
    desks = site.desks()
    desks.pressure.measured(1 << 40, 1 << 30, full=False)
    desks.retention.deleted["forced"] = 3
    desks.retention.unread_deleted["orders", "g"] = 7
    desks.retention.unread_expiring = {("%RETRY%g", "g"): 5}
    site.store.ages.steps = 2
    found = page(site, desks)
    assert value(found, "kourou_store_disk_level") == 4
    assert value(found, "kourou_store_disk_refusing") == 1
    assert value(found, "kourou_store_disk_low") == 1
    assert value(found, "kourou_retention_segments_deleted_total", reason="forced") == 3
    assert value(found, "kourou_retention_unread_deleted_total", topic="orders") == 7
    assert value(found, "kourou_retention_unread_expiring_messages", is_retry="true") == 5
    assert value(found, "kourou_clock_steps_total") == 2


def test_what_a_broker_measures_of_itself(site) -> None:
    times = iter(range(0, 1 << 40, 4_000_000))
    measures = Measures(lambda: next(times))
    assert measures.flush(lambda: 7) == 7
    assert measures.checkpoint(lambda: None) is None
    with pytest.raises(OSError, match="no"):
        measures.flush(fails)
    measures.loop = lambda: {"turns": 5, "inputs": 9, "largest_batch": 3, "waiting": 0}
    peer = Peer(1, "zmq", ("127.0.0.1", 5))
    measures.rpc.answered(TimedReplyTo(peer, 1, False, b"", SendRecords.code, 0), Code.SUCCESS)
    found = page(site, site.desks(), measures)
    for name in ("kourou_store_flush_latency", "kourou_store_checkpoint_latency"):
        assert value(found, f"{name}_bucket", le="3") == 0
        assert value(found, f"{name}_bucket", le="5") == 1
        assert value(found, f"{name}_sum") == 4
    assert value(found, "kourou_loop_turns_total") == 5
    assert value(found, "kourou_loop_inputs_total") == 9
    assert value(found, "kourou_loop_largest_batch") == 3
    labels = {"request_code": "send_records", "response_code": "success"}
    assert value(found, "rocketmq_rpc_latency_count", protocol_type="zmq", **labels) == 1
    assert value(found, "kourou_peers", carrier="zmq", listener="lan") == 0


def fails() -> None:
    raise OSError("no")
