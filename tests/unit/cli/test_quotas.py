"""`kourou quota` against two brokers with the real core: what it prints, refuses and changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kourou.cli.quotas import amount
from kourou.errors import BadRequest
from kourou.model.quota import Quota, QuotaKind
from kourou.protocol.messages.quotas import ListQuotas
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_faults import Silence, always

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_at_cluster: Run) -> Run:
    """Run a command; returns exit code, output, and errors."""
    return partial(run_at_cluster, "quota")


def quotas(cluster: WireCluster, name: str) -> list[Quota]:
    broker: Any = cluster.brokers[f"{name}:20911"]
    return list(broker.engine.control.quotas.table.values())


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("512Ki", 512 << 10), ("5M", 5_000_000), ("1gib", 1 << 30), ("10kB", 10_000)],
)
def test_amounts(text: str, number: int) -> None:
    assert amount(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5M", "5 apples", "1e3", "Mi"])
def test_what_is_not_an_amount(text: str) -> None:
    with pytest.raises(BadRequest, match="is not an amount"):
        amount(text)


def test_a_quota_is_set_at_all_brokers_listed_and_removed(run: Run, cluster: WireCluster) -> None:
    assert run("list") == (0, "no quotas\n", "")
    words = ("--publish-bytes", "1Mi", "--requests", "100", "--reason", "fair")
    assert run("set", "user", "till", *words) == (
        0,
        "user till: 1048576 publish bytes/s, 100 requests/s\n",
        "",
    )
    expected = Quota(kind=QuotaKind.USER, name="till", publish_bytes=1 << 20, requests=100)
    assert quotas(cluster, "broker-a") == quotas(cluster, "broker-b") == [expected]
    assert run("set", "user", "few", "--connections", "3")[1] == "user few: 3 connections\n"
    assert run("set", "user", "few", "--topics", "5")[1] == "user few: 5 topics\n"
    assert run("set", "user", "few", "--groups", "5")[1] == "user few: 5 groups\n"
    assert run("remove", "user", "few")[0] == 0
    run("set", "group", "*", "--fetch-messages", "500")
    code, out, _ = run("list", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["for"], row["name"], row["brokers"]) for row in rows] == [
        ("group", "*", "all"),
        ("user", "till", "all"),
    ]
    assert (rows[1]["publish bytes/s"], rows[1]["fetch bytes/s"]) == (1 << 20, None)
    assert run("list", "topic") == (0, "no quotas\n", "")
    assert run("remove", "user", "till")[:2] == (0, "removed the quota of user till\n")
    assert [one.name for one in quotas(cluster, "broker-b")] == ["*"]


def test_a_quota_without_limits_is_said_to_be_one(run: Run, cluster: WireCluster) -> None:
    code, _, err = run("set", "user", "ops")
    assert code == 2
    assert "give at least one limit, or --unlimited" in err
    assert run("set", "user", "ops", "--unlimited") == (0, "user ops: no limits\n", "")
    assert quotas(cluster, "broker-a") == [Quota(kind=QuotaKind.USER, name="ops")]
    assert run("set", "user", "ops", "--unlimited", "--requests", "5")[0] == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("set", "queue", "x", "--requests", "5"), "'queue' has no quotas"),
        (("set", "group", "g", "--requests", "5"), "a group has no quota of requests"),
        (("set", "user", "u", "--requests", "0"), "it must be from 1"),
        (("set", "user", "u", "--requests", "many"), "'many' is not an amount"),
        (("list", "queue"), "'queue' has no quotas"),
    ],
)
def test_what_is_wrong_is_said(run: Run, words: tuple[str, ...], text: str) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert text in err


def test_what_does_not_exist_is_not_removed(run: Run) -> None:
    code, _, err = run("remove", "user", "till")
    assert code == 1
    assert "user 'till' has no quota" in err


def test_a_broker_that_is_away_is_named(run: Run, cluster: WireCluster) -> None:
    run("set", "user", "till", "--requests", "5")
    cluster.brokers["broker-b:20911"].faults[ListQuotas] = always(Silence)
    code, out, err = run("list")
    assert code == 1
    assert "missing: broker-b: " in err
    assert out.splitlines()[1].endswith("broker-a")
    code, out, err = run("list", "--json")
    assert (code, len(out.splitlines()), "missing: broker-b: " in err) == (1, 1, True)
    code, _, err = run("remove", "user", "till")
    assert code == 1
    assert "broker-a changed; repeat the command for the others" in err
    assert quotas(cluster, "broker-a") == []
