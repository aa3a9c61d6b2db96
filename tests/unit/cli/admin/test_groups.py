"""What an operator hears of things that are not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin import (
    actions,
    broker_actions,
    dead_letter_actions,
    group_actions,
    message_actions,
)
from kourou.client.admin.messages import Found, MessageNotFound
from kourou.errors import BadRequest, GroupNotFound, KourouError, TopicNotFound, Unavailable
from kourou.model.group import GroupConfig
from kourou.model.route import BrokerData
from kourou.protocol.all_bodies import ClusterInfo

HINT = "for a message ID printed by `kourou send`, also give the topic: -t TOPIC"


class Topics:
    """A cluster's topics: some that a name server lists, some that only a broker has."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def list(self) -> list[str]:
        return ["orders"]

    def config(self, topic: str) -> dict[str, object]:
        if topic == "nothing":
            raise TopicNotFound("the topic does not exist")
        return {"broker-a": object()} if topic == "new" else {}

    def delete(self, topic: str, *, cluster: str | None) -> None:
        self.deleted.append(topic)


class Groups:
    """A cluster's groups."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, bool]] = []

    def list(self) -> Any:
        return [GroupConfig("till")]

    def delete(
        self, group: str, *, remove_offsets: bool, broker: str | None, cluster: str | None
    ) -> None:
        self.deleted.append((group, remove_offsets))


class Messages:
    """Knows nothing by offset id, and one message by its unique key."""

    def __init__(self, error: KourouError) -> None:
        self.error = error

    def by_offset_id(self, message_id: str) -> object:
        raise self.error


def client_with(**families: object) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(**families))


@pytest.mark.parametrize("topic", ["orders", "new"])
def test_a_topic_that_anybody_has_is_deleted(topic: str) -> None:
    topics = Topics()
    report = actions.delete_topic(client_with(topics=topics), topic, cluster=None)
    assert (report.remarks, topics.deleted) == ([f"deleted {topic}"], [topic])


@pytest.mark.parametrize("topic", ["nothing", "other"])
def test_a_topic_that_never_was_is_not_deleted(topic: str) -> None:
    topics = Topics()
    with pytest.raises(TopicNotFound, match=f"topic '{topic}' not found; nothing was deleted"):
        actions.delete_topic(client_with(topics=topics), topic, cluster=None)
    assert topics.deleted == []


def test_a_group_that_never_was_is_not_deleted() -> None:
    groups = Groups()
    with pytest.raises(GroupNotFound, match="group 'tlil' not found; nothing was deleted"):
        actions.delete_group(client_with(groups=groups), "tlil", remove_offsets=False)
    assert groups.deleted == []
    report = actions.delete_group(client_with(groups=groups), "till", remove_offsets=False)
    assert (report.remarks, groups.deleted) == (["deleted till"], [("till", False)])


def test_progress_that_outlived_its_group_can_be_deleted() -> None:
    groups = Groups()
    report = actions.delete_group(client_with(groups=groups), "old", remove_offsets=True)
    assert groups.deleted == [("old", True)]
    assert report.remarks == ["group old not found; its offsets, if any, were deleted"]


@pytest.mark.parametrize("error", [BadRequest("no id"), MessageNotFound("no broker has it")])
def test_an_id_that_is_not_found_may_be_of_the_other_kind(error: KourouError) -> None:
    client = client_with(messages=Messages(error))
    with pytest.raises(type(error)) as told:
        actions.message_by_id(client, None, "C0A80001")
    assert (told.value.message, told.value.hint) == (error.message, HINT)


def test_where_a_broker_did_not_answer_the_report_says_so() -> None:
    some: Found[Any] = Found((), {"broker-b": Unavailable("away")})
    client = client_with(
        messages=SimpleNamespace(by_key=lambda *_, **__: some, trace=lambda *_, **__: some)
    )
    by_key = actions.messages_by_key(client, "orders", "k", begin_ms=0, end_ms=1, count_max=9)
    for report in (by_key, message_actions.trace(client, "id", "traces")):
        assert (report.failed, report.missing) == (True, some.missing)


CLUSTER = ClusterInfo(
    brokers={"broker-a": BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:20911"})},
    clusters={"DefaultCluster": ("broker-a",)},
)


@pytest.mark.parametrize("text", ["broker-a", "127.0.0.1:20911", "127.0.0.1:10911"])
def test_a_broker_is_named_by_its_name_or_either_address(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    assert actions.broker_name(client, text) == "broker-a"


@pytest.mark.parametrize("text", ["broker-b", "127.0.0.1:10912", "127.0.0.1:70000", ":", ""])
def test_a_broker_that_nobody_knows_is_refused_with_those_that_are(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    with pytest.raises(BadRequest, match=r"known: broker-a"):
        actions.broker_name(client, text)


def test_nothing_to_send_again_is_said() -> None:
    def resend(_group: str, letters: list[object]) -> dict[str, object]:
        assert not letters
        return {}

    dead_letters = SimpleNamespace(of=lambda _group, count_max: [], resend=resend)
    report = dead_letter_actions.resent(client_with(dead_letters=dead_letters), "till", (), 10)
    assert (report.remarks, report.failed) == (["the group till has no dead letters"], False)


def test_no_producers_are_said_to_be_none() -> None:
    members = SimpleNamespace(all_producers=lambda _broker: {})
    report = group_actions.all_producers(client_with(members=members), None)
    assert (report.rows, report.remarks) == ([], ["no producer is connected"])


def test_a_namespace_without_keys_is_said_to_have_none() -> None:
    name_servers = SimpleNamespace(list=lambda _namespace: {})
    report = broker_actions.key_values(client_with(name_servers=name_servers), "shops", None)
    assert report.remarks == ["namespace shops has no keys"]
