"""Connections in masses: they keep nobody out, and a user has as many as its quota.

A listener has a maximum of connections. At it, the oldest one that has sent nothing is closed for a
new one, and a new one is refused if all have sent something: who is connected stays connected.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from pathlib import Path

import pytest

from kourou import Client
from kourou.errors import Code
from kourou.model import limits
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change
from kourou.protocol.messages.access import AuthUpdateUser
from kourou.protocol.messages.pulls import GetMinOffset
from kourou.protocol.messages.quotas import SetQuota
from kourou.protocol.wire.remoting import FrameReader, RemotingCommand, encode_command
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, read_pair
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.attacked import ASK_MS, ROOT, TILL, Attacked, broker_with_users, key_pairs, signed
from kourou_rigs.waiting import until

PLACES, STRANGERS = 20, 60
SEND = 310
FIELDS = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
}  # fmt: skip

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def send_frame(user: str = "") -> bytes:
    """A send to `orders`, with the user's signature if there is a user."""
    fields = signed(user, FIELDS, b"x") if user else dict(FIELDS)
    return encode_command(RemotingCommand(SEND, opaque=1, ext_fields=fields, body=b"x"))


async def code_of(streams: Streams, sent: bytes) -> int | None:
    """The code of the reply to a request on this connection; None if it is closed instead."""
    reader, writer = streams
    writer.write(sent)
    frames = FrameReader()
    async with asyncio.timeout(ASK_MS / 1_000):
        try:
            while data := await reader.read(1 << 16):
                for reply in frames.feed(data):
                    return reply.code
        except ConnectionError:
            return None
    return None


async def is_closed(streams: Streams) -> bool:
    """Waits until the other side has closed it; what it sent before is thrown away."""
    try:
        async with asyncio.timeout(ASK_MS / 1_000):
            while await streams[0].read(1 << 16):
                continue
    except ConnectionError:
        return True
    return True


@pytest.mark.fault
async def test_connections_that_send_nothing_keep_nobody_out(
    secured: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", PLACES)
    assert (await secured.send(user=TILL)).code == Code.SUCCESS  # on a connection that stays
    strangers = [await secured.connect() for _ in range(STRANGERS)]
    displaced = STRANGERS - (PLACES - 1)
    await until(lambda: secured.statistics()["peers_cut"] == displaced)
    assert secured.statistics()["peers"] == PLACES
    for one in strangers[:displaced]:
        assert await is_closed(one)
    assert await code_of(await secured.connect(), send_frame(TILL)) == Code.SUCCESS
    assert (await secured.send(user=TILL)).code == Code.SUCCESS
    counted = secured.statistics()
    assert (counted["peers_cut"], counted["peers_refused"]) == (displaced + 1, 0)
    await secured.serves(TILL)


@pytest.mark.fault
async def test_strangers_who_send_something_displace_nobody(
    secured: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are refused; a client that was connected before is served."""
    monkeypatch.setattr(limits, "PEERS_MAX", PLACES)
    till = await secured.connect()
    assert await code_of(till, send_frame(TILL)) == Code.SUCCESS
    while secured.statistics()["peers"] < PLACES:
        assert await code_of(await secured.connect(), send_frame()) == Code.SYSTEM_ERROR
    for _ in range(PLACES):
        assert await code_of(await secured.connect(), send_frame()) is None
    counted = secured.statistics()
    assert (counted["peers"], counted["peers_refused"], counted["peers_cut"]) == (PLACES, PLACES, 0)
    before = secured.stored()
    assert await code_of(till, send_frame(TILL)) == Code.SUCCESS
    assert secured.stored() == before + 1
    await secured.serves(TILL)


@pytest.mark.fault
async def test_the_same_holds_for_kourous_protocol(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", PLACES)
    assert (await attacked.sent(b"before")).code == Code.SUCCESS
    for _ in range(STRANGERS):
        await attacked.connect("zmq")
    displaced = STRANGERS - (PLACES - 1)
    await until(lambda: attacked.statistics("zmq")["peers_cut"] >= displaced)
    assert (await attacked.sent(b"meanwhile")).code == Code.SUCCESS
    other = ZmqConnection(attacked.address("zmq"))
    asked = GetMinOffset(topic="orders", queue_id=0)
    reply = await other.request(asked, timeout_ms=ASK_MS)
    assert reply.code == Code.SUCCESS, reply.remark
    other.close()
    assert attacked.statistics("zmq")["peers_refused"] == 0
    await attacked.serves()


@pytest.mark.fault
async def test_a_user_is_served_on_as_many_connections_as_its_quota(tmp_path: Path) -> None:
    pairs = key_pairs(tmp_path, "broker", "ops")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        key = encode_user_change(UserChange(curve_keys=(read_pair(pairs["ops"]).public,)))
        made = await broker.request(AuthUpdateUser(username=ROOT), key, ROOT)
        assert made.code == Code.SUCCESS, made.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        keys = ClientCurve(PairFile(pairs["ops"]), servers)
        ops = ZmqConnection(broker.address("zmq"), curve=keys)
        limited = SetQuota(kind="user", name=TILL, connections=2)
        reply = await ops.request(limited, timeout_ms=ASK_MS)
        assert reply.code == Code.SUCCESS, reply.remark
        first, second, *more = [await broker.connect() for _ in range(5)]
        for one in (first, second):
            assert await code_of(one, send_frame(TILL)) == Code.SUCCESS
        stored = broker.stored()
        for one in more:
            assert await code_of(one, send_frame(TILL)) == Code.FLOW_CONTROL
            assert await code_of(one, send_frame(ROOT)) == Code.SUCCESS, "of another user"
        assert broker.stored() == stored + len(more)
        assert await code_of(second, send_frame(TILL)) == Code.SUCCESS
        first[1].close()
        peers = broker.statistics()["peers"]
        await until(lambda: broker.statistics()["peers"] < peers)
        assert await code_of(more[0], send_frame(TILL)) == Code.SUCCESS
        ops.close()
        await broker.serves(ROOT)


# -- as many as this machine can open --------------------------------------------------------------

IDLE, STORM, AT_A_TIME = 15_000, 5_000, 500


async def connected(place: tuple[str, int]) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    await asyncio.get_running_loop().sock_connect(one, place)
    return one


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["tcp", "zmq"])
async def test_masses_of_connections_at_a_process_keep_nobody_out(
    tmp_path: Path, protocol: str
) -> None:
    """15,000 that send nothing, and 5,000 as fast as they can be opened and closed."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert files >= IDLE + 1_000, f"the limit of open files is {files}: raise it (ulimit -n)"
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        broker = cluster.brokers[0]
        told = broker.ready[protocol].removeprefix("tcp://")
        host, _, port = told.rpartition(":")
        place = host, int(port)
        async with Client(cluster.address) as mq:
            await mq.send("orders", b"before")
            idle: list[socket.socket] = []
            try:
                while len(idle) < IDLE:
                    idle += await asyncio.gather(*(connected(place) for _ in range(AT_A_TIME)))
                    await mq.send("orders", b"while they come")
                stored = IDLE // AT_A_TIME + 1
                for _ in range(STORM // AT_A_TIME):
                    for one in await asyncio.gather(*(connected(place) for _ in range(AT_A_TIME))):
                        one.close()
                    await mq.send("orders", b"in the storm")
                    stored += 1
                async with Client(cluster.address) as newcomer:
                    await newcomer.send("orders", b"a new client")
                stats = await mq.admin.topics.stats("orders")
                assert sum(one.max_offset for one in stats.values()) == stored + 1
            finally:
                for one in idle:
                    one.close()
            await mq.send("orders", b"after")
        assert broker.running
