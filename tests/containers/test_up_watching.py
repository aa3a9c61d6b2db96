"""Who watches the suite, and what it survives: spans, figures, containers that are killed, a group.

As test_up.py, of the same suite, which is up already: `./kourou test containers --compose`.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.containers.podman_engine import PodmanEngine
from tests.containers.suite import (
    BROKERS,
    OURS,
    PAGE_S,
    RAFT,
    START_S,
    Up,
    kourou,
    states,
    until,
)

SPANS_OF = {"kourou-broker", "kourou-client", "kourou-console"}
SENT = 60

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3_000)]


def page(url: str) -> Any:
    """What is answered there; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
            return json.load(answer)
    except (OSError, ValueError):  # it starts, or has not all of it yet; who waits asks again
        return None


def bodies(lines: list[str]) -> list[str]:
    return sorted(json.loads(line)["body"] for line in lines)


def seen_from_here(ports: dict[str, str], topic: str, wanted: list[str]) -> bool:
    read = ("tail", topic, "--first", "--json", "--count", str(len(wanted)))
    return bodies(kourou(ports, *read)) == sorted(wanted)


def sent_by_http(ports: dict[str, str], body: str, topic: str = "by-http") -> None:
    at = f"http://127.0.0.1:{ports['KOUROU_CONSOLE_PORT']}/v1/topics/{topic}/messages"
    with urllib.request.urlopen(
        urllib.request.Request(at, data=body.encode()), timeout=PAGE_S
    ) as answer:
        assert answer.status in (200, 201)


def test_the_console_shows_both_brokers_to_this_machine(started: Up, ports: dict[str, str]) -> None:
    at = f"http://127.0.0.1:{ports['KOUROU_CONSOLE_PORT']}"
    with urllib.request.urlopen(at + "/", timeout=PAGE_S) as answer:
        assert "text/html" in answer.headers["Content-Type"]
    sent_by_http(ports, "by HTTP")
    assert seen_from_here(ports, "by-http", ["by HTTP"])
    told = page(f"{at}/v1/cluster")
    assert told is not None
    text = json.dumps(told)
    assert "broker-a" in text
    assert "broker-b" in text


def test_prometheus_hears_from_all_of_them(started: Up, ports: dict[str, str]) -> None:
    """Debian's, which asks whom our file names; the other two who watch are stand-ins."""
    at = f"http://127.0.0.1:{ports['KOUROU_PROMETHEUS_PORT']}/api/v1/query?query=up"

    def all_up() -> bool:
        told = page(at)
        rows = [] if told is None else told["data"]["result"]
        up = {one["metric"]["instance"].partition(":")[0] for one in rows if one["value"][1] == "1"}
        return up >= set(OURS)

    until("every service answers Prometheus", all_up)


def test_spans_of_services_reach_the_collector(started: Up, ports: dict[str, str]) -> None:
    """A trace begins in the console, which says who caused what; all of them are recorded here."""
    for number in range(20):
        sent_by_http(ports, f"traced {number}", "traced")
    seen = f"http://127.0.0.1:{ports['KOUROU_OTLP_PORT']}/seen"
    until("spans", lambda: set(page(seen) or []) >= SPANS_OF)


def test_a_killed_broker_comes_back_and_nothing_is_lost(
    started: Up, ports: dict[str, str], engine: PodmanEngine
) -> None:
    """While it is gone the other one takes what is sent, and its copy is read."""
    before = [f"before {number}" for number in range(SENT)]
    assert len(kourou(ports, "send", "survivors", *before)) == SENT
    [identity] = started("ps", "--quiet", "broker-b").split()

    def state() -> dict[str, Any]:
        return dict(json.loads(engine.podman("inspect", identity))[0]["State"])

    killed = state()["Pid"]
    os.kill(killed, 9)
    during = [f"during {number}" for number in range(SENT)]
    assert len(kourou(ports, "send", "survivors", *during)) == SENT
    until("it runs again", lambda: state()["Running"] and state()["Pid"] not in (0, killed))
    until("it is well again", lambda: state()["Health"]["Status"] == "healthy")
    assert seen_from_here(ports, "survivors", [*before, *during])


def test_a_copy_is_read_while_its_broker_is_stopped(started: Up, ports: dict[str, str]) -> None:
    sent = [f"copied {number}" for number in range(SENT)]
    kourou(ports, "send", "copied", *sent)
    started("stop", *BROKERS)
    assert seen_from_here(ports, "copied", sent)
    started("start", *BROKERS)
    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)


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
        told = group("exec", "-T", "raft-n0", *inside).splitlines()
        assert bodies(told) == sorted([*first, *second])
    finally:
        group("stop", *RAFT)
    assert {states(started)[name] for name in RAFT} == {("exited", 0)}


def leads(ports: dict[str, str]) -> str:
    """The service that leads the group, as `kourou admin replicas` tells; "" while none does."""
    told = kourou(ports, "admin", "replicas", may_fail=True)  # one of them may be gone just now
    rows = [line.split() for line in told if " raft-a " in line]
    return next((f"raft-{row[2]}" for row in rows if row[3] == "leader"), "")
