"""Names of others: a refusal does not tell whether a topic, a group or a user exists.

Each request is sent with a name that exists and with one that does not, by a user without a right
to either. The replies must be the same, but for the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.access import AuthCreateUser, ExplainAccess
from kourou.protocol.messages.broker_admin import GetHistory, GetStateAt, UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, read_pair
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.attacked import ASK_MS, ROOT, SECRETS, TILL, Attacked, broker_with_users, key_pairs
from kourou_rigs.hostile import NAMES_IN_BODIES, fields_with, texts_of

THERE, MISSING = "bills-there", "bills-never"
HISTORY = ("topic", "group", "user", "filter", "quota", "access")


async def populate(broker: Attacked) -> None:
    """Create a topic with a message, a group and a user of the same name."""
    topic = UpdateAndCreateTopic(topic=THERE, read_queue_nums=4, write_queue_nums=4, perm=6)
    user = encode_user_change(UserChange(secret=SECRETS[TILL], roles=(parse_role("reader"),)))
    for request, body in (
        (topic, b""),
        (UpdateAndCreateSubscriptionGroup(), encode_group_config(GroupConfig(THERE))),
        (AuthCreateUser(username=THERE), user),
    ):
        reply = await broker.request(request, body, ROOT)
        assert reply.code == Code.SUCCESS, reply.remark
    assert (await broker.send(b"secret", THERE, ROOT)).code == Code.SUCCESS


def bodies(name: str) -> list[bytes]:
    return [b"", *(one.format(f'"{name}"').encode() for one in NAMES_IN_BODIES)]


def told(reply: RemotingCommand, name: str) -> tuple[int, str, str, str]:
    """All that a reply says, without the name."""
    fields: Mapping[str, object] = reply.ext_fields or {}
    return (
        reply.code,
        (reply.remark or "").replace(name, "NAME"),
        str(sorted(fields.items())).replace(name, "NAME"),
        bytes(reply.body).decode("utf-8", "replace").replace(name, "NAME"),
    )


@pytest.mark.fault
@pytest.mark.parametrize("user", ["", TILL])
async def test_no_reply_tells_what_others_have(secured: Attacked, user: str) -> None:
    await populate(secured)
    asked = 0
    for spec in REQUESTS.values():
        if Answerer.BROKER not in spec.answered_by or not spec.remoting:
            continue
        for there, missing in zip(bodies(THERE), bodies(MISSING), strict=True):
            found = [
                told(await secured.say(spec.code, body, user=user, **fields_with(spec, name)), name)
                for name, body in ((THERE, there), (MISSING, missing))
            ]
            assert found[0] == found[1], spec.name
            asked += 1
    assert asked > 150
    assert MISSING not in secured.view.control.topics
    assert MISSING not in secured.view.control.groups
    await secured.serves(TILL)


@pytest.mark.fault
async def test_nor_does_a_reply_in_kourous_own_protocol(tmp_path: Path) -> None:
    pairs = key_pairs(tmp_path, "broker", "app")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        await populate(broker)
        change = UserChange(
            roles=(parse_role("writer:orders"), parse_role("operator:orders")),
            curve_keys=(read_pair(pairs["app"]).public,),
        )
        made = await broker.request(
            AuthCreateUser(username="app"), encode_user_change(change), ROOT
        )
        assert made.code == Code.SUCCESS, made.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        app = ZmqConnection(
            broker.address("zmq"), curve=ClientCurve(PairFile(pairs["app"]), servers)
        )

        async def answer(request: Request, body: bytes, name: str) -> tuple[object, ...]:
            reply = await app.request(request, body=(body,), timeout_ms=ASK_MS)
            whole = b"".join(map(bytes, reply.body)).decode("utf-8", "replace")
            texts = (reply.remark, repr(reply.header), whole)
            return (reply.code, *(text.replace(name, "NAME") for text in texts))

        own = [
            spec
            for spec in REQUESTS.values()
            if Answerer.BROKER in spec.answered_by and not spec.remoting and not spec.oneway
        ]
        assert len(own) > 20
        for spec in own:
            for there, missing in zip(bodies(THERE), bodies(MISSING), strict=True):
                assert await answer(texts_of(spec, THERE), there, THERE) == await answer(
                    texts_of(spec, MISSING), missing, MISSING
                ), spec.name
        for kind in HISTORY:
            for make in (_history, _state, _explained):
                assert await answer(make(kind, THERE), b"", THERE) == await answer(
                    make(kind, MISSING), b"", MISSING
                ), (kind, make)
        app.close()


def _history(kind: str, name: str) -> Request:
    return GetHistory(aggregate=f"{kind}/{name}", max_count=10)


def _state(kind: str, name: str) -> Request:
    return GetStateAt(aggregate=f"{kind}/{name}", at_ms=2**60)


def _explained(kind: str, name: str) -> Request:
    return ExplainAccess(username=name, action="Pub", resource=f"{kind.capitalize()}:{name}")
