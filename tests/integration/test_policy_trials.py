"""Policies are tried on what a running broker counted, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kourou.engine.admin import access_gate
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import (
    PolicyChange,
    PolicyChangeKind,
    TriedUse,
    UserChange,
    decode_tried,
    encode_policy_changes,
    encode_user_change,
)
from kourou.protocol.messages.access import AuthUpdateUser, TryPolicies, TryPoliciesResponse
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, read_pair
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.attacked import ASK_MS, ROOT, TILL, broker_with_users, key_pairs

SENDS = 5
DENY = PolicyChange(
    user=TILL, change=PolicyChangeKind.DENY, resource="Topic:orders*", actions=("Pub",)
)


async def tried(ops: ZmqConnection, *changes: PolicyChange) -> tuple[int, list[TriedUse]]:
    """How many requests would be refused, and what a broker says about them."""
    reply = await ops.request(
        TryPolicies(), body=(encode_policy_changes(changes),), timeout_ms=ASK_MS
    )
    assert reply.code == Code.SUCCESS, reply.remark
    assert isinstance(reply.header, TryPoliciesResponse)
    return reply.header.refused, decode_tried(b"".join(map(bytes, reply.body)))


async def test_what_a_policy_would_refuse_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_gate, "USES_INTERVAL_MS", 0)
    pairs = key_pairs(tmp_path, "broker", "ops")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        key = UserChange(curve_keys=(read_pair(pairs["ops"]).public,))
        added = await broker.request(AuthUpdateUser(username=ROOT), encode_user_change(key), ROOT)
        assert added.code == Code.SUCCESS, added.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        ops = ZmqConnection(
            broker.address("zmq"), curve=ClientCurve(PairFile(pairs["ops"]), servers)
        )
        before, _ = await tried(ops, DENY)
        for _ in range(SENDS):
            assert (await broker.send(user=TILL)).code == Code.SUCCESS
        async with asyncio.timeout(ASK_MS / 1_000):
            while (refused := await tried(ops, DENY))[0] < before + SENDS:
                pass  # a tick of the broker writes the counts
        uses = [one for one in refused[1] if one.was_allowed]
        assert sum(one.count for one in uses) == SENDS
        assert {(one.user, one.need, one.network, one.allowed) for one in uses} == {
            (TILL, "Pub on Topic:orders", "127.0.0.0/24", False)
        }
        assert not [one for one in (await tried(ops))[1] if one.was_allowed], "by what there is"
        assert (await broker.send(user=TILL)).code == Code.SUCCESS, "nothing was changed"
        ops.close()
    [file] = (tmp_path / "store" / "kourou" / "uses").iterdir()
    assert file.suffix == ".jsonl"


async def test_a_stop_writes_what_was_counted_in_the_last_minute(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        for _ in range(SENDS):
            assert (await broker.send(user=TILL)).code == Code.SUCCESS
    found = (tmp_path / "store" / "kourou" / "uses").glob("*.jsonl")
    lines = [json.loads(line) for file in found for line in file.read_bytes().splitlines()]
    assert sum(line["count"] for line in lines if line["user"] == TILL) == SENDS
