"""Dead letters are let go by ids, or all that are listed."""

from __future__ import annotations

import pytest

from kourou.testing.cluster import unique_name


@pytest.fixture
def letters(suite) -> tuple[str, list[str]]:
    """A group, and the ids of its three dead letters."""
    topic, group = suite.topic(queues=1), unique_name("group")
    with suite.cluster.client(group) as mq:
        for number in range(3):
            mq.send(topic, f"{number}")
        with mq.subscribe(topic) as messages:
            for _, message in zip(range(3), messages, strict=False):
                message.dead_letter("no")
    with suite.cluster.client(group) as mq:
        found = [one.message.message_id for one in mq.admin.dead_letters.of(group)]
    return group, found


def test_those_that_are_named_and_all(suite, letters: tuple[str, list[str]]) -> None:
    group, ids = letters
    assert len(ids) == 3
    path, preview = "/v1/dead-letters/discards", {"preview": "true"}
    told = suite.console.post(path, query=preview, json={"group": group, "ids": ids[:1]}).json
    assert told["letters"] >= 1
    assert told["marks"]
    done = suite.console.post(path, json={"group": group, "ids": ids[:1]}).json
    assert done["letters"] == told["letters"]
    left = suite.console.post(path, query=preview, json={"group": group}).json
    assert left["letters"] == 3 - told["letters"]
    suite.console.post(path, json={"group": group})
    empty = suite.console.post(path, query=preview, json={"group": group}).json
    assert (empty["letters"], empty["marks"]) == (0, [])
    assert suite.console.post(path, json={"group": group, "ids": ids[:1]}).status == 404
