"""Replies have only names that their reader has a right to: lists, totals, and everything else.

A user with rights on names with the prefix `orders` sends each request about these names, and about
all. No reply may have a name with `bills`: a topic, a group that consumes both topics, a connected
client, a user and a quota.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.model.subscription import GroupConfig, Subscription
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import AuthCreateUser, AuthUpdateUser
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import HeartBeat, UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.quotas import ListQuotas, SetQuota
from kourou.protocol.request import Answerer
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, read_pair
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_rigs.attacked import (
    ASK_MS,
    ROOT,
    SECRETS,
    TILL,
    Attacked,
    broker_with_users,
    key_pairs,
    signed,
)
from kourou_rigs.hostile import NAMES_IN_BODIES, fields_with, texts_of

OWN, FOREIGN = "orders", "bills"
ASKED = (OWN, f"{OWN}-group", "")
LISTS = (
    "GET_ALL_TOPIC_CONFIG",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "GET_ALL_CONSUMER_OFFSET",
    "GET_BROKER_CONSUME_STATS",
    "QUERY_TOPIC_CONSUME_BY_WHO",
)
"""Requests whose reply to an administrator has both."""


async def make(broker: Attacked, name: str) -> None:
    """A topic and a group; the foreign group consumes the topic."""
    topic = UpdateAndCreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
    group = encode_group_config(GroupConfig(f"{name}-group"))
    progress = UpdateConsumerOffset(
        consumer_group=f"{FOREIGN}-group", topic=name, queue_id=0, commit_offset=0
    )
    for request, body in (
        (topic, b""),
        (UpdateAndCreateSubscriptionGroup(), group),
        (progress, b""),
    ):
        reply = await broker.request(request, body, ROOT)
        assert reply.code == Code.SUCCESS, reply.remark


async def populate(broker: Attacked) -> RemotingConnection:
    """Make all that is foreign; its client stays connected until the result is closed."""
    await make(broker, FOREIGN)
    user = encode_user_change(UserChange(secret=SECRETS[TILL]))
    made = await broker.request(AuthCreateUser(username=f"{FOREIGN}-user"), user, ROOT)
    assert made.code == Code.SUCCESS, made.remark
    assert (await broker.send(b"x", FOREIGN, ROOT)).code == Code.SUCCESS
    client = RemotingConnection(broker.address("tcp"))
    subscriptions = (Subscription(FOREIGN), Subscription(OWN))
    consumer = ConsumerData(f"{FOREIGN}-group", subscriptions=subscriptions)
    beat = encode_heartbeat(HeartbeatBody(f"{FOREIGN}-client", (f"{FOREIGN}-sender",), (consumer,)))
    command = RemotingCommand(HeartBeat.code, ext_fields=signed(ROOT, {}, beat))
    reply = await client.exchange(command, (beat,), timeout_ms=ASK_MS)
    assert reply.code == Code.SUCCESS, reply.remark
    return client


def bodies(name: str) -> list[bytes]:
    return [b"", *(one.format(f'"{name}"').encode() for one in NAMES_IN_BODIES)]


def said(reply: RemotingCommand | WireReply) -> str:
    """All that a reply says."""
    if isinstance(reply, RemotingCommand):
        head, body = f"{reply.remark} {reply.ext_fields}", bytes(reply.body)
    else:
        head, body = f"{reply.remark} {reply.header!r}", b"".join(map(bytes, reply.body))
    return head + body.decode("utf-8", "replace")


@pytest.mark.fault
async def test_no_reply_has_a_foreign_name(secured: Attacked) -> None:
    client = await populate(secured)
    await make(secured, OWN)
    by_name = {spec.name: spec for spec in REQUESTS.values()}
    for name in LISTS:
        spec = by_name[name]
        reply = await secured.say(spec.code, user=ROOT, **fields_with(spec, OWN))
        assert FOREIGN in said(reply), name
    handled: set[str] = set()
    for spec in REQUESTS.values():
        if Answerer.BROKER not in spec.answered_by or not spec.remoting:
            continue
        await make(secured, OWN)  # a request before may have deleted it
        for name in ASKED:
            for body in bodies(name):
                fields = fields_with(spec, name)
                reply = await secured.say(spec.code, body, user=TILL, **fields)
                assert FOREIGN not in said(reply), (spec.name, name, body)
                if reply.code == Code.SUCCESS:
                    handled.add(spec.name)
    assert set(LISTS) <= handled
    client.close()
    await secured.serves(TILL)


@pytest.mark.fault
async def test_nor_has_one_in_kourous_own_protocol(tmp_path: Path) -> None:
    pairs = key_pairs(tmp_path, "broker", "app", "ops")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        client = await populate(broker)
        await make(broker, OWN)
        roles = (parse_role(f"writer:{OWN}"), parse_role(f"operator:{OWN}"))
        of_app = UserChange(roles=roles, curve_keys=(read_pair(pairs["app"]).public,))
        of_ops = UserChange(curve_keys=(read_pair(pairs["ops"]).public,))
        for request, change in (
            (AuthCreateUser(username="app"), of_app),
            (AuthUpdateUser(username=ROOT), of_ops),
        ):
            made = await broker.request(request, encode_user_change(change), ROOT)
            assert made.code == Code.SUCCESS, made.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        app, ops = (
            ZmqConnection(broker.address("zmq"), curve=ClientCurve(PairFile(pairs[name]), servers))
            for name in ("app", "ops")
        )
        quota = SetQuota(kind="topic", name=FOREIGN, publish_messages=1_000_000)
        assert (await ops.request(quota, timeout_ms=ASK_MS)).code == Code.SUCCESS
        assert FOREIGN in said(await ops.request(ListQuotas(), timeout_ms=ASK_MS))
        asked = 0
        for spec in REQUESTS.values():
            if Answerer.BROKER not in spec.answered_by or spec.remoting or spec.oneway:
                continue
            for name in ASKED:
                for body in bodies(name):
                    reply = await app.request(texts_of(spec, name), body=(body,), timeout_ms=ASK_MS)
                    assert FOREIGN not in said(reply), (spec.name, name, body)
                    asked += 1
        assert asked > 150
        for connection in (client, app, ops):
            connection.close()
        await broker.serves(ROOT)
