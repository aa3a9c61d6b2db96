"""Commands for topics: what they reply about topics that do not exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin.topics import delete_topic
from kourou.errors import TopicNotFound


class Topics:
    """A cluster's topics: some that a name server lists, some that only a broker has."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.admin = SimpleNamespace(topics=self)

    def list(self) -> list[str]:
        return ["orders"]

    def config(self, topic: str) -> dict[str, object]:
        if topic == "nothing":
            raise TopicNotFound("the topic does not exist")
        return {"broker-a": object()} if topic == "new" else {}

    def delete(self, topic: str, *, cluster: str | None) -> None:
        self.deleted.append(topic)


@pytest.mark.parametrize("topic", ["orders", "new"])
def test_a_topic_of_a_name_server_or_a_broker_is_deleted(topic: str) -> None:
    topics: Any = Topics()
    report = delete_topic(topics, topic)
    assert (report.remarks, topics.deleted) == ([f"deleted {topic}"], [topic])


@pytest.mark.parametrize("topic", ["nothing", "other"])
def test_an_unknown_topic_is_not_deleted(topic: str) -> None:
    topics: Any = Topics()
    with pytest.raises(TopicNotFound, match=f"topic '{topic}' not found; nothing was deleted"):
        delete_topic(topics, topic)
    assert topics.deleted == []
