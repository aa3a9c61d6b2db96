"""Columns that share their times, null where nothing is known."""

from __future__ import annotations

from typing import Any

from kourou_console.api.overview import KNOWN
from kourou_console.metrics.sampler import SUMMED, WORST, Sampler


def test_series_of_all_and_of_one_broker(suite: Any) -> None:
    console = suite.console
    console.run(console.gateway.part(Sampler).look())
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
    console = suite.console
    console.run(console.gateway.part(Sampler).look())
    kept = {name for name, _ in console.gateway.part(Sampler).samples.keys()}  # noqa: SIM118 - no mapping
    assert kept | set(SUMMED) | set(WORST) <= set(KNOWN)


def test_unknown_names_and_too_many(suite: Any) -> None:
    assert suite.console.get("/v1/series", query={"name": "nothing"}).status == 400
    many = {"name": ["up"] * 10, "of": ["a"] * 10}
    assert suite.console.get("/v1/series", query=many).status == 400
