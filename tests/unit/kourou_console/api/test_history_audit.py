"""The audit of several brokers over HTTP: pages, filters, export, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kourou.client.admin.base_api import ByBroker
from kourou.client.admin.users import PolicyTrial
from kourou.errors import NoPermission, Unavailable
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    AuditDecision,
    AuditLine,
    PolicyChange,
    PolicyChangeKind,
    TriedUse,
)
from kourou.protocol.messages.access import GetAudit

LINES = 7


@pytest.fixture
def brokers(suite, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What brokers answer: lines at odd times of one, at even times of the other, or an error."""
    answers: dict[str, Any] = {
        name: [line(2 * number + at) for number in reversed(range(LINES))]
        for at, name in enumerate(("broker-a", "broker-b"))
    }
    users = suite.console.gateway.admin.users

    async def audit_page(broker: str, asked: GetAudit, most: int) -> tuple[list[AuditLine], Any]:
        found = answers[broker]
        if isinstance(found, Exception):
            raise found
        begin = int(asked.before.partition(":")[2] or "0")
        end = min(begin + most, begin + 2, len(found))  # as if it had read enough
        wanted = [one for one in found[begin:end] if asked.decision in ("", one.decision)]
        before = "" if end == len(found) else f"1:{end}"
        return wanted, msgspec.structs.replace(asked, before=before)

    monkeypatch.setattr(users, "audit_page", audit_page)
    return answers


def line(at_ms: int) -> AuditLine:
    """A change at every third time, else a refusal."""
    decision = AuditDecision.REFUSED if at_ms % 3 else AuditDecision.ALLOWED
    return AuditLine(
        at_ms=at_ms,
        user="till",
        source="10.0.0.1",
        request="R",
        need="N",
        by="B",
        decision=decision,
        door="zeromq",
    )


def pages(suite, **query: object) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = suite.console.get("/v1/audit", query={**query, **more}).json
        assert page["truncated"] == (page["cursor"] is not None)
        found.append(page)
        cursor = page["cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("count", [1, 3, 100])
def test_pages_show_each_line_of_each_broker_once(suite, brokers, count: int) -> None:
    seen = pages(suite, count=count)
    for page in seen:
        times = [one["at_ms"] for one in page["items"]]
        assert times == sorted(times, reverse=True)
        assert len(times) <= 2 * count
    every = [one["at_ms"] for page in seen for one in page["items"]]
    assert sorted(every) == list(range(2 * LINES))
    assert len(seen) == -(-LINES // count)


def test_one_decision_and_one_broker(suite, brokers) -> None:
    items = [one for page in pages(suite, decision="allowed", count=2) for one in page["items"]]
    assert {one["at_ms"] for one in items} == set(range(0, 2 * LINES, 3))
    [page] = pages(suite, broker="broker-b")
    assert {one["broker"] for one in page["items"]} == {"broker-b"}
    assert page["items"][0] == {
        "broker": "broker-b",
        "at_ms": 13,
        "decision": "refused",
        "user": "till",
        "source": "10.0.0.1",
        "request": "R",
        "need": "N",
        "by": "B",
        "count": 1,
        "handled": False,
        "console": "",
        "door": "zeromq",
    }


def test_a_broker_that_is_away_is_named(suite, brokers) -> None:
    brokers["broker-b"] = Unavailable("it swaps")
    [page] = pages(suite)
    assert [one["what"] for one in page["missing"]] == ["broker-b"]
    assert len(page["items"]) == LINES
    *lines, end = suite.console.get("/v1/audit/export").body.splitlines()
    assert len(lines) == LINES
    assert json.loads(end) == {"end": False, "count": LINES, "error": "it swaps"}


def test_an_export_has_all_lines_and_an_end(suite, brokers) -> None:
    answer = suite.console.get("/v1/audit/export", query={"decision": "refused"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *lines, end = (json.loads(one) for one in answer.body.splitlines())
    assert [one["broker"] for one in lines] == sorted(one["broker"] for one in lines)
    assert len(lines) == sum(1 for at_ms in range(2 * LINES) if at_ms % 3)
    assert end == {"end": True, "count": len(lines), "error": None}


def test_what_is_refused_is_an_error(suite, brokers) -> None:
    for name in brokers:
        brokers[name] = NoPermission("no right")
    for path in ("/v1/audit", "/v1/audit/export"):
        assert suite.console.get(path).status == 403
    for query in ({"decision": "all"}, {"count": 0}, {"cursor": "broker-a"}, {"since_ms": "today"}):
        assert suite.console.get("/v1/audit", query=query).status == 400, query


def test_without_users_the_audit_is_empty(suite) -> None:
    page = suite.console.get("/v1/audit").json
    assert (page["items"], page["cursor"], page["missing"]) == ([], None, [])
    assert b'"count":0' in suite.console.get("/v1/audit/export").body


def test_policies_are_tried_at_all_brokers(suite, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    use = TriedUse(
        user="till",
        network="10.1.2.0/24",
        source=None,
        need="Pub on Topic:orders",
        by="no policy allows it",
        allowed=False,
        was_allowed=True,
        count=7,
        last_ms=5,
    )

    async def try_policies(changes: list[PolicyChange], *, since_ms: int) -> Any:
        asked.append((changes, since_ms))
        trial = PolicyTrial((use,), requests=9, refused=7, untried=1, since_ms=4, more=False)
        return ByBroker({"broker-a": trial, "broker-b": trial}, {"broker-c": Unavailable("away")})

    monkeypatch.setattr(suite.console.gateway.admin.users, "try_policies", try_policies)
    change = {"user": "till", "change": "deny", "resource": "Topic:orders", "actions": ["Pub"]}
    answer = suite.console.post("/v1/policies/try", json={"changes": [change], "days": 2})
    assert answer.status == 200, answer.text
    found = answer.json
    assert [one["broker"] for one in found["items"]] == ["broker-a", "broker-b"]
    assert (found["requests"], found["refused"], found["untried"]) == (18, 14, 2)
    assert (found["since_ms"], found["missing"][0]["what"]) == (4, "broker-c")
    [(changes, since_ms)] = asked
    assert changes == [
        PolicyChange(
            user="till",
            change=PolicyChangeKind.DENY,
            resource="Topic:orders",
            actions=("Pub",),
        )
    ]
    assert found["as_of_ms"] - since_ms == 2 * DAY_MS
    for wrong in ({"days": 0}, {"days": 8}, {"changes": [{**change, "change": "put"}]}):
        assert suite.console.post("/v1/policies/try", json=wrong).status == 400, wrong


def test_without_users_no_request_was_counted(suite) -> None:
    found = suite.console.post("/v1/policies/try", json={}).json
    assert (found["items"], found["requests"], found["since_ms"]) == ([], 0, 0)
