"""What remains of refusals and of changes of rights: every one is counted, none is invented."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.model.limits import ACCESS_REFUSALS_MAX, AUDIT_LINES_MAX
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.bodies.broker_bodies import decode_event_views
from kourou.protocol.messages.access import (
    AuthCreateAcl,
    AuthCreateUser,
    AuthDeleteAcl,
    AuthDeleteUser,
    AuthUpdateUser,
    SetAccessMode,
)
from kourou.protocol.messages.broker_admin import GetHistory
from kourou.protocol.request import Request
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.service.audit_log import WHOLE_LINES
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, read_pair
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.attacked import (
    ASK_MS,
    LAST,
    ROOT,
    TILL,
    Attacked,
    broker_with_users,
    key_pairs,
    signed,
)

PULL = 11
BURST, CONNECTIONS = 2_500, 4
KINDS = ACCESS_REFUSALS_MAX + 500


def pull(group: str, user: str = "", opaque: int = 1) -> bytes:
    fields = {"consumerGroup": group, "topic": "secret", "queueId": "0", "queueOffset": "0",
              "maxMsgNums": "1", "sysFlag": "0"}  # fmt: skip
    if user:
        fields = signed(user, fields)
    return encode_command(RemotingCommand(PULL, opaque=opaque, ext_fields=fields))


def lines_in(folder: Path) -> list[dict[str, object]]:
    files = sorted((folder / "store" / "kourou" / "audit").glob("*.jsonl"))
    return [json.loads(line) for one in files for line in one.read_bytes().splitlines()]


async def refused(broker: Attacked, *frames: bytes) -> int:
    """Send requests that are refused; the number of replies."""
    replies = await broker.answers(*frames, pull("secret", opaque=LAST))
    assert all("AclException" in (one.remark or "") for one in replies)
    return len(replies)


@pytest.mark.fault
async def test_a_flood_of_refusals_is_counted_exactly_and_served_beside(tmp_path: Path) -> None:
    """Few lines are written, their counts lose none, and a user with a right is served."""
    async with broker_with_users(tmp_path) as broker:
        flood = [
            refused(broker, pull("secret", TILL if number % 2 else "") * BURST)
            for number in range(CONNECTIONS)
        ]
        flood += [
            refused(broker, *(pull(f"group-{number}") for number in range(at, at + BURST)))
            for at in range(0, KINDS, BURST)
        ]
        served = [broker.send(user=TILL) for _ in range(50)]
        *counts, _ = await asyncio.gather(*flood, asyncio.gather(*served))
        assert broker.stored() == 50
        assert broker.view.access_decisions.refused == sum(counts)
        await broker.serves(TILL)
        total = broker.view.access_decisions.refused
    lines = [one for one in lines_in(tmp_path) if one.get("decision") != "allowed"]
    assert sum(int(str(line.get("count", 1))) for line in lines) == total
    minutes = len({int(str(line["at_ms"])) // 60_000 for line in lines})
    assert len(lines) < minutes * (AUDIT_LINES_MAX + ACCESS_REFUSALS_MAX + 2)
    of_till = [line for line in lines if line["user"] == TILL]
    assert len(of_till) <= minutes * (WHOLE_LINES + 1)


PUT_POLICY = {
    "policies": [
        {"entries": [{"resource": "Topic:bills", "actions": ["Pub"], "decision": "Allow"}]}
    ]
}


@pytest.mark.fault
async def test_each_change_of_rights_is_in_the_history_with_its_author(tmp_path: Path) -> None:
    """Only the control log has them, so no file can be deleted to hide one."""
    pairs = key_pairs(tmp_path, "broker", "ops")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        key = UserChange(curve_keys=(read_pair(pairs["ops"]).public,))
        added = await broker.request(AuthUpdateUser(username=ROOT), encode_user_change(key), ROOT)
        assert added.code == Code.SUCCESS, added.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        keys = ClientCurve(PairFile(pairs["ops"]), servers)
        ops = ZmqConnection(broker.address("zmq"), curve=keys)

        async def ask(request: Request, body: bytes = b"") -> bytes:
            reply = await ops.request(request, body=(body,), timeout_ms=ASK_MS)
            assert reply.code == Code.SUCCESS, reply.remark
            return b"".join(map(bytes, reply.body))

        new = encode_user_change(UserChange(secret="the-first-secret", roles=()))
        await ask(AuthCreateUser(username="clerk"), new)
        role = encode_user_change(UserChange(roles=(parse_role("reader"),)))
        await ask(AuthUpdateUser(username="clerk"), role)
        again = encode_user_change(UserChange(secret="another-secret"))
        await ask(AuthUpdateUser(username="clerk"), again)
        await ask(AuthCreateAcl(subject="User:clerk"), json.dumps(PUT_POLICY).encode())
        await ask(AuthDeleteAcl(subject="User:clerk", resource="Topic:bills"))
        await ask(SetAccessMode(mode="observe"))
        await ask(SetAccessMode(mode="enforce"))
        await ask(AuthDeleteUser(username="clerk"))
        page = await ask(GetHistory(max_count=100))
        ops.close()
    views = [one for one in reversed(decode_event_views(page)) if one.actor == f"User:{ROOT}"]
    kinds = [str(one.fields["type"]) for one in views]
    assert kinds[-9:] == [
        *("UserPut", "UserSecretSet", "UserPut", "UserSecretSet", "PolicyPut", "PolicyRemoved"),
        *("AccessModeSet", "AccessModeSet", "UserDeleted"),
    ]
    for secret in (b"the-first-secret", b"another-secret"):
        assert secret not in page
