"""The overview of all brokers; what no broker reported is null and named."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import Unavailable
from kourou.protocol.bodies.statistics_bodies import BrokerConsumeStats
from kourou_console.api.overview import KNOWN
from kourou_console.metrics.alarms import AlarmThresholds
from kourou_console.metrics.sampler import SUMMED, WORST, Sampler
from kourou_rigs.console import ConsoleHere


def test_sums_of_the_last_sample(suite: Any) -> None:
    console = suite.console
    topic, _group = suite.topic(), suite.group()
    suite.look()
    suite.send(topic, 20)
    suite.look()
    found = console.get("/v1/overview").json
    assert (found["brokers_known"], found["brokers_up"]) == (2, 2)
    assert found["messages_in_per_s"] > 0
    assert found["messages_in_per_s"] == sum(one["messages_in_per_s"] for one in found["brokers"])
    assert found["send_p99_ms"] >= found["send_p50_ms"] > 0
    assert found["bytes_in_per_s"] > 0
    assert found["disk_used_ratio"] is not None
    assert found["replica_lag_bytes"] is None  # there is no copy
    assert found["topics"] > 0
    assert found["groups"] > 0
    assert found["missing"] == []
    assert found["sampled_at_ms"] <= found["as_of_ms"]


def test_lags_that_a_broker_does_not_tell_are_not_said_to_be_none(
    suite: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, topic, group = suite.console, suite.topic(), suite.group()
    with suite.cluster.client() as mq:
        mq.admin.offsets.commit(group, dict.fromkeys(mq.admin.topics.stats(topic), 0))
    offsets = console.gateway.admin.offsets
    ask = offsets.everywhere

    async def everywhere(broker: str) -> BrokerConsumeStats:
        if broker == "broker-b":
            raise Unavailable("it swaps")
        return await ask(broker)

    with monkeypatch.context() as patched:
        patched.setattr(offsets, "everywhere", everywhere)
        suite.look()
    try:
        overview = console.get("/v1/overview").json
        groups = console.get("/v1/groups", query={"search": group}).json
        alarms = console.get("/v1/alarms").json
    finally:
        suite.look()
    assert (overview["brokers_up"], overview["lag_messages"]) == (2, None)
    assert {one["lag_messages"] for one in overview["lagging"]} == {None}
    assert ([one["lag_messages"] for one in groups["items"]], groups["total"]) == ([None], None)
    for answer in (overview, groups, alarms):
        assert [one["what"] for one in answer["missing"]] == ["lags at broker-b"]
    assert console.get("/v1/groups", query={"search": group}).json["items"][0]["lag_messages"] == 0


def test_what_brokers_have_for_themselves_is_counted_apart(suite: Any) -> None:
    console = suite.console
    suite.topic()
    suite.group()
    found = console.get("/v1/overview").json
    assert found["topics"] == len(console.get("/v1/topics?kind=normal").json["items"])
    everything = console.get("/v1/topics?kind=normal&kind=system&kind=retry&kind=dlq").json
    counted = found["topics"] + found["system_topics"] + found["group_topics"]
    assert counted == everything["total"]
    configured = [one for one in console.get("/v1/groups").json["items"] if one["configured"]]
    assert found["groups"] == len(configured)
    assert found["system_topics"] > 0
    assert found["system_groups"] > 0


# -- alarms and their thresholds -------------------------------------------------------------------


def test_nothing_stands_and_the_thresholds_are_told(console: ConsoleHere) -> None:
    """At a cluster of its own: groups of other tests have dead letters."""
    console.run(console.gateway.part(Sampler).look())
    found = console.get("/v1/alarms").json
    assert found["items"] == []
    limits = AlarmThresholds()
    assert found["thresholds"]["disk_used_ratio"] == limits.disk_used_ratio
    assert found["thresholds"]["sampling_gap_ms"] == 15_000


# -- who am I? -------------------------------------------------------------------------------------


def test_anybody_may_do_everything_where_there_are_no_tokens(console):
    me = console.get("/v1/me").json
    assert (me["name"], me["rights"]) == ("anybody", ["read", "write", "admin"])
    assert not me["token_required"]
    assert me["cluster"] == "DefaultCluster"
    assert me["features"] == {"spark": False}
    assert me["producer_group"] == "KOUROU_CONSOLE"
    assert me["as_of_ms"] > 0


# -- columns that share their times, null where nothing is known -----------------------------------


def test_series_of_all_and_of_one_broker(suite: Any) -> None:
    console = suite.console
    suite.look()
    query = {
        "name": ["disk_used_ratio", "up"],
        "of": ["", "broker-a", "broker:broker-b", "group:x"],
    }
    found = console.get("/v1/series", query=query).json
    assert len(found["series"]) == 8
    by_key = {(one["name"], one["of"]): one for one in found["series"]}
    assert by_key["up", ""]["values"][-1] == 2.0
    assert by_key["up", "broker-a"]["values"][-1] == 1.0
    assert by_key["disk_used_ratio", "broker:broker-b"]["values"][-1] is not None
    assert by_key["up", "group:x"]["values"] == [None] * len(found["at_ms"])
    assert found["at_ms"] == sorted(found["at_ms"])
    later = {**query, "since_ms": found["at_ms"][-1] + 1}
    assert console.get("/v1/series", query=later).json["at_ms"] == []
    known = {one["name"]: one for one in console.get("/v1/series").json["known"]}
    assert known["up"]["of"] == ["", "broker:broker-a", "broker:broker-b"]


def test_whatever_is_sampled_is_described(suite: Any) -> None:
    suite.look()
    kept = {name for name, _ in suite.console.gateway.part(Sampler).samples.keys()}  # noqa: SIM118 - no mapping
    assert kept | set(SUMMED) | set(WORST) <= set(KNOWN)


def test_unknown_names_and_too_many(suite: Any) -> None:
    assert suite.console.get("/v1/series", query={"name": "nothing"}).status == 400
    many = {"name": ["up"] * 10, "of": ["a"] * 10}
    assert suite.console.get("/v1/series", query=many).status == 400
