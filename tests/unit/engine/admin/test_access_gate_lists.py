"""What lists contain: topics and groups on which their reader has a right, and no other name."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from kourou.errors import Code
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.config_bodies import (
    decode_consumer_offsets,
    decode_group_configs,
    decode_topic_configs,
    encode_group_config,
)
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.bodies.lists_body import decode_group_list
from kourou.protocol.bodies.statistics_bodies import decode_broker_consume_stats
from kourou.protocol.messages.access import SetAccessMode
from kourou.protocol.messages.broker_admin import (
    GetAllTopicConfig,
    QueryTopicConsumeByWho,
)
from kourou.protocol.messages.filter_server import GetFilters, PutFilter
from kourou.protocol.messages.groups import (
    GetAllSubscriptionGroupConfig,
    GetBrokerConsumeStats,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import GetAllConsumerOffset
from kourou.protocol.request import Request
from kourou.runtime import OWN_LINKS
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, send_to

TOPICS, GROUPS = ("orders", "bills"), ("till", "clerk")
OF_GROUPS = [f"{prefix}{group}" for group in GROUPS for prefix in ("%RETRY%", "%DLQ%")]
OF_TILL = {"orders", "%RETRY%till", "%DLQ%till"}
LISTS: list[Request] = [
    GetAllTopicConfig(),
    GetAllSubscriptionGroupConfig(),
    GetAllConsumerOffset(),
    GetBrokerConsumeStats(),
]


@pytest.fixture
def broker() -> SecuredBroker:
    """Two topics with three messages, of which two groups have consumed one."""
    made = SecuredBroker()
    for name in TOPICS:
        made.create_topics(name)
        for _ in range(3):
            assert made.ask(ANYBODY, send_to(name), b"x").code == Code.SUCCESS
    for name in OF_GROUPS:
        made.engine.control.topics.table[name] = TopicConfig(name, 1, 1)
    for group in GROUPS:
        body = encode_group_config(GroupConfig(group))
        assert made.ask(ANYBODY, UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS
        for name in TOPICS:
            made.engine.core.parts.commits.commit(group, name, 0, 1)
    return made


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    """A user with a right on `orders` and on the group till."""
    user = broker.create(root, "till")
    broker.allow(root, "till", "Topic:orders", "Get")
    broker.allow(root, "till", "Group:till", "Sub")
    return user


def body_of(broker: SecuredBroker, sender: Sender, request: Request) -> bytes:
    reply = broker.ask(sender, request)
    assert reply.code == Code.SUCCESS, reply.remark
    return b"".join(map(bytes, reply.body))


def bodies(broker: SecuredBroker, sender: Sender) -> list[bytes]:
    """The replies to all lists."""
    return [body_of(broker, sender, request) for request in LISTS]


def consumed(broker: SecuredBroker, sender: Sender) -> tuple[dict[str, int], int]:
    """The number of topics by group, and the total lag."""
    stats = decode_broker_consume_stats(body_of(broker, sender, GetBrokerConsumeStats()))
    return {group: len(found) for group, found in stats.groups.items()}, stats.total_lag


def topics(broker: SecuredBroker, sender: Sender) -> set[str]:
    found, _ = decode_topic_configs(body_of(broker, sender, GetAllTopicConfig()))
    return {one.name for one in found}


def test_lists_have_what_their_reader_has_a_right_to(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    assert topics(broker, till) == OF_TILL
    groups, _ = decode_group_configs(body_of(broker, till, GetAllSubscriptionGroupConfig()))
    assert [one.name for one in groups] == ["till"]
    offsets = decode_consumer_offsets(body_of(broker, till, GetAllConsumerOffset()))
    assert offsets == [("till", "orders", {0: 1})]
    assert consumed(broker, till) == ({"till": 1}, 2)
    assert consumed(broker, root) == ({"till": 2, "clerk": 2}, 8)
    for body in bodies(broker, till):
        assert not any(name in body for name in (b"bills", b"clerk", CONTROL_TOPIC.encode()))


def test_the_groups_of_a_topic_are_those_that_their_reader_has_a_right_to(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    of_orders = QueryTopicConsumeByWho(topic="orders")
    assert decode_group_list(body_of(broker, root, of_orders)) == ["clerk", "till"]
    assert decode_group_list(body_of(broker, till, of_orders)) == ["till"]
    of_bills = broker.ask(till, QueryTopicConsumeByWho(topic="bills"))
    assert of_bills.code == Code.NO_PERMISSION


def test_without_a_right_lists_are_empty_and_without_credentials_refused(
    broker: SecuredBroker, root: Sender
) -> None:
    nobody = broker.create(root, "nobody")
    names = [name.encode() for name in (*TOPICS, *GROUPS, *OF_GROUPS, CONTROL_TOPIC)]
    assert not any(name in body for body in bodies(broker, nobody) for name in names)
    assert consumed(broker, nobody) == ({}, 0)
    for request in LISTS:
        assert broker.ask(ANYBODY, request).code == Code.NO_PERMISSION
    broker.allow(root, "anonymous", "Topic:orders", "Sub")
    assert topics(broker, ANYBODY) == {"orders"}


@pytest.mark.parametrize(
    ("resource", "effect", "seen"),
    [
        ("Topic:bills", "deny", {"orders"}),
        ("Topic:b*", "deny", {"orders"}),
        ("Topic:orders", "deny", {"bills"}),
        ("Group:clerk", "allow", {"orders", "bills", "%RETRY%clerk", "%DLQ%clerk"}),
    ],
)
def test_what_is_denied_is_not_listed(
    broker: SecuredBroker, root: Sender, resource: str, effect: str, seen: set[str]
) -> None:
    user = broker.create(root, "joe")
    for name in TOPICS:
        broker.allow(root, "joe", f"Topic:{name}*", "All")
    broker.allow(root, "joe", resource, "All", effect=effect)
    assert topics(broker, user) == seen


def test_readers_of_the_cluster_see_everything_and_nodes_what_they_have_a_right_to(
    broker: SecuredBroker, root: Sender
) -> None:
    everything = bodies(broker, root)
    assert all(b"bills" in body or b"clerk" in body for body in everything)
    node = {"kind": "node", "node": "DefaultCluster/broker-a/1"}
    for user in (
        broker.create(root, "reader", "reader"),
        broker.create(root, "copies", "backup"),
        broker.create(root, "filters", "reader", **node),
        *(Sender(protocol=protocol) for protocol in OWN_LINKS),
    ):
        assert bodies(broker, user) == everything, user
    other = broker.create(root, "other-filters", **node)
    assert topics(broker, other) == set()
    broker.allow(root, "other-filters", "Topic:orders", "Sub")
    assert topics(broker, other) == {"orders"}
    grants = {"roles": ["reader:orders"]}
    assert topics(broker, broker.create(root, "other", **grants)) == {"orders"}


def test_where_nothing_is_enforced_lists_are_complete(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    everything = bodies(broker, root)
    for mode in ("observe", "off"):
        assert broker.ask(replace(root, secret=""), SetAccessMode(mode=mode)).code == Code.SUCCESS
        for sender in (till, ANYBODY):
            assert bodies(broker, sender) == everything


def test_a_right_that_ends_takes_its_topic_out_of_lists(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    until_ms = broker.engine.wall_ms + 1_000
    broker.allow(root, "till", "Topic:bills", "Get", until_ms=until_ms)
    assert "bills" in topics(broker, till)
    broker.engine.advance(1_000)
    assert topics(broker, till) == OF_TILL


def test_dead_letters_are_listed_unless_every_right_to_them_is_denied(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    broker.allow(root, "till", "Topic:*", "Delete", effect="deny")
    assert topics(broker, till) == OF_TILL
    broker.allow(root, "till", "Topic:%DLQ%till", "All", effect="deny")
    assert topics(broker, till) == OF_TILL - {"%DLQ%till"}


def test_a_denied_filter_is_in_no_list(broker: SecuredBroker, root: Sender) -> None:
    for name in ("late", "secret"):
        source = f"def match(message, context):  # {name}\n    return message.offset > 1\n".encode()
        digest = hashlib.sha256(source).hexdigest()
        put = PutFilter(consumer_group="till", name=name, sha256=digest)
        assert broker.ask(replace(root, secret=""), put, source).code == Code.SUCCESS
    joe = replace(broker.create(root, "joe", "reader"), secret="")
    node = {"kind": "node", "node": "DefaultCluster/broker-a/1"}
    replica = replace(broker.create(root, "replica", "reader", **node), secret="")

    def names(sender: Sender) -> list[list[str]]:
        return [
            [one.name for one in decode_filters(body_of(broker, sender, request))]
            for request in (GetFilters(consumer_group="till"), GetFilters(with_source=True))
        ]

    assert names(joe) == [["late", "secret"]] * 2
    for name in ("joe", "replica"):
        broker.allow(root, name, "Filter:till/secret", "Get", effect="deny")
    assert names(joe) == [["late"]] * 2
    assert names(replica) == [["late", "secret"]] * 2
    alone = GetFilters(consumer_group="till", name="secret", with_source=True)
    assert broker.ask(joe, alone).code == Code.NO_PERMISSION
