"""What a broker reports about itself."""

from __future__ import annotations

from kourou.broker.telemetry.metrics import BrokerReport
from kourou.engine.inputs import Fenced
from kourou.events.control_events import TopicPut
from kourou.model.topic import TopicConfig
from kourou.service.protocol_server import ProtocolServers
from kourou_rigs.pair import Pair


def report(site) -> BrokerReport:
    made = BrokerReport(site.store, site.clock)
    parts = site.parts()
    made.attach(parts, ProtocolServers())
    for size in (50, 150, 100):
        parts.traffic.taken("orders", size)
    parts.traffic.out("orders", "g", 2, 200)
    return made


def test_the_runtime_table_has_texts_only_and_counts(site) -> None:
    site.clock.advance(0)
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


def test_statistics_are_those_of_the_parts(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 1, 1)))
    reported = report(site).statistics()
    assert reported["topics"] == 1
    assert reported["store"]["log"]["end"] == site.store.end
    assert reported["replies_owed"] == 0


def test_a_broker_with_followers_reports_them(site) -> None:
    made = BrokerReport(site.store, site.clock)
    made.attach(site.parts(), ProtocolServers())
    assert not [key for key in made.table() if key.startswith("replication")]
    assert made.statistics()["replication"]["epoch"] == 0
    pair = Pair(sync=True)
    pair.connect()
    for _ in range(3):
        pair.deliver()
        pair.flush()
        pair.advance(1_000)
    made.attach(pair.leader.core.parts, ProtocolServers())
    reported = {key: text for key, text in made.table().items() if key.startswith("replication")}
    assert reported == {
        "replicationRole": "leader", "replicationEpoch": "64", "replicationLeader": "broker-a/0",
        "replicationInSync": "1", "replicationLagBytes_1": "0",
    }  # fmt: skip
    made.attach(pair.follower.core.parts, ProtocolServers())
    assert made.table()["replicationRole"] == "follower"
    assert made.table()["replicationLagBytes_1"] == "0"
    assert made.statistics()["replication"]["state"] == "FOLLOWING"
    pair.leader.handle(Fenced(2**32))
    made.attach(pair.leader.core.parts, ProtocolServers())
    assert made.table()["replicationRole"] == "fenced"


def test_latencies_and_disk_space_are_reported_as_numbers(site) -> None:
    table = report(site).table()
    assert table["sendLatencyCounts"].startswith("1:0 3:0 ")
    assert table["pullLatencyCounts"].endswith(" more:0")
    assert int(table["commitLogDiskFree"]) <= int(table["commitLogDiskTotal"])
