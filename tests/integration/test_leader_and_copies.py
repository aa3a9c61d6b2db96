"""A broker that leads: whoever speaks its words on the listener for members gets its log.

The follower here is the real rules and the real store, and the wire between them is real; only the
process around it is this test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.engine.policy import BrokerRole
from kourou.errors import Code
from kourou.protocol.messages.replication import Attach, Attached, LogChunk
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.wire.frames import Frame, decode_request
from kourou.replication.epochs import Epochs
from kourou.replication.static_follower import Copying, FollowerIdentity, FollowerStep, Say, Take
from kourou.store.real_disk import RealDisk
from kourou.store.replica.epoch_file import load_epochs
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.transport.zmq_client import ZmqConnection

SEGMENT = 64 * 1024
TIMEOUT_MS = 20_000


@asynccontextmanager
async def leading(
    root: Path, **keys: object
) -> AsyncIterator[tuple[BrokerService, dict[str, str]]]:
    failures: list[BaseException] = []
    wanted = {
        "store_root": root, "listen_port": 0, "admin_enabled": False, "broker_name": "broker-a",
        "segment_size_bytes": SEGMENT, "broker_role": BrokerRole.SYNC_MASTER, **keys,
    }  # fmt: skip
    service = BrokerService(BrokerSettings(**wanted))  # type: ignore[arg-type]  # a shorthand
    await service.recover(failures.append)
    told = await service.serve()
    try:
        yield service, {name: each.removeprefix("tcp://") for name, each in told.items()}
        await service.drain()
    finally:
        await service.stop()
    assert failures == []


class Follower:
    """Copies over one connection into a store of its own."""

    def __init__(self, root: Path, address: str) -> None:
        settings = StoreSettings(root=root, segment_size_bytes=SEGMENT)
        self.store = Store.open(settings, RealDisk())
        self.copying = Copying(
            FollowerIdentity("DefaultCluster", "broker-a", 1), Epochs((), self.store.end), 0
        )
        self.refusals: list[str] = []
        self.connection = ZmqConnection(address, on_notify=self._heard)
        self.connection.on_connected = self._connected

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)

    def _connected(self) -> None:
        self._say(self.copying.connected(self._now_ms()))

    def _say(self, say: Say) -> None:
        self.connection.oneway(say.message)

    def _heard(self, frame: Frame) -> None:
        request = decode_request(frame)
        match request:
            case Attached():
                assert self.copying.attached(self._now_ms(), request) == []
                self.refusals += [request.refusal] if request.refusal else []
            case LogChunk():
                data = memoryview(b"".join(frame.body))
                for each in self.copying.chunk(self._now_ms(), request, data):
                    match each:
                        case Take(position, end, taken):
                            assert self.store.append_chunk(position, taken) == end
                            self.store.dispatch()
                            self.copying.copied(end)
                        case Say():
                            self._say(each)
                for say in self.copying.turn():
                    self._say(say)

    def close(self) -> None:
        self.connection.close()
        self.store.close()


def message(number: int = 0, size: int = 200) -> tuple[SendMessage, bytes]:
    request = SendMessage(
        producer_group="p", topic="orders", queue_id=number % 4, born_timestamp=1,
        default_topic="TBW102", default_topic_queue_nums=4,
    )  # fmt: skip
    return request, f"{number}:".encode().ljust(size, b"x")


async def send(client: ZmqConnection, number: int) -> int:
    """Send one message, again while the next segment is being allocated."""
    request, body = message(number)
    while True:
        reply = await client.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
        if reply.code != Code.SYSTEM_BUSY:
            return reply.code


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
        await asyncio.sleep(0)


def log_bytes(root: Path, end: int) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


@pytest.mark.feature("F128", "F129", "F131", "F132")
async def test_a_send_is_answered_when_the_follower_has_it_and_both_logs_are_equal(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path / "leader") as (service, told):
        client = ZmqConnection(told["zmq"])
        request, body = message()
        alone = await client.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
        assert alone.code == Code.SLAVE_NOT_AVAILABLE
        follower = Follower(tmp_path / "follower", told["replication"])
        leader = service._session.core.parts.leading
        await until(lambda: leader.in_sync == (1,))
        assert follower.copying.step is FollowerStep.FOLLOWING
        codes = await asyncio.gather(*(send(client, number) for number in range(500)))
        assert set(codes) == {Code.SUCCESS}
        end = service._session.store.end
        assert end > 2 * SEGMENT
        assert follower.store.end == end, "nobody was answered before it was there"
        for queue_id in range(4):
            ours = service._session.store.queue_range("orders", queue_id)
            assert follower.store.queue_range("orders", queue_id) == ours
        follower.close()
        await until(lambda: leader.in_sync == ())
        left = await client.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
        assert left.code == Code.SLAVE_NOT_AVAILABLE
        client.close()
    assert log_bytes(tmp_path / "leader", end) == log_bytes(tmp_path / "follower", end)


async def test_members_and_clients_have_listeners_of_their_own(tmp_path: Path) -> None:
    async with leading(tmp_path) as (_, told):
        connection = ZmqConnection(told["replication"])
        request, body = message()
        refused = await connection.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
        assert refused.code == Code.REQUEST_CODE_NOT_SUPPORTED
        client = ZmqConnection(told["zmq"])
        attach = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
        answer = await client.request(attach, timeout_ms=TIMEOUT_MS)
        assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED
        for each in (connection, client):
            each.close()


async def test_a_broker_that_shall_have_no_followers_listens_for_none(tmp_path: Path) -> None:
    given = {"broker_role": BrokerRole.ASYNC_MASTER, "replication_enabled": False}
    async with leading(tmp_path, **given) as (service, told):
        assert "replication" not in told
        assert service._session.core.parts.leading is None


@pytest.mark.feature("F130")
async def test_a_leader_that_starts_again_opens_an_epoch_and_a_follower_goes_on(
    tmp_path: Path,
) -> None:
    given = {"broker_role": BrokerRole.ASYNC_MASTER}
    for life in (1, 2):
        async with leading(tmp_path / "leader", **given) as (service, told):
            client = ZmqConnection(told["zmq"])
            request, body = message()
            reply = await client.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
            assert reply.code == Code.SUCCESS
            follower = Follower(tmp_path / f"follower-{life}", told["replication"])
            await until(lambda: follower.store.end == service._session.store.end > 0)  # noqa: B023 - awaited within its round
            epochs = service._session.core.parts.control.replicas.epochs
            assert len(epochs) == life
            assert load_epochs(RealDisk(), service._session.store.paths) == epochs
            follower.close()
            client.close()
