"""Name servers, and the keys that they keep."""

from __future__ import annotations

PREVIEW = {"preview": "true"}


def test_who_answers_with_which_settings(suite) -> None:
    found = suite.console.get("/v1/name-servers").json
    (one,) = found["items"]
    assert (one["up"], one["why"]) == (True, None)
    assert "listenPort" in one["settings"]


def test_keys_come_and_go(suite) -> None:
    path, listed = "/v1/name-servers/values/OURS/key%20one", "/v1/name-servers/values"
    result = suite.console.put(path, query=PREVIEW, json={"value": "a"}).json
    assert result["says"][1] == "It was not there."
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == []
    suite.console.put(path, json={"value": "a"})
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == [
        {"namespace": "OURS", "key": "key one", "value": "a"}
    ]
    assert suite.console.delete(path, query=PREVIEW).json["says"][1] == "It was a."
    suite.console.delete(path)
    assert suite.console.get(listed, query={"namespace": "OURS"}).json["items"] == []


def test_a_setting_that_may_not_change_is_refused(suite) -> None:
    path, body = "/v1/name-servers/config", {"settings": {"listenPort": "1"}}
    assert suite.console.patch(path, query=PREVIEW, json=body).status == 200
    answer = suite.console.patch(path, json=body)
    assert 400 <= answer.status < 500
