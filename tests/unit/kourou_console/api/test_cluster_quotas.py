"""Quotas over HTTP: what is listed, set, previewed and removed, and what is refused."""

from __future__ import annotations

PREVIEW = {"preview": "true"}
PATH = "/v1/quotas/user/quota-till"


def test_quotas_come_and_go(suite) -> None:
    body = {"publish_bytes": 1_000, "requests": 50, "reason": "fair"}
    said = "user quota-till would be limited to 1000 publish bytes/s, 50 requests/s at each broker."
    assert suite.console.put(PATH, query=PREVIEW, json=body).json["says"] == [said]
    assert suite.console.get("/v1/quotas").json["items"] == []
    assert suite.console.put(PATH, json=body).status == 200
    [item] = suite.console.get("/v1/quotas").json["items"]
    assert item == {
        "kind": "user",
        "name": "quota-till",
        "publish_bytes": 1_000,
        "publish_messages": None,
        "fetch_bytes": None,
        "fetch_messages": None,
        "requests": 50,
        "connections": None,
        "topics": None,
        "brokers": ["broker-a", "broker-b"],
    }
    assert suite.console.put(PATH, json={}).json["says"] == ["user quota-till is not limited."]
    assert suite.console.delete(PATH, query=PREVIEW).status == 200
    assert suite.console.get("/v1/quotas").json["total"] == 1
    assert suite.console.delete(PATH, query={"reason": "over"}).status == 200
    assert suite.console.get("/v1/quotas").json["total"] == 0


def test_what_cannot_be_limited_is_refused(suite) -> None:
    for path, body, text in (
        ("/v1/quotas/queue/x", {"requests": 5}, "has no quotas"),
        ("/v1/quotas/group/g", {"publish_bytes": 5}, "a group has no quota of publish bytes"),
        ("/v1/quotas/topic/a%20b", {"fetch_bytes": 5}, "has a character outside"),
        (PATH, {"requests": 0}, "requests"),
        (PATH, {"request": 5}, "request"),
    ):
        answer = suite.console.put(path, json=body)
        assert 400 <= answer.status < 500
        assert text in answer.json["detail"], answer.json
    assert suite.console.delete(PATH).status >= 400


def test_a_send_over_a_quota_is_429_with_the_time_to_try_again(suite) -> None:
    topic = suite.topic()
    path = f"/v1/quotas/topic/{topic}"
    assert suite.console.put(path, json={"publish_bytes": 1}).status == 200
    sends = [suite.console.post(f"/v1/topics/{topic}/messages", body=b"x" * 100) for _ in range(5)]
    assert sends[0].status < 300
    refused = next(one for one in sends if one.status == 429)
    assert int(refused.headers["retry-after"]) > 60
    assert "over its quota of 1 publish bytes/s" in refused.json["detail"]
    assert suite.console.delete(path).status == 200
