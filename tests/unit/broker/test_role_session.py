"""Another core in a running process: a truncation, a change of role, and their failures.

A leader and a replica in this process; listeners and stores are real.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.broker import broker_service
from kourou.broker.broker_service import CHANGING, BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.storage import effect_executor as executor
from kourou.broker.storage.store_runtime import StoreRuntime
from kourou.engine.admin.access_gate import USERS_UNCOPIED
from kourou.engine.effects import ChangeRole
from kourou.engine.policy import BrokerRole
from kourou.errors import Code, DiskFull
from kourou.protocol.messages.namesrv import RegisterBroker, RegisterBrokerResponse
from kourou.protocol.messages.replication import Attach
from kourou.protocol.wire.frames import decode_request, encode_reply
from kourou.replication.epochs import TruncateLog, next_epoch
from kourou.replication.static_follower import FollowerStep
from kourou.store.real_disk import RealDisk
from kourou.store.replica.copies import Copies
from kourou.store.replica.replica_files import load_epochs
from kourou.transport.busy_poll import BusyPoll
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou_rigs.executing import send_to
from kourou_rigs.served_here import ServedHere, served_here
from kourou_rigs.waiting import until

ASK_MS = 20_000
GIVEN: dict[str, Any] = {
    "listen_port": 0,
    "admin_enabled": False,
    "segment_size_bytes": 64 * 1024,
    "broker_name": "broker-a",
    "event_store_url": None,
}


class ReplicaSettings(BrokerSettings):
    """What the replica service adds is its own; this one only may follow."""

    def check_role(self) -> None:
        pass


class Running(ServedHere):
    """One service, and a client of it."""

    @property
    def session(self):
        return self.service._session

    async def settled(self) -> None:
        """No change of the role or of the log is under way any more."""
        await until(lambda: self.service._renewing is None)

    async def becomes(self, change: ChangeRole) -> None:
        self.session._ended_by(change)
        await self.settled()


def running(
    settings: BrokerSettings, failures: list[BaseException] | None = None
) -> AbstractAsyncContextManager[Running]:
    return served_here(BrokerService(settings), Running, failures)


@asynccontextmanager
async def pair(
    root: Path, failures: list[BaseException] | None = None, **more: Any
) -> AsyncIterator[tuple[Running, Running]]:
    leads = BrokerSettings(store_root=root / "leader", **GIVEN)
    async with running(leads, failures) as leader:
        assert (await leader.sent(b"one")).code == Code.SUCCESS
        follows = ReplicaSettings(
            store_root=root / "replica", broker_role=BrokerRole.SLAVE, broker_id=1,
            ha_master_address=leader.address("replication"), **GIVEN, **more,
        )  # fmt: skip
        async with running(follows, failures) as replica:
            await until(lambda: replica.session.store.queue_range("orders", 0) == (0, 1))
            await until(lambda: not replica.session.view.control.access.uncopied)
            yield leader, replica


def without_leader(root: Path) -> ReplicaSettings:
    """The settings of a replica whose leader does not answer."""
    return ReplicaSettings(
        store_root=root, broker_role=BrokerRole.SLAVE, broker_id=1,
        ha_master_address="127.0.0.1:1", **GIVEN,
    )  # fmt: skip


def promoted(replica: Running) -> ChangeRole:
    newest = replica.session.view.control.replicas.epoch
    return ChangeRole(True, next_epoch(newest, 1, promoted=True))


@pytest.mark.feature("F134")
async def test_a_follower_leads_from_one_moment_to_the_next(tmp_path: Path) -> None:
    """The same process, the same listeners, the same connections; waiting requests get replies."""
    async with pair(tmp_path) as (leader, replica):
        refused = await replica.sent(b"two")
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert leader.address("replication").removeprefix("tcp://") in refused.remark
        held = asyncio.create_task(replica.pull(1, hold_ms=ASK_MS))
        await until(lambda: replica.session.view.parked_pulls == 1)
        change, before = promoted(replica), replica.session
        before._ended_by(change)
        assert (await held).code == Code.PULL_NOT_FOUND
        await replica.settled()
        assert replica.session is not before
        assert before.over
        assert replica.session.store is before.store, "it stays open"
        assert replica.session.leads
        epochs = replica.session.view.control.replicas.epochs
        assert epochs[-1][0] == change.epoch
        assert load_epochs(RealDisk(), replica.session.store.paths) == epochs
        assert (await replica.sent(b"two")).code == Code.SUCCESS
        assert b"".join((await replica.pull(1)).body).find(b"two") > 0
        assert not replica.service._link.connected


async def test_replicas_and_clients_have_listeners_of_their_own(tmp_path: Path) -> None:
    settings = BrokerSettings(store_root=tmp_path, **GIVEN)
    async with running(settings) as one:
        attach = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
        refused = await one.client.request(attach, timeout_ms=ASK_MS)
        assert refused.code == Code.REQUEST_CODE_NOT_SUPPORTED
        replicas = ZmqConnection(one.address("replication"))
        refused = await replicas.request(send_to(), body=(b"x",), timeout_ms=ASK_MS)
        assert refused.code == Code.REQUEST_CODE_NOT_SUPPORTED
        replicas.close()


async def test_a_promotion_outlives_the_process(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, replica):
        await replica.becomes(promoted(replica))
        settings = replica.service.settings
    async with running(settings) as again:
        assert again.session.leads
        assert (await again.sent(b"two")).code == Code.SUCCESS
        await again.becomes(ChangeRole(False, 0))
        assert not again.session.leads
        assert (await again.sent(b"three")).code == Code.SERVICE_NOT_AVAILABLE


async def test_a_request_during_a_change_of_role_gets_its_reply(
    tmp_path: Path, monkeypatch
) -> None:
    may_go_on, opening = threading.Event(), broker_service.open_store

    def slow(*given: object):
        may_go_on.wait(60)
        return opening(*given)

    async with pair(tmp_path) as (_, replica):
        monkeypatch.setattr(broker_service, "open_store", slow)
        replica.session._ended_by(TruncateLog(replica.session.store.end, 0))
        reply = await replica.sent(b"two")
        assert (reply.code, reply.remark) == (Code.SERVICE_NOT_AVAILABLE, CHANGING)
        assert replica.service._unready() == "not serving"
        assert replica.service._is_healthy(), "a supervisor must not kill it for that"
        may_go_on.set()
        await replica.settled()
        following = replica.session.core.role
        await until(lambda: following.copying.step is FollowerStep.FOLLOWING)
        assert replica.service._unready() == ""


@pytest.mark.feature("F134", "F137")
async def test_a_leader_that_is_fenced_at_its_start_follows(tmp_path: Path) -> None:
    """The refusal comes while the change of role is under way: it is another one."""

    def answer(frames: list[Inbound]) -> None:
        for inbound in frames:
            request = decode_request(inbound.frame)
            leads = isinstance(request, RegisterBroker) and request.broker_id == 0
            code, header = Code.SUCCESS, None
            if leads:
                code, header = Code.SERVICE_NOT_AVAILABLE, RegisterBrokerResponse(epoch=2**33)
            head = encode_reply(inbound.frame.correlation, code, "", header)
            name_server.send(inbound.peer, (head,))

    name_server = ZmqServer("127.0.0.1:0", answer, lambda _peer: None)
    name_server.start()
    try:
        async with pair(tmp_path, namesrv_addr=name_server.address) as (_, replica):
            await replica.becomes(promoted(replica))
            assert replica.session.view.control.replicas.epoch > 2**32, "it has led"
            assert not replica.session.leads
            assert replica.session.loop.running
            assert (replica.service._unready(), replica.service._is_healthy()) == ("", True)
            assert "is a follower" in (await replica.sent(b"two")).remark
    finally:
        name_server.close()


async def test_what_a_core_asks_for_while_it_takes_over_comes_next_and_once(
    tmp_path: Path, monkeypatch
) -> None:
    may_go_on = asyncio.Event()
    async with pair(tmp_path) as (_, replica):
        service, before = replica.service, replica.session
        monkeypatch.setattr(service, "_find_name_servers", may_go_on.wait)
        before._ended_by(promoted(replica))
        await until(lambda: replica.session is not before and replica.session.loop.running)
        second = replica.session
        second._ended_by(ChangeRole(False, 0))
        second._ended_by(TruncateLog(0, replica.session.store.end))  # not its to ask for any more
        assert service._renewing is not None
        assert service._unready() == "not serving"
        may_go_on.set()
        await until(lambda: service._renewing is None)
        assert replica.session is not second
        assert not replica.session.leads
        assert replica.session.loop.running
        assert service._unready() == ""


async def test_a_stop_waits_for_a_change_that_is_under_way(tmp_path: Path, monkeypatch) -> None:
    closed: list[StoreRuntime] = []
    closing = StoreRuntime.close

    async def noted(store_runtime: StoreRuntime, *given: Any, **named: Any) -> None:
        closed.append(store_runtime)
        await closing(store_runtime, *given, **named)

    monkeypatch.setattr(StoreRuntime, "close", noted)
    async with pair(tmp_path) as (_, replica):
        replica.session._ended_by(ChangeRole(False, 0))
    assert len(closed) == len({id(one) for one in closed}), "none is closed twice"
    assert not (tmp_path / "replica" / "abort").exists(), "it was closed as a store should be"


async def test_a_cut_that_costs_what_was_promised_ends_the_process(tmp_path: Path) -> None:
    """Nothing is changed, the operator is told, and what a start finds is what was there."""
    failures: list[BaseException] = []
    async with pair(tmp_path, failures) as (_, replica):
        end = replica.session.store.end
        replica.session._ended_by(TruncateLog(0, end))
        await until(lambda: bool(failures))
        settings = replica.service.settings
    assert "was committed" in str(failures[0])
    async with running(settings, failures) as again:
        assert again.session.store.end >= end
    assert len(failures) == 1


async def test_a_store_that_does_not_open_again_ends_the_process(
    tmp_path: Path, monkeypatch
) -> None:
    def failing(*_given: object):
        raise DiskFull("no space")

    failures: list[BaseException] = []
    async with pair(tmp_path, failures) as (_, replica):
        with monkeypatch.context() as patch:
            patch.setattr(broker_service, "open_store", failing)
            replica.session._ended_by(TruncateLog(replica.session.store.end, 0))
            await until(lambda: bool(failures))
    assert str(failures[0]) == "no space"


@pytest.mark.parametrize("window_us", [0, 10_000_000])
async def test_after_a_request_it_is_awake_for_the_next_and_projects_meanwhile(
    tmp_path: Path, monkeypatch, window_us: int
) -> None:
    monkeypatch.setattr(executor, "PROJECT_WITHIN_S", 3_600)
    settings = BrokerSettings(store_root=tmp_path, busy_poll_us=window_us, **GIVEN)
    async with running(settings) as one:
        await one.sent(b"one")
        store = one.session.store
        if window_us:
            await until(lambda: store.queue_range("orders", 0) == (0, 1))
        else:
            assert store.dispatch_behind_bytes
        one.session.cease()
        looked: list[BusyPoll] = []
        monkeypatch.setattr(BusyPoll, "_look", looked.append)
        for _ in range(3):
            await asyncio.sleep(0)
        assert looked == [], "nothing more is expected"


async def test_a_replica_that_began_empty_serves_once_it_has_the_log_also_after_a_restart(
    tmp_path: Path,
) -> None:
    alone = without_leader(tmp_path / "replica")
    for _ in range(2):
        async with running(alone) as replica:
            refused = await replica.pull(0)
            assert refused.code == Code.SERVICE_NOT_AVAILABLE
            assert USERS_UNCOPIED in refused.remark
    async with pair(tmp_path) as (_, replica):
        assert (await replica.pull(0)).code == Code.SUCCESS
    async with running(alone) as replica:
        assert (await replica.pull(0)).code == Code.SUCCESS, "its leader may be down"


async def test_a_replica_that_is_to_lead_after_all_serves(tmp_path: Path) -> None:
    async with running(without_leader(tmp_path)) as replica:
        assert (await replica.pull(0)).code == Code.SERVICE_NOT_AVAILABLE
        await replica.becomes(ChangeRole(True, next_epoch(0, 1, promoted=True)))
        assert (await replica.sent(b"one")).code == Code.SUCCESS
        await replica.becomes(ChangeRole(False, 0))
        assert (await replica.pull(0)).code == Code.SUCCESS


async def test_a_session_that_ends_while_it_marks_its_store_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, perhaps of an elected leader, works on the store by then."""
    service: Any = BrokerService(without_leader(tmp_path))
    failures: list[BaseException] = []
    await service.recover(failures.append)
    session, loop = service._session, asyncio.get_running_loop()
    monkeypatch.setattr(Copies, "mark_uncopied", lambda _: loop.call_soon_threadsafe(session.cease))
    started: list[object] = []
    monkeypatch.setattr(session.loop, "start", lambda *given: started.append(given))
    assert await session.begin() is False
    assert not started
    await service.stop()
    assert failures == []
