"""Filters by broker: versions, sources, what runs."""

from __future__ import annotations

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
