"""What a broker tells of itself."""

from __future__ import annotations

from kourou.engine.events import TopicPut
from kourou.model.topic import TopicConfig
from kourou.service.carrier import Carriers
from kourou_broker.figures import Figures


def figures(site) -> Figures:
    made = Figures(site.store, site.clock)
    desks = site.desks()
    made.attach(desks, Carriers())
    for size in (50, 150, 100):
        desks.traffic.taken("orders", size)
    desks.traffic.out("orders", "g", 2, 200)
    return made


def test_the_runtime_table_has_texts_only_and_counts(site) -> None:
    site.clock.advance(0)
    one = figures(site)
    site.clock.advance(((1 * 24 + 2) * 60 + 3) * 60_000 + 4_999)
    table = one.table()
    assert all(isinstance(value, str) for value in table.values())
    assert table["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert table["bootTimestamp"] == "1700000000000"
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("3", "2")
    assert table["putMessageSizeTotal"] == "300"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1


def test_the_runtime_table_has_what_rocketmqs_list_of_a_cluster_reads(site) -> None:
    table = figures(site).table()
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
    told = figures(site).statistics()
    assert told["topics"] == 1
    assert told["store"]["log"]["end"] == site.store.end
    assert told["replies_owed"] == 0


def test_the_metrics_page_is_that_of_these_parts(site) -> None:
    page = figures(site).metrics().decode()
    assert "rocketmq_messages_in_total{" in page
    assert 'topic="orders"' in page
