"""Every request of the table at a broker, sent by one user of each kind: who is let through.

The copy is tests/golden/access/requests.txt. A person compares it with the needs of each request;
after an intended change: `pytest tests/golden/test_access_requests.py --rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.golden.conftest import GoldenCopies

from kourou.errors import Code
from kourou.model.names import HALF_TOPIC, TRACE_TOPIC
from kourou.model.subscription import GroupConfig, Subscription
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.model.transaction import BatchQuery
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.bodies.heartbeat_body import (
    ConsumerData,
    HeartbeatBody,
    SubscriptionCheck,
    encode_heartbeat,
    encode_subscription_check,
)
from kourou.protocol.bodies.lists_body import LockBatch, encode_lock_batch
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.sends import SendMessage, Target
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.request import RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime.core import Reply
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, sample_request

COPY = Path(__file__).parent / "access" / "requests.txt"

WIDTH = 46

HEAD = """\
# Every request of kourou.protocol.table at a broker that has users: who is let through.
#
#   +  handled
#   .  refused, and no handler saw it
#   3  not supported here, whoever sends it
#
# anon: without credentials; wrong: a wrong secret, or an unknown key; none: a user without rights;
# node: a replica of this cluster; then users with one role each, on everything; cons: a console.
# The topic `orders` and the group `g` exist, and the message that a request names is in `orders`.
# Lists are for every user; they have only what the user has a right to.
#
"""

KINDS = {
    "reader": ["reader"],
    "viewer": ["viewer"],
    "writer": ["writer"],
    "oper": ["operator"],
    "author": ["filter-author"],
    "backup": ["backup"],
    "cons": ["console"],
    "admin": ["administrator"],
}

_QUEUE = MessageQueue("orders", "broker-a", 0)
_ORDERS = Subscription("orders")
BODIES = {
    "HEART_BEAT": encode_heartbeat(
        HeartbeatBody("c1", ("p",), (ConsumerData("g", subscriptions=(_ORDERS,)),))
    ),
    "CHECK_CLIENT_CONFIG": encode_subscription_check(SubscriptionCheck("c1", "g", _ORDERS)),
    "LOCK_BATCH_MQ": encode_lock_batch(LockBatch("g", "c1", (_QUEUE,))),
    "UNLOCK_BATCH_MQ": encode_lock_batch(LockBatch("g", "c1", (_QUEUE,))),
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": encode_group_config(GroupConfig("g")),
}

SENDS: Mapping[str, Mapping[str, Any]] = {
    "orders": {},
    "a new topic": {"topic": "new"},
    "the retry topic of g": {"topic": "%RETRY%g"},
    "traces": {"topic": TRACE_TOPIC},
    "half messages": {"topic": HALF_TOPIC},
}
READS: Mapping[str, Mapping[str, Any]] = {
    "orders": {},
    "the retry topic of g": {"topic": "%RETRY%g"},
    "the dead letters of g": {"topic": "%DLQ%g"},
    "half messages": {"topic": HALF_TOPIC},
}
QUERIES: Mapping[str, Mapping[str, Any]] = {
    "of a new query": {"query": "new"},
    "of another user's query": {"query": "of-bob"},
}
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "SEND_MESSAGE": SENDS,
    "SEND_RECORDS": {
        "orders": {},
        "orders and a new topic": {"targets": [Target("orders", 0), Target("new", 0)]},
    },
    "SEND_REPLY_MESSAGE": {
        "to the reply topic": {"topic": "DefaultCluster_REPLY_TOPIC"},
        "a new topic": {"topic": "new"},
    },
    "PULL_MESSAGE": READS,
    "QUERY_MESSAGE": READS,
    "VIEW_MESSAGE_BY_ID": {"of orders": {}, "unknown": {"offset": 1 << 40}},
    "END_TRANSACTION": {"of orders": {}, "unknown": {"commit_log_offset": 1 << 40}},
    "UPDATE_AND_CREATE_TOPIC": {"orders": {}, "a new topic": {"topic": "new"}},
    "GET_CONSUMER_RUNNING_INFO": {"": {}, "with stacks": {"jstack_enable": True}},
    "GET_HISTORY": {
        "of orders": {"aggregate": "topic/orders"},
        "of a user": {"aggregate": "user/bob"},
        "of all": {"aggregate": ""},
    },
    "GET_STATE_AT": {"of orders": {"aggregate": "topic/orders"}, "of all": {"aggregate": ""}},
    "EXPLAIN_ACCESS": {"of a user": {}, "of oneself": {"username": ""}},
    "CHANGE_FILTER": {"disable": {"action": "disable"}, "delete": {"action": "delete"}},
    "GET_FILTERS": {"one": {}, "all": {"consumer_group": "", "name": ""}},
    "GET_BATCH_STATE": QUERIES,
    "PREPARE_BATCH": QUERIES,
    "DECIDE_BATCH": QUERIES,
    "RESOLVE_BATCH": QUERIES,
    "ABORT_BATCH": QUERIES,
}

_FIELDS: Mapping[str, Any] = {
    "topic": "orders",
    "consumer_group": "g",
    "group": "g",
    "group_name": "g",
    "src_group": "g",
    "dest_group": "g",
    "compare_group": "g",
    "producer_group": "p",
    "username": "bob",
    "subject": "User:bob",
    "access_key": "bob",
    "name": "late",
    "targets": [Target("orders", 0)],
    "jstack_enable": False,
}


def secured() -> tuple[SecuredBroker, int]:
    """A broker with a topic, a group and a message at the returned position; no users yet."""
    broker = SecuredBroker()
    topic = UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    broker.engine.control.topics.table[TRACE_TOPIC] = TopicConfig(TRACE_TOPIC)
    broker.engine.control.batches.table["of-bob"] = BatchQuery("broker-a", user="bob")
    group = encode_group_config(GroupConfig("g"))
    send = SendMessage(producer_group="p", topic="orders", queue_id=0, born_timestamp=1)
    for request, body in (
        (topic, b""),
        (UpdateAndCreateSubscriptionGroup(), group),
        (send, b"content"),
    ):
        assert broker.ask(ANYBODY, request, body).code == Code.SUCCESS
    [stored] = broker.engine.stored("orders")
    return broker, stored.position


def senders(broker: SecuredBroker) -> dict[str, Sender]:
    """One sender of each kind, in the order of the columns."""
    root = broker.administrator()
    found = {
        "anon": ANYBODY,
        "wrong": Sender(user="root", secret="not-the-secret", key="." * 40),
        "none": broker.create(root, "none"),
    }
    for name, roles in KINDS.items():
        found[name] = broker.create(root, name, *roles)
    node = {"kind": "node", "node": "DefaultCluster/broker-a/1"}
    found["node"] = broker.create(root, "node", **node)
    return found


def sample(spec: RequestSpec, position: int, fields: Mapping[str, Any]) -> Any:
    """A request of this kind about `orders`, `g` and the message at `position`."""
    known = {
        **_FIELDS,
        "offset": position,
        "commit_log_offset": position,
        "msg_id": encode_offset_id(("127.0.0.1", 10911), position),
        **fields,
    }
    return sample_request(spec, known)


def entries(broker: SecuredBroker) -> list[type]:
    """Replace every handler by one that only notes what it received."""
    entered: list[type] = []

    def handler(_now_ms: int, received: Any, request: Any) -> list[Reply]:
        entered.append(type(request))
        return [Reply(received.to)]

    core: Any = broker.engine.core
    core._handlers = dict.fromkeys(core._handlers, handler)
    return entered


def walk() -> Iterator[str]:
    """A line for each request: who is let through."""
    broker, position = secured()
    who = senders(broker)
    entered = entries(broker)
    yield " " * WIDTH + " ".join(f"{name:>6}" for name in who)
    for code, spec in sorted(REQUESTS.items()):
        for variant, fields in VARIANTS.get(spec.name, {"": {}}).items():
            request = sample(spec, position, fields)
            marks = []
            for sender in who.values():
                signed = Sender(user=sender.user, secret=sender.secret)
                how = signed if spec.remoting else Sender(key=sender.key)
                entered.clear()
                reply = broker.ask(how, request, BODIES.get(spec.name, b""))
                if entered:
                    assert reply.code == Code.SUCCESS
                    marks.append("+")
                elif reply.code == Code.REQUEST_CODE_NOT_SUPPORTED:
                    marks.append("3")
                else:
                    assert reply.code == Code.NO_PERMISSION, (spec.name, reply)
                    marks.append(".")
            name = f"{code} {spec.name}" + (f", {variant}" if variant else "")
            yield f"{name:<{WIDTH}}" + " ".join(f"{mark:>6}" for mark in marks)


def test_each_request_is_for_whom_it_is(golden_copies: GoldenCopies) -> None:
    golden_copies.check(COPY, HEAD + "\n".join(line.rstrip() for line in walk()) + "\n")
