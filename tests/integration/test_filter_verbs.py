"""`kourou admin filter …` end to end: a name server, two brokers, a filter server in its jail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kourou import Filter
from kourou.cli.main import main
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster

Rows = list[dict[str, Any]]
Run = Callable[..., Any]

LATE = """
def match(message, context):
    return message.json["delay"] > 120
"""
ALL = "def match(message, context):\n    return True\n"
RAISES = "def match(message, context):\n    return message.json['no such thing']\n"
FLIGHTS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("filters")
    with Cluster(folder, brokers=2, filter_servers=1) as running:
        with Client(running.address, group="gate") as client:
            client.admin.topics.create("flights", queues=1)
            bodies = [json.dumps({"delay": 10 * number}) for number in range(FLIGHTS)]
            client.send_many("flights", bodies)
        yield running


@pytest.fixture
def run(cluster: Cluster, kourou_admin: Run) -> Run:
    return partial(kourou_admin, cluster.address, "filter")


@pytest.fixture
def rows(run: Run) -> Callable[..., Rows]:
    def ask(*arguments: str, code: int = 0) -> Rows:
        done = run(*arguments, "--json")
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.feature("F240", "F242")
def test_a_filter_from_its_upload_to_its_end(
    run: Run, rows: Any, file: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """One story, since each decision stands on those before."""
    of = ("-g", "billing", "-f", "late")
    first = rows("put", file("late", LATE), "-g", "billing", "--note", "two hours")
    assert first == [
        {"broker": name, "version": 1, "active": 1, "created": True}
        for name in ("broker-a", "broker-b")
    ]
    again = rows("put", file("late", LATE), "-g", "billing")
    assert [(row["version"], row["created"]) for row in again] == [(1, False)] * 2
    second = rows("put", file("any", ALL), *of, "--disabled")
    assert [(row["version"], row["active"]) for row in second] == [(2, 1)] * 2
    enabled = rows("enable", *of, "-v", "2", "--reason", "try it")
    assert [row["active"] for row in enabled] == [2, 2]
    assert [row["active"] for row in rows("rollback", *of)] == [1, 1]
    assert rows("policy", *of, "-p", "skip", "-b", "broker-a")
    listed = rows("list", "-g", "billing")
    assert [(row["broker"], row["policy"], row["active"]) for row in listed] == [
        ("broker-a", "skip", 1),
        ("broker-b", "hold", 1),
    ]
    shown = run("show", *of, "-b", "broker-a")
    assert "kourou history filter/billing/late" in shown.stdout
    assert "two hours" in shown.stdout
    assert run("show", *of, "-s", "-v", "1").stdout == LATE
    assert run("show", *of, "-s", "-v", "2").stdout == ALL

    assert main(["history", "filter/billing/late", "-b", "broker-a", "-n", cluster.address]) == 0
    told = capsys.readouterr().out
    assert told.count("filter/billing/late") >= 5
    assert "try it" in told

    assert [row["active"] for row in rows("disable", *of, "--reason", "enough")] == [None, None]
    assert {row["state"] for row in rows("list", "-g", "billing")} == {"disabled"}
    assert "was deleted" in run("delete", *of).stdout
    assert rows("list", "-g", "billing") == []
    assert "no filters\nfilter servers of broker-a: 127.0.0.1:" in run("list").stdout
    for verb in ("show", "enable", "disable", "rollback", "delete"):
        missing = run(verb, *of)
        assert missing.returncode == 1, verb
        assert "late" in missing.stderr


def test_what_is_no_filter_is_refused_with_its_line(run: Run, file: Any) -> None:
    for text, word in (("def match(message, context)\n", "1:28"), ("import os\n", "os")):
        done = run("put", file("bad", text), "-g", "billing")
        assert done.returncode == 1, done.stdout
        assert word in done.stderr
    assert run("show", "-g", "billing", "-f", "bad").returncode == 1


@pytest.mark.feature("F238", "F242")
def test_a_dry_run_judges_the_last_messages_and_keeps_nothing(
    run: Run, rows: Any, file: Any
) -> None:
    tried = rows("try", file("late", LATE), "-g", "nobody", "-t", "flights", "-c", str(FLIGHTS))
    assert len(tried) == FLIGHTS
    verdicts = [row["verdict"] for row in tried]
    assert verdicts.count("passes") == len([n for n in range(FLIGHTS) if 10 * n > 120])
    plain = run("try", file("late", LATE), "-g", "nobody", "-t", "flights", "-c", "3")
    assert "µs a message" in plain.stdout
    assert rows("list", "-g", "nobody") == []
    failed = run("try", file("odd", RAISES), "-g", "nobody", "-t", "flights", "-c", "3")
    assert failed.returncode == 1
    assert "KeyError" in failed.stdout


@pytest.mark.feature("F238", "F241")
def test_figures_of_what_a_consumer_had(rows: Any, run: Run, file: Any, cluster: Any) -> None:
    rows("put", file("late", LATE), "-g", "desk")
    late = sum(10 * number > 120 for number in range(FLIGHTS))
    with Client(cluster.address, group="desk") as client:
        seen = consumed(client, late)
    assert sorted(seen) == [10 * number for number in range(FLIGHTS) if 10 * number > 120]
    figures = rows("stats", "-g", "desk", "-f", "late")
    everywhere = [row for row in figures if row["filter server"] == "all"] or figures
    assert sum(row["passed"] for row in everywhere) == late
    assert sum(row["seen"] for row in everywhere) >= late
    assert all(row["errors"] == 0 for row in figures)
    assert run("stats", "-g", "nobody").stdout == "no filter has run\n"


def consumed(client: Client, count: int) -> list[int]:
    """The delays of the first so many flights that the filter lets through."""
    settings = ConsumerSettings(
        consumer_group="desk", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with client.subscribe("flights", Filter.named("late"), settings=settings) as messages:
        stream = iter(messages)
        return [json.loads(next(stream).body)["delay"] for _ in range(count)]
