"""Dead letters are let go by ids, or all that are listed."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.model.names import dlq_topic
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import unique_name

PATH = "/v1/dead-letters/discards"
PREVIEW = {"preview": "true"}


@pytest.fixture
def group(suite: Any) -> str:
    """A group with three dead letters in one queue and one in another."""
    topic, name = suite.topic(queues=1), unique_name("group")
    with suite.cluster.client(name) as mq:
        for number, broker in enumerate("aaab"):
            mq.send(topic, f"{number}", queue=MessageQueue(topic, f"broker-{broker}", 0))
        with mq.subscribe(topic) as messages:
            for _, message in zip(range(4), messages, strict=False):
                message.dead_letter("no")
    return name


def listed(suite: Any, group: str) -> list[Any]:
    """All of them, by their queues."""
    found = suite.console.get("/v1/dead-letters", query={"group": group}).json["items"]
    return sorted(found, key=lambda one: (one["message"]["broker"], one["message"]["offset"]))


def let_go(suite: Any, group: str, *ids: str, **query: str) -> Any:
    return suite.console.post(PATH, query=query, json={"group": group, "ids": ids})


def test_those_that_are_named_and_all(suite: Any, group: str) -> None:
    dead_letters = listed(suite, group)
    ids = [one["id"] for one in dead_letters]
    result = let_go(suite, group, ids[1], **PREVIEW).json
    assert result["letters"] == 2
    assert result["says"][:2] == [
        f"2 dead letters of {group} would be discarded.",
        "1 of them are older than the selected ones.",
    ]
    assert result["marks"] == [{"broker": "broker-a", "queue": 0, "offset": 2}]
    assert let_go(suite, group, ids[1]).json["letters"] == 2
    assert listed(suite, group) == dead_letters[2:]
    assert let_go(suite, group, **PREVIEW).json["letters"] == 2
    let_go(suite, group)
    empty = let_go(suite, group, **PREVIEW).json
    assert (empty["letters"], empty["marks"]) == (0, [])
    assert let_go(suite, group, ids[2]).status == 404


def test_one_that_died_again_stays_when_its_first_death_is_let_go(suite: Any, group: str) -> None:
    with suite.cluster.client(group) as mq:
        first = min(mq.admin.dead_letters.of(group), key=lambda one: one.message.queue)
        mq.admin.dead_letters.resend(group, [first])
        with mq.subscribe(first.topic) as messages:
            next(iter(messages)).dead_letter("no again")
    dead_letters = listed(suite, group)
    assert (
        dead_letters[0]["message"]["id"]
        == dead_letters[3]["message"]["id"]
        == first.message.message_id
    )
    assert let_go(suite, group, dead_letters[0]["id"], **PREVIEW).json["letters"] == 1
    assert let_go(suite, group, dead_letters[0]["id"]).json["letters"] == 1
    assert listed(suite, group) == dead_letters[1:]


def test_what_names_no_letter_is_told(suite: Any, group: str) -> None:
    dead_letters = listed(suite, group)
    other = suite.topic(queues=1)
    with suite.cluster.client() as mq:
        elsewhere = mq.send(other, b"no letter").offset_message_id
    for wrong in (dead_letters[0]["message"]["id"], elsewhere, "nonsense", "0" * 32):
        answer = let_go(suite, group, dead_letters[0]["id"], wrong)
        assert (answer.status, repr(wrong) in answer.json["detail"]) == (404, True), wrong
    assert listed(suite, group) == dead_letters


def test_one_behind_the_oldest_thousand_is_found(
    suite: Any, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou_console.api.dead_letters.CONSOLE_DISCARDS_MAX", 1)
    dead_letters = listed(suite, group)
    assert let_go(suite, group, **PREVIEW).json["letters"] == 1
    assert let_go(suite, group, dead_letters[2]["id"]).json["letters"] == 3
    assert listed(suite, group) == dead_letters[3:]


def test_of_a_silent_broker_nothing_is_let_go(suite: Any, group: str, silence: Any) -> None:
    dead_letters = listed(suite, group)
    with silence("broker-b"):
        answer = let_go(suite, group, dead_letters[3]["id"])
        assert (answer.status, "it swaps" in answer.json["detail"]) == (503, True)
        result = let_go(suite, group).json
    assert (result["letters"], [one["why"] for one in result["missing"]]) == (3, ["it swaps"])
    assert result["missing"][0]["what"] == str(MessageQueue(dlq_topic(group), "broker-b", 0))
    assert listed(suite, group) == dead_letters[3:]
