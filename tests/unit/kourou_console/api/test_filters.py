"""Filters by broker: versions, sources, what runs."""

from __future__ import annotations

import pytest

SOURCE = "def match(message, context):\n    return message.tag == 'late'\n"


def test_an_uploaded_filter_is_shown_with_its_source(suite) -> None:
    console, group = suite.console, suite.group()
    path = f"/v1/filters/{group}/late"
    assert console.get(path).status == 404
    assert console.put(path, json={"source": SOURCE, "note": "first"}).status == 200
    found = console.get("/v1/filters", query={"group": group}).json
    assert [(one["broker"], one["state"], one["active"]) for one in found["items"]] == [
        ("broker-a", "runs", 1),
        ("broker-b", "runs", 1),
    ]
    assert [one["addresses"] for one in found["servers"]] == [[], []]
    (version,) = found["items"][0]["versions"]
    assert (version["note"], version["author"]) == ("first", "anybody@console")
    result = console.get(f"{path}/source").json
    assert (result["version"], result["source"]) == (1, SOURCE)
    assert console.get(f"{path}/source", query={"version": 9}).status == 404
    only = console.get(path, query={"broker": "broker-a"}).json
    assert only["total"] == 1


def test_no_filter_server_is_no_figure(suite) -> None:
    found = suite.console.get("/v1/filter-statistics")
    assert found.status == 200
    assert found.json["items"] == []


# -- changes of filters: previewed first, then made at every broker, with their reason -------------


PREVIEW = {"preview": "true"}
ONE = "def match(message, context):\n    return True\n"
TWO = "def match(message, context):\n    return False\n"


@pytest.fixture
def path(suite) -> str:
    """A filter with two versions, of which the second runs."""
    where = f"/v1/filters/{suite.group()}/late"
    for source in (ONE, TWO):
        assert suite.console.put(where, json={"source": source}).status == 200
    return where


def active(suite, path: str) -> list[int | None]:
    return [one["active"] for one in suite.console.get(path).json["items"]]


def test_each_decision_is_told_before_and_made_then(suite, path: str) -> None:
    console = suite.console
    assert active(suite, path) == [2, 2]
    result = console.post(f"{path}/rollback", query=PREVIEW, json={}).json
    assert "broker-a: version 1 would replace version 2." in result["says"]
    assert active(suite, path) == [2, 2]
    console.post(f"{path}/rollback", json={"reason": "it was wrong"})
    assert active(suite, path) == [1, 1]
    console.post(f"{path}/disable", query=PREVIEW, json={})
    assert active(suite, path) == [1, 1]
    console.post(f"{path}/disable", json={"broker": "broker-b"})
    assert active(suite, path) == [1, None]
    console.post(f"{path}/enable", query=PREVIEW, json={"version": 2})
    done = console.post(f"{path}/enable", json={"version": 2}).json
    assert {one["active"] for one in done["items"]} == {2}
    result = console.post(f"{path}/policy", query=PREVIEW, json={"policy": "skip"}).json
    assert "it is skipped" in result["says"][0]
    console.post(f"{path}/policy", json={"policy": "skip"})
    assert {one["policy"] for one in console.get(path).json["items"]} == {"skip"}
    console.delete(path, query=PREVIEW)
    assert active(suite, path) == [2, 2]
    console.delete(path, query={"reason": "over"})
    assert console.get(path).status == 404
    past = suite.history("filter", path.removeprefix("/v1/filters/"))
    assert {"it was wrong", "over"} <= {one["reason"] for one in past}


def test_what_is_no_filter_is_refused_with_its_line(suite) -> None:
    path = f"/v1/filters/{suite.group()}/late"
    body = {"source": "import os\n"}
    for query in (PREVIEW, {}):
        answer = suite.console.put(path, query=query, json=body)
        assert answer.status == 400, answer.text
        assert "1:1" in answer.json["detail"]
    result = suite.console.put(path, query=PREVIEW, json={"source": ONE}).json
    assert result["items"] == []
    assert suite.console.get(path).status == 404
    for verb in ("enable", "disable", "rollback"):
        assert suite.console.post(f"{path}/{verb}", query=PREVIEW, json={}).status == 404
        assert suite.console.post(f"{path}/{verb}", json={}).status == 404
    assert suite.console.post(f"{path}/policy", json={"policy": "x"}).status == 400


def test_a_trial_wants_a_filter_server(suite, path: str) -> None:
    topic = suite.topic()
    answer = suite.console.post(f"{path}/trials", json={"topic": topic, "source": ONE})
    assert "no filter server" in answer.json["detail"]
    both = {"topic": topic, "source": ONE, "version": 1}
    assert suite.console.post(f"{path}/trials", json=both).status == 400
