"""A broker's metrics under RocketMQ 5's names."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

from kourou.broker.telemetry.measurements import Measurements, TimedReplyTo
from kourou.broker.telemetry.metrics import BrokerReport, broker_metrics, replication_families
from kourou.engine.delays.delivery import DELAY_GROUP
from kourou.engine.groups.membership import ConsumerPart, Heartbeat
from kourou.engine.inputs import Fenced
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.engine.transactions.open_halves import TRANSACTION_GROUP, OpenHalf
from kourou.engine.view import CoreView
from kourou.errors import Code, StoreFaulted
from kourou.events.control_events import (
    FilterMessagesSkipped,
    FilterQuarantined,
    FilterUploaded,
    GroupPut,
    ProgressRecorded,
    TopicPut,
)
from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC, retry_topic
from kourou.model.subscription import ConsumeType, GroupConfig, Subscription
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.request import Answerer
from kourou.runtime import Peer
from kourou.service.protocol_server import ProtocolServers, TransportCallbacks
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.telemetry.metric_table import METRICS
from kourou.telemetry.metrics import expose
from kourou.transport.zmq_server import ZmqServer
from kourou_rigs.engine import Engine
from kourou_rigs.executing import draft
from kourou_rigs.pair import Pair
from kourou_rigs.records import delayed_draft


def page(site, broker_parts, measurements=None) -> dict[str, float]:
    carrier = ZmqProtocol(Answerer.BROKER, TransportCallbacks(print, print), site.clock)
    carrier._servers["lan"] = ZmqServer("127.0.0.1:0", print, print)  # none that listens is needed
    parts = (
        CoreView(broker_parts),
        site.store,
        ProtocolServers(carrier),
        measurements or Measurements(),
    )
    clock = site.clock
    text = broker_metrics(*parts, wall_ms=clock.now_ms(), now_ms=clock.monotonic_ms()).decode()
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
    broker_parts = site.parts()
    for size in (50, 150, 100, 5_000):
        broker_parts.traffic.taken("orders", size)
    broker_parts.traffic.out("%RETRY%g", "g", 2, 200)
    broker_parts.traffic.passed_over("orders", "g", 7, 3)
    broker_parts.traffic.passed_over("orders", "g", 1, 0)
    broker_parts.traffic.refuse(13)
    broker_parts.traffic.repeats_removed = 5
    found = page(site, broker_parts)
    who = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}
    assert value(found, "rocketmq_messages_in_total", topic="orders", **who) == 4
    assert value(found, "rocketmq_throughput_in_total", topic="orders", **who) == 5_300
    size = "rocketmq_message_size"
    assert value(found, f"{size}_bucket", topic="orders", le="1024", **who) == 3
    assert value(found, f"{size}_bucket", topic="orders", le="4096", **who) == 3
    assert value(found, f"{size}_bucket", topic="orders", le="524288", **who) == 4
    assert value(found, f"{size}_sum", topic="orders", **who) == 5_300
    assert value(found, "rocketmq_messages_out_total", consumer_group="g", is_retry="true") == 2
    group = {"topic": "orders", "consumer_group": "g"}
    assert value(found, "kourou_messages_filtered_total", **group) == 8
    assert value(found, "kourou_filter_failures_total", **group) == 3
    assert value(found, "kourou_requests_refused_total", response_code="13") == 1
    assert value(found, "kourou_repeats_removed_total") == 5


def test_delayed_and_failed_messages(site) -> None:
    broker_parts = site.parts()
    figures = broker_parts.delays.figures
    for late_ms in (0, 7, 2_000):
        figures.late(late_ms)
    figures.lost, figures.undeliverable = 2, 1
    broker_parts.send_back.sent_back["orders", "g"] = 4
    broker_parts.send_back.dead["orders", "g"] = 1
    target = ("SCHEDULE_TOPIC_XXXX", 2)
    broker_parts.appends.write_one(delayed_draft(3, "U", *target), target, site.clock.now_ms())
    site.perform(broker_parts.appends.take_done())
    found = page(site, broker_parts)
    assert value(found, "kourou_delayed_waiting", delay_level="3") == 1
    assert value(found, "kourou_delayed_lateness_bucket", le="1") == 1
    assert value(found, "kourou_delayed_lateness_bucket", le="10") == 2
    assert value(found, "kourou_delayed_lateness_sum") == 2_007
    assert value(found, "kourou_delayed_lateness_max") == 2_000
    assert value(found, "kourou_delayed_lost_total") == 2
    assert value(found, "kourou_delayed_undeliverable_total") == 1
    assert value(found, "kourou_messages_sent_back_total", topic="orders") == 4
    assert value(found, "rocketmq_send_to_dlq_messages_total", consumer_group="g") == 1


def test_of_each_group_that_consumes_losses_are_shown_from_0_on(site) -> None:
    """Else the first one would be a series that begins, and no rise."""
    site.record(
        TopicPut(TopicConfig("orders")),
        TopicPut(TopicConfig(retry_topic("g"))),
        GroupPut(GroupConfig("g")),
        GroupPut(GroupConfig("new")),
        ProgressRecorded("g", {"orders": {0: 1}, retry_topic("g"): {0: 0}}),
    )
    broker_parts = site.parts()
    part = ConsumerPart("new", (Subscription("a"), Subscription(retry_topic("new"))))
    broker_parts.membership.heartbeat(0, Peer(1, "zmq", b"c"), Heartbeat("c", consumers=(part,)))

    def shown(name: str) -> dict[tuple[str, str], float]:
        found = page(site, broker_parts)
        labels = r'consumer_group="(.*?)".*topic="(.*?)"'
        return {
            (matched[2], matched[1]): amount
            for sample, amount in found.items()
            if sample.startswith(name) and (matched := re.search(labels, sample))
        }

    dead, lost = "rocketmq_send_to_dlq_messages_total", "kourou_retention_unread_deleted_total"
    assert shown(dead) == {("orders", "g"): 0, ("a", "new"): 0}
    none = {
        ("orders", "g"): 0,
        ("%RETRY%g", "g"): 0,
        (SCHEDULE_TOPIC, DELAY_GROUP): 0,
        (HALF_TOPIC, TRANSACTION_GROUP): 0,
    }
    assert shown(lost) == none
    broker_parts.send_back.dead["orders", "g"] += 3
    broker_parts.retention.unread_deleted["%RETRY%g", "g"] += 2
    assert shown(dead) == {("orders", "g"): 3, ("a", "new"): 0}
    assert shown(lost) == {**none, ("%RETRY%g", "g"): 2}


def test_messages_by_rocketmqs_types(site) -> None:
    broker_parts = site.parts()
    broker_parts.traffic.taken_many(["orders"], None, np.asarray([100, 200, 5_000]))
    for place, size in (("SCHEDULE_TOPIC_XXXX", 70), (HALF_TOPIC, 30), ("orders", 50)):
        broker_parts.traffic.taken("orders", size)
        broker_parts.traffic.taken_to(place, "orders", size)
    broker_parts.traffic.taken("later", 10)
    broker_parts.traffic.taken_to("SCHEDULE_TOPIC_XXXX", "later", 10)
    broker_parts.traffic.taken("RMQ_SYS_TRACE_TOPIC", 5)
    found = page(site, broker_parts)
    for kind, count, size in (("normal", 4, 5_350), ("delay", 1, 70), ("transaction", 1, 30)):
        labels = {"topic": "orders", "message_type": kind, "is_system": "false"}
        assert value(found, "rocketmq_messages_in_total", **labels) == count
        assert value(found, "rocketmq_throughput_in_total", **labels) == size
        assert value(found, "rocketmq_message_size_count", **labels) == count
        assert value(found, "rocketmq_message_size_bucket", le="4096", **labels) == min(count, 3)
    assert value(found, "rocketmq_messages_in_total", topic="later") == 1, "no plain ones"
    assert value(found, "rocketmq_messages_in_total", is_system="true") == 1


def test_who_is_connected(site) -> None:
    broker_parts = site.parts()
    part = ConsumerPart("g", consume_type=ConsumeType.CONSUME_ACTIVELY)
    beat = Heartbeat("java", ("p", "q"), (part,), language="JAVA", version=401)
    broker_parts.membership.heartbeat(0, Peer(1, "tcp", ("127.0.0.1", 5)), beat)
    beat = Heartbeat("python", (), (ConsumerPart("CID_RMQ_SYS_x"),))
    broker_parts.membership.heartbeat(0, Peer(2, "zmq", ("127.0.0.1", 6)), beat)
    found = page(site, broker_parts)
    java = {"language": "java", "version": "401", "protocol_type": "remoting"}
    assert value(found, "rocketmq_producer_connections", **java) == 1, "once, in two groups"
    labels = {"consumer_group": "g", "consume_mode": "pull", "is_system": "false"}
    assert value(found, "rocketmq_consumer_connections", **java, **labels) == 1
    labels = {"consume_mode": "push", "is_system": "true", "protocol_type": "zmq"}
    assert value(found, "rocketmq_consumer_connections", **labels) == 1


def test_how_transactions_ended_by_topic(site) -> None:
    broker_parts = site.parts()
    broker_parts.transactions.halves.open(OpenHalf(0, 0, 0))
    ended = (("orders", "commit"), ("orders", "rollback"), ("bills", "commit"))
    broker_parts.transactions.resolved_by_topic.update([*ended, ended[0], ("orders", "given_up")])
    found = page(site, broker_parts)
    assert value(found, "rocketmq_half_messages") == 1
    assert value(found, "rocketmq_commit_messages_total", topic="orders") == 2
    assert value(found, "rocketmq_commit_messages_total", topic="bills") == 1
    assert value(found, "rocketmq_rollback_messages_total", topic="orders") == 1


def test_lag_is_what_a_group_has_yet_to_read(site) -> None:
    site.record(
        TopicPut(TopicConfig("orders", 2, 2)),
        GroupPut(GroupConfig("g")),
        ProgressRecorded("g", {"orders": {0: 1, 1: 7}}),
    )
    broker_parts = site.parts()
    for _ in range(4):
        broker_parts.appends.write_one(draft(), ("orders", 0), 1)
    site.perform(broker_parts.appends.take_done())
    site.clock.advance(4_000)
    found = page(site, broker_parts)
    labels = {"topic": "orders", "consumer_group": "g"}
    assert value(found, "rocketmq_consumer_lag_messages", **labels) == 3
    first_ms = broker_parts.view.store_time("rmq_sys_kourou_control", 0, 0)
    age_ms = site.clock.now_ms() - first_ms
    assert value(found, "rocketmq_storage_message_reserve_time") == age_ms >= 4_000
    low, high = site.store.log_range()
    assert value(found, "rocketmq_storage_size") == high - low
    assert value(found, "rocketmq_topic_number") == 1
    assert value(found, "rocketmq_broker_permission") == 6


def test_locks_of_queues_by_group(site) -> None:
    broker_parts = site.parts()
    broker_parts.locks.lock(0, "g", "client", [("orders", 0), ("orders", 1)])
    assert value(page(site, broker_parts), "kourou_queue_locks", consumer_group="g") == 2


def test_filters_and_filter_servers(site) -> None:
    site.record(
        FilterUploaded("g", "f", 1, "source", "00"),
        FilterUploaded("g", "f", 2, "other", "01"),
        FilterQuarantined("g", "f", 1, "it died"),
        FilterMessagesSkipped("g", "f", 2, "orders", 0, (4, 5, 6), "it raised"),
    )
    broker_parts = site.parts()
    broker_parts.filter_servers.register(0, "f:1", None, Peer(1, "tcp", ("f", 1)))
    found = page(site, broker_parts)
    assert value(found, "kourou_filters") == 1
    assert value(found, "kourou_filter_versions") == 2
    assert value(found, "kourou_filter_quarantined_versions") == 1
    assert value(found, "kourou_filter_servers") == 1
    skipped = {"consumer_group": "g", "filter": "f"}
    assert value(found, "kourou_filter_skips_recorded_total", **skipped) == 3


def test_retention_reports_deleted_and_expiring_messages(site) -> None:
    broker_parts = site.parts()
    broker_parts.pressure.measured(1 << 40, 1 << 30, full=False)
    broker_parts.retention.deleted["forced"] = 3
    broker_parts.retention.unread_deleted["orders", "g"] = 7
    broker_parts.retention.unread_expiring = {("%RETRY%g", "g"): 5}
    site.store.ages.steps = 2
    found = page(site, broker_parts)
    assert value(found, "kourou_store_disk_level") == 4
    assert value(found, "kourou_store_disk_refusing") == 1
    assert value(found, "kourou_store_disk_low") == 1
    assert value(found, "kourou_retention_segments_deleted_total", reason="forced") == 3
    assert value(found, "kourou_retention_unread_deleted_total", topic="orders") == 7
    assert value(found, "kourou_retention_unread_expiring_messages", is_retry="true") == 5
    assert value(found, "kourou_clock_steps_total") == 2


@pytest.mark.fault
def test_the_next_process_reports_that_the_disk_failed(site) -> None:
    """The failed process ends within moments, so its page is hardly ever read."""
    last = "kourou_store_last_fault_timestamp_seconds"
    assert not [sample for sample in page(site, site.parts()) if sample.startswith(last)]
    site.record(TopicPut(TopicConfig("orders")))
    site.disk.fail_sync(1)
    with pytest.raises(StoreFaulted):
        site.store.flush()
    assert value(page(site, site.parts()), "kourou_store_faulted") == 1
    note = site.disk.open(site.store.paths.last_fault)
    assert note.pread(2, 0) == b"0 "  # a disk in a test has no clock
    note.pwrite(b"5000 it failed\n", 0)
    note.close()
    site.reopen(site.disk.kill())
    found = page(site, site.parts())
    assert value(found, "kourou_store_faulted") == 0
    assert value(found, last) == 5


def test_what_a_broker_measures_of_itself(site) -> None:
    times = iter(range(0, 1 << 40, 4_000_000))
    measurements = Measurements(lambda: next(times))
    assert measurements.flush(lambda: 7) == 7
    assert measurements.checkpoint(lambda: None) is None
    with pytest.raises(OSError, match="no"):
        measurements.flush(fails)
    measurements.loop = lambda: {"turns": 5, "inputs": 9, "largest_batch": 3, "waiting": 0}
    peer = Peer(1, "zmq", ("127.0.0.1", 5))
    measurements.rpc.answered(TimedReplyTo(peer, 1, False, b"", SendRecords.code, 0), Code.SUCCESS)
    found = page(site, site.parts(), measurements)
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


# -- what a page shows of leaders and followers ----------------------------------------------------


BASE = {"cluster": "C", "node_type": "broker", "node_id": "broker-a"}


def shown(engine: Engine) -> dict[str, float]:
    """Samples by name and brokerId."""
    view = engine.core.view.replicas(engine.now_ms)
    found = {}
    for line in expose(list(replication_families(BASE, view))).decode().splitlines():
        if not line.startswith("#"):
            sample, amount = line.rsplit(" ", 1)
            name, labels = sample.split("{")
            number = re.search(r'broker_id="(\d+)"', labels)
            assert number is None or METRICS[name].labels == ("broker_id",)
            found[name.removeprefix("kourou_replication_") + (number[1] if number else "")] = float(
                amount
            )
    return found


@pytest.mark.feature("F140")
def test_leader_and_follower_show_the_same_lag() -> None:
    pair = Pair(sync=True)
    pair.connect()
    pair.settle()
    expected = {"leads": 1, "epoch": 64, "followers": 1, "in_sync": 1,
                "lag_bytes1": 0, "lag_seconds1": 0}  # fmt: skip
    assert shown(pair.leader) == expected
    assert shown(pair.follower) == {**expected, "leads": 0, "followers": 0}
    end = pair.leader.store.end
    pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    pair.advance(2_000)
    assert shown(pair.leader)["lag_seconds1"] >= 2
    pair.disconnect()
    found = shown(pair.follower)
    assert found["lag_seconds1"] >= 2
    pair.connect()
    found = shown(pair.leader)
    assert "lag_seconds1" not in found, "it has not told yet what it has"
    pair.settle()
    assert shown(pair.leader)["lag_bytes1"] == 0
    assert pair.follower.store.end == pair.leader.store.end > end


def test_no_in_sync_set_is_reported_where_senders_wait_for_no_replica() -> None:
    """A figure of 0 would look as if one of the followers were too far behind."""
    pair = Pair(sync=False)
    pair.connect()
    pair.settle()
    for engine, followers in ((pair.leader, 1), (pair.follower, 0)):
        found = shown(engine)
        assert found["followers"] == followers
        assert "in_sync" not in found


def test_a_raft_group_counts_by_majority_and_keeps_no_such_set() -> None:
    view = Engine().core.view.replicas(0)
    member = replace(view, broker_role=SYNC_MASTER, member="n0")
    names = [family.name for family in replication_families(BASE, member)]
    assert "kourou_replication_followers" in names
    assert "kourou_replication_in_sync" not in names


def test_a_broker_alone_leads_epoch_0_and_a_fenced_one_leads_nothing() -> None:
    expected = {"leads": 1, "epoch": 0, "followers": 0}
    assert shown(Engine()) == expected
    leader = Engine(leads=True)
    leader.handle(Fenced(2**32))
    assert shown(leader) == {**expected, "leads": 0}


# -- what a broker reports about itself ------------------------------------------------------------


def report(site) -> BrokerReport:
    made = BrokerReport(site.store, site.clock)
    parts = site.parts()
    made.attach(CoreView(parts), ProtocolServers())
    for size in (50, 150, 100):
        parts.traffic.taken("orders", size)
    parts.traffic.out("orders", "g", 2, 200)
    return made


def test_the_runtime_table_has_texts_only_and_counts(site) -> None:
    one = report(site)
    site.clock.advance(((1 * 24 + 2) * 60 + 3) * 60_000 + 4_999)
    table = one.table()
    assert all(isinstance(value, str) for value in table.values())
    assert table["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert table["bootTimestamp"] == "1700000000000"
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("3", "2")
    assert table["putMessageSizeTotal"] == "300"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1


def test_the_runtime_table_has_what_rocketmqs_list_of_a_cluster_reads(site) -> None:
    table = report(site).table()
    assert [float(rate) for rate in table["putTps"].split()] == [0, 0, 0]
    for what in ("Transfered", "Found", "Miss", "Total"):
        assert [float(rate) for rate in table[f"get{what}Tps"].split()] == [0, 0, 0]
    for what in ("msgPutTotal", "msgGetTotal"):
        for day in ("YesterdayMorning", "TodayMorning"):
            assert table[f"{what}{day}"] == "0"
    assert table["commitLogDirCapacity"].startswith("Total : ")
    for pool in ("send", "pull", "query"):
        assert table[f"{pool}ThreadPoolQueueSize"] == "0"
        assert table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] == "0"
    assert table["sendLatencyCounts"].startswith("1:0 3:0 ")
    assert table["pullLatencyCounts"].endswith(" more:0")
    assert int(table["commitLogDiskFree"]) <= int(table["commitLogDiskTotal"])


def test_statistics_are_those_of_the_parts(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 1, 1)))
    reported = report(site).statistics()
    assert reported["topics"] == 1
    assert reported["store"]["log"]["end"] == site.store.end
    assert reported["replies_owed"] == 0


def test_a_broker_with_followers_reports_them(site) -> None:
    made = BrokerReport(site.store, site.clock)
    made.attach(site.core().view, ProtocolServers())
    assert not [key for key in made.table() if key.startswith("replication")]
    assert made.statistics()["replication"]["epoch"] == 0
    pair = Pair(sync=True)
    pair.connect()
    for _ in range(3):
        pair.deliver()
        pair.flush()
        pair.advance(1_000)
    made.attach(pair.leader.core.view, ProtocolServers())
    reported = {key: text for key, text in made.table().items() if key.startswith("replication")}
    assert reported == {
        "replicationRole": "leader", "replicationEpoch": "64", "replicationLeader": "broker-a/0",
        "replicationInSync": "1", "replicationLagBytes_1": "0",
    }  # fmt: skip
    made.attach(pair.follower.core.view, ProtocolServers())
    assert made.table()["replicationRole"] == "follower"
    assert made.table()["replicationLagBytes_1"] == "0"
    assert made.statistics()["replication"]["state"] == "FOLLOWING"
    pair.leader.handle(Fenced(2**32))
    made.attach(pair.leader.core.view, ProtocolServers())
    assert made.table()["replicationRole"] == "fenced"
