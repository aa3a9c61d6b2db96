"""The whole suite at a glance; what no broker told is null and named."""

from __future__ import annotations

from typing import Any

from kourou_console.sampler import Sampler


def test_sums_of_the_last_sample(suite: Any) -> None:
    console = suite.console
    topic, _group = suite.topic(), suite.group()
    sampler = console.gateway.part(Sampler)
    console.run(sampler.look())
    with suite.cluster.client() as mq:
        for number in range(20):
            mq.send(topic, f"{number}")
    console.run(sampler.look())
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
