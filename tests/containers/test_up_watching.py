"""Observability of the suite, and what it survives: containers that are killed, a Raft group.

As test_up.py, of the same suite, which is up already: `./kourou test containers --compose`.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.containers.docker_engine import DockerEngine
from tests.containers.suite import (
    BROKERS,
    OURS,
    PAGE_S,
    RAFT,
    START_S,
    Up,
    all_healthy,
    bodies,
    crash,
    inspected,
    kourou,
    sent_by_http,
    states,
    tailed,
    to_console,
    until,
)

ROOT = Path(__file__).parents[2]
SPANS_OF = {"kourou-broker", "kourou-client", "kourou-console"}
SENT = 60

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3_000)]


def page(url: str | urllib.request.Request) -> Any:
    """What is answered there; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
            return json.load(answer)
    except (OSError, ValueError):  # it starts, or has not all of it yet; who waits asks again
        return None


def seen_from_here(ports: dict[str, str], topic: str, sent: list[str]) -> bool:
    return tailed(ports, topic, len(sent)) == sorted(sent)


def test_the_console_shows_both_brokers_to_this_machine(started: Up, ports: dict[str, str]) -> None:
    at = f"http://127.0.0.1:{ports['KOUROU_CONSOLE_PORT']}"
    with urllib.request.urlopen(at + "/", timeout=PAGE_S) as answer:
        assert "text/html" in answer.headers["Content-Type"]
    sent_by_http(ports, "by HTTP")
    assert seen_from_here(ports, "by-http", ["by HTTP"])
    assert page(f"{at}/v1/cluster") is None, "nobody reads it without a secret"
    view = page(to_console(ports, "/v1/cluster"))
    assert view is not None
    text = json.dumps(view)
    assert "broker-a" in text
    assert "broker-b" in text


def test_prometheus_reaches_every_target_and_loads_the_rules(
    started: Up, ports: dict[str, str]
) -> None:
    def rows(query: str) -> list[dict[str, Any]]:
        answer = asked_of_prometheus(ports, f"query?query={query}")
        return [] if answer is None else list(answer["result"])

    def all_up() -> bool:
        values = {one["metric"]["instance"]: one["value"][1] for one in rows("up")}
        hosts = {instance.partition(":")[0] for instance in values}
        return hosts == {*OURS, "collector", "localhost"} and set(values.values()) == {"1"}

    until("every target answers Prometheus", all_up)
    groups = asked_of_prometheus(ports, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == (ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8").count("expr:")
    sent_by_http(ports, "counted as a span", "traced")
    until("the collector makes metrics of spans", lambda: rows("kourou_spans_calls_total"))


def asked_of_prometheus(ports: dict[str, str], question: str) -> Any:
    """The data of an answer of its API; None while there is none."""
    answer = page(f"http://127.0.0.1:{ports['KOUROU_PROMETHEUS_PORT']}/api/v1/{question}")
    return None if answer is None else answer["data"]


def test_jaeger_shows_one_trace_from_the_console_to_the_broker(
    started: Up, ports: dict[str, str]
) -> None:
    """Spans of three services, which the collector has sent on."""
    for number in range(20):
        sent_by_http(ports, f"traced {number}", "traced")
    url = f"http://127.0.0.1:{ports['KOUROU_JAEGER_PORT']}/api/traces?service=kourou-console"

    def whole() -> bool:
        answer = page(url) or {"data": []}
        services = [
            {process["serviceName"] for process in trace["processes"].values()}
            for trace in answer["data"]
        ]
        return any(found >= SPANS_OF for found in services)

    until("a trace of all three", whole)


def test_a_killed_broker_comes_back_and_nothing_is_lost(
    started: Up, ports: dict[str, str], engine: DockerEngine
) -> None:
    """While it is gone the other one takes what is sent, and its copy is read."""
    before = [f"before {number}" for number in range(SENT)]
    assert len(kourou(ports, "send", "survivors", *before)) == SENT
    crash(engine, started, "broker-b")
    during = [f"during {number}" for number in range(SENT)]
    assert len(kourou(ports, "send", "survivors", *during)) == SENT

    def healthy() -> bool:
        state = inspected(engine, started, "broker-b")["State"]
        return bool(state["Health"]["Status"] == "healthy")

    until("it is healthy again", healthy)
    assert seen_from_here(ports, "survivors", [*before, *during])


def test_a_copy_is_read_while_its_broker_is_stopped(started: Up, ports: dict[str, str]) -> None:
    sent = [f"copied {number}" for number in range(SENT)]
    kourou(ports, "send", "copied", *sent)
    started("stop", *BROKERS)
    assert seen_from_here(ports, "copied", sent)
    started("start", *BROKERS)
    # `up --wait` fails at once where a filter server has not heard of its broker yet.
    until("every service is healthy again", lambda: all_healthy(started))


def test_a_group_elects_its_leader_and_another_one_when_that_is_killed(
    started: Up, ports: dict[str, str]
) -> None:
    """--profile raft: clients here and there, by keys; a member that is killed comes back."""

    def group(*arguments: str) -> str:
        return started("--profile", "raft", *arguments)

    group("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S, *RAFT)
    try:
        kourou(ports, "admin", "updateTopic", "-t", "elected", "-b", "raft-a", "-w", "4", "-r", "4")
        first = [f"first {number}" for number in range(SENT)]
        kourou(ports, "send", "elected", *first)
        leader = until("a leader", lambda: leads(ports))
        group("kill", leader)
        second = [f"second {number}" for number in range(SENT)]
        kourou(ports, "send", "elected", *second)
        assert until("another leader", lambda: leads(ports)) != leader
        group("start", leader)
        assert seen_from_here(ports, "elected", [*first, *second])
        inside = ("kourou", "tail", "elected", "--first", "--json", "--count", str(2 * SENT))
        view = group("exec", "-T", "raft-n0", *inside).splitlines()
        assert bodies(view) == sorted([*first, *second])
    finally:
        group("stop", *RAFT)
    assert {states(started)[name] for name in RAFT} == {("exited", 0)}


def leads(ports: dict[str, str]) -> str:
    """The service that leads the group, as `kourou admin replicas` tells; "" while none does."""
    view = kourou(ports, "admin", "replicas", may_fail=True)  # one of them may be gone just now
    rows = [line.split() for line in view if " raft-a " in line]
    return next((f"raft-{row[2]}" for row in rows if row[3] == "leader"), "")
